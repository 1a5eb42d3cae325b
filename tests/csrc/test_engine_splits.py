"""Every cut point of every PDU kind, one byte at a time, and many PDUs in one segment: the same
events, the same data, the same answers as unsplit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from engine_support import (
    COMPLETION,
    EV_COMMAND,
    EV_DATA,
    LAST,
    SUCCESS,
    TERMINATED,
    Engine,
    Event,
    c2h_data,
    command,
    common,
    h2c_data,
    icreq,
    icresp,
    r2t,
    response,
    sqe,
    target,
    term_req,
)

BYTES = bytes(i * 13 % 241 for i in range(2000))


@dataclass
class Trace:
    """All that can be seen of an engine: events, data received, bytes sent."""

    events: list[Event] = field(default_factory=list)
    data: dict[int, bytes] = field(default_factory=dict)
    sent: bytes = b""


def run_target(pieces: Iterable[bytes], digests: int) -> Trace:
    """Take whatever comes, answer it at once, and send after each event."""
    engine, trace = Engine(digests=3), Trace()
    readers: dict[int, Callable[[], bytes]] = {}

    def react(event: Event) -> None:
        cid = event.entry[2] if event.entry else 0
        if event.kind == EV_COMMAND and event.data_length and cid % 4 == 3:
            engine.skip(event.slot)
            engine.respond(event.slot, 0x16)
        elif event.kind == EV_COMMAND and event.data_length:
            readers[event.slot] = engine.take(event.slot, [33, 0, event.data_length - 33])
        elif event.kind == EV_COMMAND and cid >= 10:
            readers[event.slot] = engine.take(event.slot, [100, 400])
            trace.sent += engine.output()
            if cid == 13:
                engine.respond(event.slot, 7)
        elif event.kind == EV_COMMAND:
            engine.respond(event.slot, data=BYTES[:cid])
        elif event.kind == EV_DATA:
            trace.data[len(trace.data)] = readers.pop(event.slot)()
            engine.respond(event.slot, event.digest_error)
        trace.sent += engine.output()

    trace.events = [replace(event) for event in engine.feed(pieces, react)]
    return trace


def target_pdus(digests: int) -> dict[str, bytes]:
    """Every PDU kind that a target reads, in an order that makes sense. Slots are given out anew
    each time, so each R2T's tag is the next generation of slot 0 of 8."""
    write = sqe(10, length=500)
    return {
        "ICReq": icreq(digests=digests, hpda=9),
        "command": command(sqe(4), digests=digests),
        "command with data": command(sqe(5, sgl=1, length=700), BYTES[:700], digests=digests),
        "command to skip": command(sqe(3, sgl=1, length=99), BYTES[:99], digests=digests),
        "wrong data digest": command(
            sqe(6, sgl=1, length=50), BYTES[:50], digests=digests, data_digest_xor=1
        ),
        "write": command(write, digests=digests),
        "H2CData": h2c_data(10, 8, 0, BYTES[:200], flags=0, digests=digests),
        "H2CData LAST": h2c_data(10, 8, 200, BYTES[200:500], digests=digests),
        "write to end early": command(sqe(13, length=500), digests=digests),
        "H2CData for nobody": h2c_data(13, 16, 0, BYTES[:500], digests=digests),
        "command again": command(sqe(7), digests=digests),
        "H2CTermReq": term_req(2, 5, 6),
    }


@pytest.mark.parametrize("digests", range(4))
def test_every_cut_point_of_every_pdu_to_a_target(digests: int) -> None:
    stream = b"".join(target_pdus(digests).values())
    whole = run_target([stream], digests)
    kinds = [event.kind for event in whole.events]
    assert kinds.count(EV_COMMAND) == 7
    assert kinds.count(EV_DATA) == 3
    assert kinds[-1] == TERMINATED
    assert whole.data[2] == BYTES[:500]
    for cut in range(1, len(stream)):
        assert run_target([stream[:cut], stream[cut:]], digests) == whole, f"cut at {cut}"


@pytest.mark.parametrize("digests", range(4))
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 127])
def test_pieces_of_one_size_to_a_target(digests: int, size: int) -> None:
    stream = b"".join(target_pdus(digests).values())
    pieces = (stream[at : at + size] for at in range(0, len(stream), size))
    assert run_target(pieces, digests) == run_target([stream], digests)


