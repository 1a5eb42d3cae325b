"""Fatal faults of the peer: which fatal error status and information, and that all ends there."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

import pytest
from engine_support import (
    C2H_TERM,
    COMMAND,
    CONNECTED,
    DDGSTF,
    EV_COMMAND,
    H2C_DATA,
    H2C_TERM,
    HDGSTF,
    ICREQ,
    ICRESP,
    LAST,
    R2T,
    RESPONSE,
    SENT,
    SUCCESS,
    TERMINATED,
    Engine,
    Event,
    c2h_data,
    command,
    common,
    crc32c,
    h2c_data,
    host,
    icreq,
    icresp,
    parse,
    r2t,
    response,
    sqe,
    target,
    term_req,
)

from prestage._engine import lib

X = b"x" * 4096


def check_ended(engine: Engine, event: Event, fes: int, fei: int, pdu: bytes) -> None:
    """The engine ended with this fault, said so to the peer, and takes nothing more."""
    assert (event.kind, event.fes, event.fei, event.from_peer) == (TERMINATED, fes, fei, 0)
    term = parse(engine.output())[-1]
    assert term.kind == (H2C_TERM if engine.role else C2H_TERM)
    assert (term.fes, term.fei) == (fes, fei)
    assert len(term.data) >= 8
    assert pdu.startswith(term.data), "the header at fault is shown"
    assert lib.ps_engine_is_terminated(engine.engine)
    assert engine.receive(command(sqe(1)) + response(0)) == 0
    lib.ps_engine_terminate(engine.engine, 6, 6)
    assert (engine.events(), engine.output()) == ([], b"")


def write(length: int = 4096, digests: int = 0, **config: int) -> tuple[Engine, int]:
    """A target that has asked for `length` bytes of command 1: the tag it gave out."""
    engine = target(digests, **config)
    (event,) = engine.feed([command(sqe(1, length=length), digests=digests)])
    engine.take(event.slot, [length])
    (asked,) = parse(engine.output(), digests)
    return engine, asked.ttag


CAPSULE_FAULTS: dict[str, tuple[int, bytes, int, int]] = {
    # name: digests, PDU, FES, FEI
    "unknown type 55h": (0, common(0x55, 0, 72, 0, 72) + b"\0" * 64, 1, 0),
    "unknown type 08h": (0, common(0x08, 0, 24, 0, 24) + b"\0" * 16, 1, 0),
    "type 0Ah": (0, common(0x0A, 0, 24, 0, 24) + b"\0" * 16, 1, 0),
    "ICResp": (0, icresp(), 1, 0),
    "C2HTermReq": (0, term_req(C2H_TERM), 1, 0),
    "response": (0, response(1), 1, 0),
    "C2HData": (0, c2h_data(1, 0, X), 1, 0),
    "R2T": (0, r2t(1, 0, 0, 512), 1, 0),
    "HLEN 64": (0, command(sqe(1), hlen=64), 1, 2),
    "HLEN 0": (0, command(sqe(1), hlen=0), 1, 2),
    "HLEN 73": (0, command(sqe(1), hlen=73), 1, 2),
    "HLEN 76 with digest": (1, command(sqe(1), digests=1, hlen=76), 1, 2),
    "no HDGSTF": (3, command(sqe(1), digests=3, drop_flags=HDGSTF), 1, 1),
    "HDGSTF unasked": (0, command(sqe(1), flags=HDGSTF), 1, 1),
    "no DDGSTF": (3, command(sqe(1, sgl=1, length=4096), X, digests=3, drop_flags=DDGSTF), 1, 1),
    "DDGSTF unasked": (0, command(sqe(1, sgl=1, length=4096), X, flags=DDGSTF), 1, 1),
    "PDO 128 without data": (0, command(sqe(1), pdo=128), 1, 3),
    "PDO 24 without data": (0, command(sqe(1), pdo=24), 1, 3),
    "PDO 76": (0, command(sqe(1, sgl=1, length=4096), X, pdo=76), 1, 3),
    "PDO 0 with data": (0, command(sqe(1, sgl=1, length=4096), X, pdo=0), 1, 3),
    "PDO 72 over the digest": (1, command(sqe(1, sgl=1, length=4), X[:4], digests=1, pdo=72), 1, 3),
    "padded": (0, command(sqe(1, sgl=1, length=4096), X, pad=4), 1, 3),
    "PLEN 70": (0, command(sqe(1), plen=70), 1, 4),
    "PLEN 0": (0, command(sqe(1), plen=0), 1, 4),
    "PLEN 72 with digest": (1, command(sqe(1), digests=1, plen=72), 1, 4),
    "PLEN FFFFFFFFh": (0, command(sqe(1), plen=0xFFFFFFFF, pdo=72), 1, 4),
    "PLEN over 16 MiB": (0, command(sqe(1), plen=(16 << 20) + 129, pdo=72), 1, 4),
    "header digest": (1, command(sqe(1), digests=1, header_digest_xor=1), 3, -1),
    "header digest, first bit": (3, command(sqe(1), digests=3, header_digest_xor=1 << 31), 3, -1),
    "data missing": (0, command(sqe(1, sgl=1, length=4096)), 1, 4),
    "data too long": (0, command(sqe(1, sgl=1, length=4095), X), 1, 4),
    "data too short": (0, command(sqe(1, sgl=1, length=4097), X), 1, 4),
    "only a data digest": (
        2,
        command(sqe(1, sgl=1, length=0), flags=DDGSTF, digests=2, plen=76, pdo=72),
        1,
        4,
    ),
    "data beside a host data block": (0, command(sqe(1, length=4096), X), 1, 4),
    "data over 1 MiB": (
        0,
        command(sqe(1, sgl=1, length=(1 << 20) + 1), plen=72 + (1 << 20) + 1, pdo=72),
        1,
        4,
    ),
    "H2CData unasked, TTAG 0": (0, h2c_data(1, 0, 0, X), 2, 0),
    "H2CData unasked, TTAG 60000": (0, h2c_data(1, 60000, 0, X), 2, 0),
    "second ICReq": (0, icreq(), 2, 0),
}


@pytest.mark.parametrize("name", CAPSULE_FAULTS)
def test_a_faulty_pdu_ends_the_connection(name: str) -> None:
    digests, pdu, fes, fei = CAPSULE_FAULTS[name]
    if fei < 0:
        (fei,) = struct.unpack_from("<I", pdu, 72)
    engine = target(digests)
    (event,) = engine.feed([pdu])
    check_ended(engine, event, fes, fei, pdu)


H2C_FAULTS: dict[str, tuple[Callable[[int, int], bytes], int, int, int]] = {
    # name: PDU of (tag, digests), FES, FEI, digests
    "wrong CCCID": (lambda t, d: h2c_data(2, t, 0, X), 2, 0, 0),
    "TTAG + 1": (lambda t, d: h2c_data(1, t + 1, 0, X), 2, 0, 0),
    "TTAG + 8": (lambda t, d: h2c_data(1, t + 8, 0, X), 2, 0, 0),
    "TTAG 0": (lambda t, d: h2c_data(1, 0, 0, X), 2, 0, 0),
    "TTAG 60000": (lambda t, d: h2c_data(1, 60000, 0, X), 2, 0, 0),
    "TTAG FFFFh": (lambda t, d: h2c_data(1, 0xFFFF, 0, X), 2, 0, 0),
    "DATAO 4096": (lambda t, d: h2c_data(1, t, 4096, X), 4, 0, 0),
    "DATAO 1": (lambda t, d: h2c_data(1, t, 1, X[:4095]), 4, 0, 0),
    "DATAO FFFFF000h": (lambda t, d: h2c_data(1, t, 0xFFFFF000, X), 4, 0, 0),
    "more than asked": (lambda t, d: h2c_data(1, t, 0, X + b"x"), 4, 0, 0),
    "DATAL 0": (lambda t, d: h2c_data(1, t, 0, b"", plen=24, pdo=24), 1, 16, 0),
    "DATAL 0 with data": (lambda t, d: h2c_data(1, t, 0, X, length=0), 1, 16, 0),
    "DATAL below PLEN": (lambda t, d: h2c_data(1, t, 0, X, length=4095), 1, 16, 0),
    "DATAL over PLEN": (lambda t, d: h2c_data(1, t, 0, X, length=4097), 1, 16, 0),
    "DATAL FFFFFFFFh": (lambda t, d: h2c_data(1, t, 0, X, length=0xFFFFFFFF), 1, 16, 0),
    "LAST early": (lambda t, d: h2c_data(1, t, 0, X[:512]), 1, 1, 0),
    "LAST missing": (lambda t, d: h2c_data(1, t, 0, X, flags=0), 1, 1, 0),
    "HLEN 16": (lambda t, d: h2c_data(1, t, 0, X, hlen=16), 1, 2, 0),
    "PDO 28": (lambda t, d: h2c_data(1, t, 0, X, pdo=28), 1, 3, 0),
    "PDO 0": (lambda t, d: h2c_data(1, t, 0, X, pdo=0), 1, 3, 0),
    "padded": (lambda t, d: h2c_data(1, t, 0, X, pad=4), 1, 3, 0),
    "PLEN 23": (lambda t, d: h2c_data(1, t, 0, X, plen=23), 1, 4, 0),
    "no HDGSTF": (lambda t, d: h2c_data(1, t, 0, X, digests=d, drop_flags=HDGSTF), 1, 1, 3),
    "no DDGSTF": (lambda t, d: h2c_data(1, t, 0, X, digests=d, drop_flags=DDGSTF), 1, 1, 3),
    "DDGSTF unasked": (lambda t, d: h2c_data(1, t, 0, X, flags=LAST | DDGSTF), 1, 1, 0),
}


@pytest.mark.parametrize("name", H2C_FAULTS)
def test_faulty_host_data_ends_the_connection(name: str) -> None:
    make, fes, fei, digests = H2C_FAULTS[name]
    engine, tag = write(digests=digests)
    pdu = make(tag, digests)
    (event,) = engine.feed([pdu])
    check_ended(engine, event, fes, fei, pdu)


@pytest.mark.parametrize(
    ("pdu", "shown"),
    [
        (command(sqe(1), hlen=64), 8),
        (common(0x55, 0, 72, 0, 72) + b"\0" * 64, 8),
        (command(sqe(1, sgl=1, length=4095), X), 72),
        (h2c_data(1, 60000, 0, X), 24),
        (icreq(pfv=1), 128),
        (icreq(plen=136), 8),
    ],
)
def test_a_termreq_shows_the_header_as_far_as_it_was_read(pdu: bytes, shown: int) -> None:
    engine = Engine() if pdu[0] == ICREQ else target()
    engine.feed([pdu])
    (term,) = parse(engine.output())
    assert term.data == pdu[:shown]


def test_host_data_over_maxh2cdata_breaks_the_limit() -> None:
    engine, tag = write(length=8192, max_h2c_data=4096)
    pdu = h2c_data(1, tag, 0, X + b"x", flags=0)
    (event,) = engine.feed([pdu])
    check_ended(engine, event, 5, 0, pdu)


def test_host_data_twice_is_out_of_sequence() -> None:
    engine, tag = write()
    pdu = h2c_data(1, tag, 0, X)
    events = engine.feed([pdu + pdu])
    check_ended(engine, events[1], 2, 0, pdu)


def test_host_data_for_a_read_is_out_of_sequence() -> None:
    engine = target()
    (event,) = engine.feed([command(sqe(1, opcode=2, length=4096))])
    for tag in (event.slot, 0, 8, 1):
        engine = target()
        engine.feed([command(sqe(1, opcode=2, length=4096))])
        pdu = h2c_data(1, tag, 0, X)
        check_ended(engine, engine.feed([pdu])[0], 2, 0, pdu)


def test_host_data_before_its_r2t_was_shown_is_out_of_sequence() -> None:
    _, tag = write()
    engine = target()
    (event,) = engine.feed([command(sqe(1, length=4096))])
    engine.take(event.slot, [4096])
    (event,) = engine.feed([h2c_data(1, tag, 0, X)])
    assert (event.kind, event.fes) == (TERMINATED, 2)


def test_more_commands_than_slots_are_out_of_sequence() -> None:
    engine = target(slot_count=3)
    pdus = [command(sqe(cid)) for cid in range(4)]
    events = engine.feed(pdus)
    assert [event.kind for event in events[:3]] == [EV_COMMAND] * 3
    check_ended(engine, events[3], 2, 0, pdus[3])


# ---- state x type ----

TARGET_PDUS: dict[int, bytes] = {
    ICREQ: icreq(),
    ICRESP: icresp(),
    H2C_TERM: term_req(H2C_TERM),
    C2H_TERM: term_req(C2H_TERM),
    COMMAND: command(sqe(1)),
    RESPONSE: response(0),
    H2C_DATA: h2c_data(1, 8, 0, X),
    7: c2h_data(0, 0, X),
    R2T: r2t(0, 8, 0, 4096),
    8: common(8, 0, 24, 24, 24) + b"\0" * 16,
    10: common(10, 0, 24, 24, 24) + b"\0" * 16,
    255: common(255, 0, 24, 24, 24) + b"\0" * 16,
}

# What each role makes of each PDU: an event kind, or a fault (FES, FEI).
NEGOTIATING, OPEN = 0, 1
EXPECTED: dict[tuple[int, int], dict[int, int | tuple[int, int]]] = {
    (0, NEGOTIATING): {ICREQ: CONNECTED, H2C_TERM: TERMINATED},
    (0, OPEN): {ICREQ: (2, 0), H2C_TERM: TERMINATED, COMMAND: EV_COMMAND, H2C_DATA: (2, 0)},
    (1, NEGOTIATING): {ICRESP: CONNECTED, C2H_TERM: TERMINATED},
    # The host has no command: what is for command 0 has no owner.
    (1, OPEN): {ICRESP: (2, 0), C2H_TERM: TERMINATED, RESPONSE: (1, 20), 7: (1, 8), R2T: (1, 8)},
}


@pytest.mark.parametrize(
    ("role", "state", "kind"), list(itertools.product((0, 1), (NEGOTIATING, OPEN), TARGET_PDUS))
)
def test_every_state_and_pdu_type(role: int, state: int, kind: int) -> None:
    pdu = TARGET_PDUS[kind]
    engine = (host() if role else target()) if state == OPEN else Engine(role=role)
    engine.output()
    (event,) = engine.feed([pdu])
    otherwise = (2, 0) if state == NEGOTIATING else (1, 0)
    expected = EXPECTED[role, state].get(kind, otherwise)
    if isinstance(expected, tuple):
        check_ended(engine, event, *expected, pdu)
    else:
        assert event.kind == expected
        assert event.from_peer == (expected == TERMINATED)


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("kind", TARGET_PDUS)
def test_nothing_is_read_after_the_end(role: int, kind: int) -> None:
    engine = host() if role else target()
    engine.feed([common(255, 0, 24, 24, 24)])
    assert engine.receive(TARGET_PDUS[kind]) == 0
    assert engine.events() == []


# ---- TermReq ----


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("negotiated", [False, True])
@pytest.mark.parametrize(
    ("fes", "size", "told"),
    [
        (1, 0, True),
        (6, 24, True),
        (0xFFFF, 128, True),
        (0, 128, True),
        (1, 129, False),
        (1, -1, False),
        (1, -24, False),
        (1, 1 << 30, False),
    ],
)
def test_a_termreq_ends_it_and_is_never_answered(
    role: int, negotiated: bool, fes: int, size: int, told: bool
) -> None:
    engine = (host(3) if role else target(3)) if negotiated else Engine(role=role)
    engine.output()
    pdu = term_req(C2H_TERM if role else H2C_TERM, fes, 77, min(max(size, 0), 128), plen=24 + size)
    (event,) = engine.feed([pdu])
    assert (event.kind, event.from_peer) == (TERMINATED, 1)
    assert (event.fes, event.fei) == ((fes, 77) if told else (0, 0))
    assert engine.output() == b""
    assert lib.ps_engine_is_terminated(engine.engine)


def test_a_termreq_with_a_wrong_hlen_ends_it_too() -> None:
    engine = target()
    (event,) = engine.feed([term_req(H2C_TERM, hlen=128)])
    assert (event.kind, event.from_peer) == (TERMINATED, 1)


def test_a_caller_may_terminate_once() -> None:
    engine = target()
    lib.ps_engine_terminate(engine.engine, 2, 99)
    lib.ps_engine_terminate(engine.engine, 1, 1)
    assert [(e.kind, e.fes, e.fei, e.from_peer) for e in engine.events()] == [
        (TERMINATED, 2, 99, 0)
    ]
    stream = engine.output(step=5)
    assert stream == common(C2H_TERM, 0, 24, 0, 24) + struct.pack("<HI10x", 2, 99)


def test_what_was_queued_is_sent_before_the_termreq() -> None:
    engine = target()
    events = engine.feed([command(sqe(1)), command(sqe(2))])
    engine.respond(events[0].slot, data=X)
    engine.feed([common(255, 0, 24, 24, 24)])
    assert [pdu.kind for pdu in parse(engine.output(step=100))] == [7, RESPONSE, C2H_TERM]
    assert [event.kind for event in engine.events()] == [SENT]


def test_after_the_end_an_answer_only_frees_its_slot() -> None:
    engine = target()
    events = engine.feed(
        [command(sqe(1, length=100)), command(sqe(2, length=100)), command(sqe(3))]
    )
    engine.take(events[0].slot, [100])
    engine.iovecs()
    engine.take(events[1].slot, [100])
    lib.ps_engine_terminate(engine.engine, 1, 1)
    engine.events()
    for event in events:
        engine.respond(event.slot, data=X)
    assert [event.slot for event in engine.events()] == [events[2].slot]
    assert [pdu.kind for pdu in parse(engine.output())] == [R2T, R2T, C2H_TERM]
    assert [event.slot for event in engine.events()] == [events[0].slot, events[1].slot]


def test_an_answer_that_waited_for_its_r2t_is_dropped_by_the_end() -> None:
    engine = target()
    (event,) = engine.feed([command(sqe(1, length=100))])
    engine.take(event.slot, [100])
    engine.iovecs()
    engine.respond(event.slot)
    lib.ps_engine_terminate(engine.engine, 1, 1)
    assert [pdu.kind for pdu in parse(engine.output())] == [R2T, C2H_TERM]
    assert [event.kind for event in engine.events()] == [TERMINATED, SENT]


def test_in_capsule_data_held_at_the_end_can_be_taken_or_skipped() -> None:
    for action in ("take", "skip"):
        engine = target()
        (event,) = engine.feed([command(sqe(1, sgl=1, length=4096), X)[:72]])
        lib.ps_engine_terminate(engine.engine, 1, 1)
        if action == "take":
            engine.take(event.slot, [4096])
        else:
            engine.skip(event.slot)
        assert engine.receive(X) == 0
        assert engine.destination() == []
        engine.respond(event.slot)
        assert [e.kind for e in engine.events()] == [TERMINATED, SENT]


# ---- the host's checks ----


def host_with(transfer: int, digests: int = 0, length: int = 4096, **config: int) -> Engine:
    engine = host(digests, **config)
    data = X[:length] if transfer > 1 else b""
    assert engine.submit(sqe(0), transfer, data, 0 if transfer == 0 else length)[0] == 0
    engine.output()
    return engine


HOST_FAULTS: dict[str, tuple[int, int, bytes, int, int]] = {
    # name: transfer, digests, PDUs, FES, FEI
    "response HLEN": (0, 0, response(0, hlen=16), 1, 2),
    "response PLEN": (0, 0, response(0, plen=28), 1, 4),
    "response CID": (0, 0, response(1), 1, 20),
    "response CID FFFFh": (0, 0, response(0xFFFF), 1, 20),
    "response twice": (0, 0, response(0) * 2, 1, 20),
    "response digest": (0, 1, response(0, digests=1, header_digest_xor=2), 3, -1),
    "response without HDGSTF": (0, 1, response(0, digests=1, drop_flags=1), 1, 1),
    "C2HData CCCID": (1, 0, c2h_data(3, 0, X), 1, 8),
    "C2HData for a write": (2, 0, c2h_data(0, 0, X), 2, 0),
    "C2HData for no data": (0, 0, c2h_data(0, 0, X), 2, 0),
    "C2HData DATAO": (1, 0, c2h_data(0, 4, X[:4]), 4, 0),
    "C2HData out of order": (1, 0, c2h_data(0, 512, X[:512], flags=0), 4, 0),
    "C2HData too long": (1, 0, c2h_data(0, 0, X + b"x"), 4, 0),
    "C2HData DATAL 0": (1, 0, c2h_data(0, 0, b"", plen=24, pdo=24), 1, 16),
    "C2HData DATAL": (1, 0, c2h_data(0, 0, X, length=4000), 1, 16),
    "C2HData SUCCESS without LAST": (1, 0, c2h_data(0, 0, X, flags=SUCCESS), 1, 1),
    "C2HData after LAST": (1, 0, c2h_data(0, 0, X[:1]) + c2h_data(0, 1, X[1:]), 2, 0),
    "C2HData PDO before header end": (1, 0, c2h_data(0, 0, X, pdo=20), 1, 3),
    "C2HData PDO unaligned": (1, 0, c2h_data(0, 0, X, pdo=26), 1, 3),
    "C2HData DDGSTF": (1, 2, c2h_data(0, 0, X, digests=2, drop_flags=DDGSTF), 1, 1),
    "R2T for a read": (1, 0, r2t(0, 5, 0, 4096), 2, 0),
    "R2T for in-capsule data": (3, 0, r2t(0, 5, 0, 4096), 2, 0),
    "R2T CCCID": (2, 0, r2t(7, 5, 0, 4096), 1, 8),
    "R2T R2TL 0": (2, 0, r2t(0, 5, 0, 0), 1, 16),
    "R2T beyond": (2, 0, r2t(0, 5, 0, 4097), 4, 0),
    "R2T R2TO": (2, 0, r2t(0, 5, 4, 100), 4, 0),
    "R2T again": (2, 0, r2t(0, 5, 0, 4096) * 2, 4, 0),
    "R2T HLEN": (2, 0, r2t(0, 5, 0, 4096, hlen=28), 1, 2),
    "R2T over MAXR2T": (2, 0, b"".join(r2t(0, 5, at, 100) for at in (0, 100, 200)), 5, 0),
}


@pytest.mark.parametrize("name", HOST_FAULTS)
def test_a_host_ends_on_a_controllers_fault(name: str) -> None:
    transfer, digests, pdus, fes, fei = HOST_FAULTS[name]
    engine = host_with(transfer, digests)
    event = engine.feed([pdus])[-1]
    if fei < 0:
        (fei,) = struct.unpack_from("<I", pdus, 24)
        assert fei == crc32c(pdus[:24]) ^ 2
    assert (event.kind, event.fes, event.fei) == (TERMINATED, fes, fei)
    term = parse(engine.output(), digests)[-1]
    assert (term.kind, term.fes, term.fei) == (H2C_TERM, fes, fei)
    assert term.data in pdus