@pytest.mark.parametrize("name", [name for name in target_pdus(0) if name != "H2CTermReq"])
def test_a_fault_is_the_same_wherever_the_pdu_is_cut(name: str) -> None:
    """The kind of each byte's corruption, and the TermReq for it, do not depend on cuts."""
    pdus = target_pdus(3)
    names = list(pdus)
    before = b"".join(pdus[other] for other in names[: names.index(name)])
    after = b"".join(pdus[other] for other in names[names.index(name) + 1 :])
    for at in range(min(len(pdus[name]), 80)):
        pdu = bytearray(pdus[name])
        pdu[at] ^= 0x41
        stream = before + bytes(pdu) + after
        whole = run_target([stream], 3)
        cut = len(before) + at
        for pieces in ([stream[:cut], stream[cut:]], [stream[: cut + 1], stream[cut + 1 :]]):
            assert run_target(pieces, 3) == whole, f"byte {at}"


def run_host(pieces: Iterable[bytes], digests: int) -> Trace:
    engine, trace = Engine(role=1, digests=digests, data_alignment=3, max_r2t=1), Trace()
    readers: dict[int, Callable[[], bytes]] = {}
    trace.sent += engine.output()

    def react(event: Event) -> None:
        if event.kind == 1:
            readers[0] = engine.submit(sqe(0), 1, length=600, sizes=[5, 595])[1]
            engine.submit(sqe(0), 2, BYTES[:900])
            engine.submit(sqe(0))
            readers[3] = engine.submit(sqe(0), 1, length=50)[1]
        elif event.kind == COMPLETION and event.slot in readers:
            trace.data[event.slot] = readers[event.slot]()
        trace.sent += engine.output()

    trace.events = engine.feed(pieces, react)
    trace.sent += engine.output()
    return trace


def host_pdus(digests: int) -> list[bytes]:
    pad = 8 if not digests & 1 else 4
    done = LAST | SUCCESS
    return [
        icresp(digests=digests),
        c2h_data(0, 0, BYTES[:200], flags=0, digests=digests, pad=pad),
        r2t(1, 77, 0, 400, digests=digests),
        response(2, 0x4002, digests=digests),
        c2h_data(0, 200, BYTES[200:600], digests=digests, pad=pad + 16),
        r2t(1, 78, 400, 500, digests=digests),
        c2h_data(3, 0, BYTES[:50], flags=done, digests=digests, pad=pad, data_digest_xor=1),
        response(0, digests=digests),
        response(1, digests=digests),
        term_req(3, 1, 4),
    ]


@pytest.mark.parametrize("digests", range(4))
def test_every_cut_point_of_every_pdu_to_a_host(digests: int) -> None:
    stream = b"".join(host_pdus(digests))
    whole = run_host([stream], digests)
    assert sorted(event.slot for event in whole.events if event.kind == COMPLETION) == [0, 1, 2, 3]
    assert whole.data == {0: BYTES[:600], 3: BYTES[:50]}
    for cut in range(1, len(stream)):
        trace = run_host([stream[:cut], stream[cut:]], digests)
        assert (trace.events, trace.data) == (whole.events, whole.data), f"cut at {cut}"
        assert trace.sent == whole.sent, f"cut at {cut}"


@pytest.mark.parametrize("digests", range(4))
def test_bytes_one_by_one_to_a_host(digests: int) -> None:
    stream = b"".join(host_pdus(digests))
    assert run_host((bytes([byte]) for byte in stream), digests) == run_host([stream], digests)


@pytest.mark.parametrize("digests", range(4))
def test_eight_pdus_in_a_segment(digests: int) -> None:
    engine = target(digests)
    segment = b"".join(command(sqe(cid), digests=digests) for cid in range(8))
    events = engine.feed([segment])
    assert [event.entry[2] for event in events] == list(range(8))
    assert len({event.slot for event in events}) == 8


def test_receiving_stops_after_each_event_until_it_was_taken() -> None:
    engine = target()
    segment = command(sqe(1)) + command(sqe(2))
    assert engine.receive(segment) == 72
    assert engine.receive(segment[72:]) == 0
    assert [event.entry[2] for event in engine.events()] == [1]
    assert engine.receive(segment[72:]) == 72


def cuts(stream: bytes) -> Iterator[list[bytes]]:
    for cut in range(len(stream) + 1):
        yield [stream[:cut], stream[cut:]]


@pytest.mark.parametrize("kind", [255, 1, 3, 5])
def test_a_senseless_type_is_told_as_soon_as_its_header_is_there(kind: int) -> None:
    for pieces in cuts(common(kind, 0, 24, 0, 0xFFFFFFFF)):
        (event,) = target().feed(pieces)
        assert (event.kind, event.fes, event.fei) == (TERMINATED, 1, 0)
