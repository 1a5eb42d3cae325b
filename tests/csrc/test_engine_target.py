"""The target role: commands, host data, answers, and slots that end early."""

from __future__ import annotations

import itertools

import pytest
from engine_support import (
    C2H_DATA,
    EV_COMMAND,
    EV_DATA,
    LAST,
    R2T,
    RESPONSE,
    SENT,
    SUCCESS,
    TERMINATED,
    Engine,
    Received,
    command,
    h2c_data,
    parse,
    sqe,
    target,
)

from prestage._engine import lib

BYTES = bytes(i * 7 % 251 for i in range(70000))


def begin_write(engine: Engine, cid: int, length: int, digests: int = 0) -> tuple[int, Received]:
    """A write by R2T: its slot and its R2T, which was sent."""
    (event,) = engine.feed([command(sqe(cid, length=length), digests=digests)])
    engine.take(event.slot, [length])
    (asked,) = parse(engine.output(), digests)
    assert (asked.kind, asked.cid, asked.offset, asked.length) == (R2T, cid, 0, length)
    return event.slot, asked


@pytest.mark.parametrize("digests", range(4))
def test_a_command_comes_with_its_entry(digests: int) -> None:
    entry = sqe(4660, length=77)
    (event,) = target(digests).feed([command(entry, digests=digests)])
    assert (event.kind, event.entry, event.data_length) == (EV_COMMAND, entry, 0)


@pytest.mark.parametrize("digests", range(4))
def test_whole_capsules_are_seen_before_they_are_received(digests: int) -> None:
    engine = target(digests)
    entries = [sqe(1, length=512), sqe(2, sgl=1, length=700), sqe(3, length=9)]
    capsules = [
        command(entries[0], digests=digests),
        command(entries[1], BYTES[:700], digests=digests),
        command(entries[2], digests=digests),
    ]
    stream = b"".join(capsules)
    assert engine.peek(stream) == entries
    assert engine.peek(stream, most=2) == entries[:2]
    assert engine.peek(stream[:-1]) == entries[:2], "the last is not all there"
    headers = len(capsules[0]) + 72 + 4 * (digests & 1)
    assert engine.peek(stream[: headers + 5]) == entries[:2], "its data need not be there"
    other = h2c_data(1, 0, 0, BYTES[:64], flags=LAST, digests=digests)
    assert engine.peek(capsules[0] + other + capsules[2]) == entries[:1]
    assert engine.receive(stream[:40]) == 40
    assert engine.peek(stream[40:]) == [], "one has begun"
    (event,) = engine.feed([stream[40 : len(capsules[0])]])
    assert (event.kind, event.entry) == (EV_COMMAND, entries[0]), "nothing was consumed"
    assert engine.peek(stream[len(capsules[0]) :]) == entries[1:]


def test_nothing_is_seen_before_the_negotiation() -> None:
    engine = Engine()
    assert engine.peek(command(sqe(1))) == []


@pytest.mark.parametrize("digests", range(4))
@pytest.mark.parametrize("length", [1, 4, 513, 8192, 1 << 20])
def test_in_capsule_data_goes_to_the_buffers_taken(digests: int, length: int) -> None:
    engine = target(digests)
    data = (BYTES * 16)[:length]
    stream = command(sqe(1, sgl=1, length=length), data, digests=digests)
    (event,) = engine.feed([stream[:90]])
    assert event.data_length == length
    used = 72 + 4 * (digests & 1)
    assert engine.receive(stream[used:]) == 0, "nothing is consumed without a destination"
    read = engine.take(event.slot, [length // 3, 0, length - length // 3])
    assert lib.ps_engine_is_receiving(engine.engine, event.slot)
    (done,) = engine.feed([stream[used:]])
    assert (done.kind, done.slot, done.digest_error) == (EV_DATA, event.slot, 0)
    assert not lib.ps_engine_is_receiving(engine.engine, event.slot)
    assert read() == data


@pytest.mark.parametrize("digests", range(4))
def test_an_r2t_asks_for_everything_and_its_data_arrives(digests: int) -> None:
    engine = target(digests, max_h2c_data=8192)
    slot, asked = begin_write(engine, 9, 20000, digests)
    events = []
    for offset in range(0, 20000, 8192):
        piece = BYTES[offset : min(offset + 8192, 20000)]
        flags = LAST if offset + len(piece) == 20000 else 0
        events += engine.feed(
            [h2c_data(9, asked.ttag, offset, piece, flags=flags, digests=digests)]
        )
    assert [(event.kind, event.slot) for event in events] == [(EV_DATA, slot)]


def test_a_small_write_by_host_data_gets_an_r2t_too() -> None:
    _, asked = begin_write(target(), 1, 4096)
    assert asked.length == 4096


def test_several_writes_interleave() -> None:
    engine = target()
    writes = [begin_write(engine, cid, 2000) for cid in (1, 2, 3)]
    events = engine.feed(
        h2c_data(asked.cid, asked.ttag, at, BYTES[at : at + 500], flags=LAST if at == 1500 else 0)
        for at in range(0, 2000, 500)
        for _, asked in writes
    )
    assert [event.slot for event in events] == [slot for slot, _ in writes]


@pytest.mark.parametrize("digests", range(4))
def test_a_direct_receive_equals_a_received_one(digests: int) -> None:
    engine = target(digests)
    (event,) = engine.feed([command(sqe(1, length=5000), digests=digests)])
    read = engine.take(event.slot, [1000, 0, 4000])
    (asked,) = parse(engine.output(), digests)
    pdu = h2c_data(1, asked.ttag, 0, BYTES[:5000], digests=digests)
    header = 24 + 4 * (digests & 1)
    assert engine.destination() == []
    engine.feed([pdu[: header + 300]])
    first, second = engine.destination()
    assert (len(first), len(second)) == (700, 4000)
    assert [len(part) for part in engine.destination(1)] == [700]
    first[:] = pdu[header + 300 : header + 1000]
    second[:100] = pdu[header + 1000 : header + 1100]
    lib.ps_engine_received(engine.engine, 800)
    assert [len(part) for part in engine.destination()] == [3900]
    (done,) = engine.feed([pdu[header + 1100 :]])
    assert (done.kind, done.digest_error) == (EV_DATA, 0)
    assert read() == BYTES[:5000]
    assert engine.destination() == []


def test_a_direct_receive_of_everything_ends_the_transfer() -> None:
    engine = target()
    slot, asked = begin_write(engine, 1, 600)
    engine.feed([h2c_data(1, asked.ttag, 0, BYTES[:600])[:24]])
    (part,) = engine.destination()
    part[:] = BYTES[:600]
    lib.ps_engine_received(engine.engine, 600)
    assert [(event.kind, event.slot) for event in engine.events()] == [(EV_DATA, slot)]


@pytest.mark.parametrize("by_r2t", [False, True])
def test_a_wrong_data_digest_is_told_and_the_connection_stays(by_r2t: bool) -> None:
    engine = target(3)
    if by_r2t:
        _, asked = begin_write(engine, 7, 512, 3)
        (event,) = engine.feed(
            [h2c_data(7, asked.ttag, 0, BYTES[:512], digests=3, data_digest_xor=1)]
        )
    else:
        pdu = command(sqe(7, sgl=1, length=512), BYTES[:512], digests=3, data_digest_xor=1 << 31)
        (first,) = engine.feed([pdu[:76]])
        engine.take(first.slot, [512])
        (event,) = engine.feed([pdu[76:]])
    assert (event.kind, event.digest_error) == (EV_DATA, 1)
    engine.respond(event.slot, status=0x22)
    (answer,) = parse(engine.output(), 3)
    assert (answer.cid, answer.status) == (7, 0x22)
    engine.events()
    assert engine.feed([command(sqe(8), digests=3)])[0].digest_error == 0


def test_one_wrong_digest_among_several_pdus_is_kept_to_the_end() -> None:
    engine = target(2)
    _, asked = begin_write(engine, 7, 1000, 2)
    bad = h2c_data(7, asked.ttag, 0, BYTES[:500], flags=0, digests=2, data_digest_xor=4)
    good = h2c_data(7, asked.ttag, 500, BYTES[:500], digests=2)
    (event,) = engine.feed([bad + good])
    assert event.digest_error == 1


@pytest.mark.parametrize("digests", range(4))
@pytest.mark.parametrize("length", [1, 512, 70000])
def test_an_answer_carries_its_data_then_the_response(digests: int, length: int) -> None:
    engine = target(digests)
    (event,) = engine.feed([command(sqe(5), digests=digests)])
    engine.respond(event.slot, 0x4002, 0xDEADBEEF, BYTES[:length], [0, length // 2, length])
    data, answer = parse(engine.output(), digests)
    assert (data.kind, data.cid, data.offset, data.length) == (C2H_DATA, 5, 0, length)
    assert data.flags & (LAST | SUCCESS) == LAST
    assert data.data == BYTES[:length]
    assert (answer.kind, answer.status, answer.dw0, answer.cid) == (RESPONSE, 0x4002, 0xDEADBEEF, 5)
    assert [(e.kind, e.slot) for e in engine.events()] == [(SENT, event.slot)]


@pytest.mark.parametrize(
    ("allowed", "status", "dw0", "dw1", "expected"),
    [
        (True, 0, 0, 0, True),
        (False, 0, 0, 0, False),
        (True, 2, 0, 0, False),
        (True, 0, 1, 0, False),
        (True, 0, 0, 1, False),
    ],
)
def test_success_stands_for_a_response_that_says_nothing_more(
    allowed: bool, status: int, dw0: int, dw1: int, expected: bool
) -> None:
    engine = target()
    engine.bind(success_allowed=allowed)
    (event,) = engine.feed([command(sqe(5))])
    engine.respond(event.slot, status, dw0, b"abc", dw1=dw1)
    pdus = parse(engine.output())
    assert bool(pdus[0].flags & SUCCESS) == expected
    assert len(pdus) == (1 if expected else 2)
    assert engine.events()[0].kind == SENT


def test_success_needs_data() -> None:
    engine = target()
    engine.bind(success_allowed=True)
    (event,) = engine.feed([command(sqe(5))])
    engine.respond(event.slot)
    assert [pdu.kind for pdu in parse(engine.output())] == [RESPONSE]


def test_sqhd_counts_entries_modulo_the_queue_size() -> None:
    engine = target()
    heads = []
    for cid in range(9):
        (event,) = engine.feed([command(sqe(cid))])
        if cid == 0:
            engine.bind(sq_size=4)
        engine.respond(event.slot)
        heads.append(parse(engine.output())[0].sqhd)
        engine.events()
    assert heads == [1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_sqhd_is_ffff_from_connect_on_when_flow_control_is_disabled() -> None:
    engine = target()
    for cid in range(3):
        (event,) = engine.feed([command(sqe(cid))])
        if cid == 0:
            engine.bind(sq_size=4, flow_control_disabled=True)
        engine.respond(event.slot)
        assert parse(engine.output())[0].sqhd == 0xFFFF
        engine.events()


def test_the_same_cid_twice_in_flight_completes_twice() -> None:
    engine = target()
    events = engine.feed([command(sqe(7)) + command(sqe(7))])
    first, second = (event.slot for event in events)
    assert first != second
    assert lib.ps_engine_find(engine.engine, 7) == first
    engine.respond(first, data=b"one")
    assert lib.ps_engine_find(engine.engine, 7) == second
    engine.respond(second, data=b"two")
    assert lib.ps_engine_find(engine.engine, 7) == -1
    pdus = parse(engine.output())
    assert [pdu.data for pdu in pdus if pdu.kind == C2H_DATA] == [b"one", b"two"]


def test_find_names_the_oldest_whatever_the_slot() -> None:
    engine = target(slot_count=2)
    first, second = (e.slot for e in engine.feed([command(sqe(1)) + command(sqe(7))]))
    engine.respond(first)
    engine.output()
    engine.events()
    (third,) = engine.feed([command(sqe(7))])
    assert third.slot == first
    assert lib.ps_engine_find(engine.engine, 7) == second


def test_a_skipped_command_is_answered_before_or_after_its_data() -> None:
    pdu = command(sqe(1, sgl=1, length=900), BYTES[:900], digests=2)
    for cut in range(72, len(pdu) + 1):
        engine = target(2)
        (event,) = engine.feed([pdu[:72]])
        engine.skip(event.slot)
        engine.feed([pdu[72:cut]])
        engine.respond(event.slot, 0x4002)
        (answer,) = parse(engine.output(), 2)
        assert answer.status == 0x4002
        events = engine.feed([pdu[cut:], command(sqe(2), digests=2)])
        assert [e.kind for e in events if e.kind != SENT] == [EV_COMMAND]


def test_an_answer_instead_of_take_or_skip_discards_the_data() -> None:
    engine = target()
    pdu = command(sqe(1, sgl=1, length=900), BYTES[:900])
    (event,) = engine.feed([pdu[:72]])
    engine.respond(event.slot, 2)
    events = engine.feed([pdu[72:], command(sqe(2))])
    assert [e.kind for e in events if e.kind != SENT] == [EV_COMMAND]


@pytest.mark.parametrize("sgl", [0x30, 0x03, 0x00, 0x40])
def test_other_descriptors_go_up(sgl: int) -> None:
    engine = target()
    (event,) = engine.feed([command(sqe(1, sgl=sgl, length=4096))])
    assert event.data_length == 0
    (event,) = engine.feed([command(sqe(2, sgl=sgl, length=4096), b"x" * 16)])
    assert event.data_length == 16


def test_prps_and_an_offset_in_the_capsule_go_up() -> None:
    engine = target()
    (event,) = engine.feed([command(sqe(1, sgl=1, length=4096, psdt=0))])
    assert event.data_length == 0
    (event,) = engine.feed([command(sqe(2, sgl=1, length=16, offset=512), b"x" * 16)])
    assert event.data_length == 16


def test_a_pdo_of_a_capsule_without_data_may_be_the_end_of_its_header() -> None:
    for digests, pdo in ((0, 72), (1, 76), (0, 0), (1, 0)):
        (event,) = target(digests).feed([command(sqe(1), digests=digests, pdo=pdo)])
        assert event.kind == EV_COMMAND


# ---- ending early ----


@pytest.mark.parametrize("digests", [0, 3])
@pytest.mark.parametrize("arrived", [0, 1, 100, 499, 500, 510, 700])
def test_data_of_an_ended_write_is_discarded(digests: int, arrived: int) -> None:
    engine = target(digests)
    (event,) = engine.feed([command(sqe(1, length=1000), digests=digests)])
    read = engine.take(event.slot, [1000])
    (asked,) = parse(engine.output(), digests)
    stream = h2c_data(1, asked.ttag, 0, b"a" * 500, flags=0, digests=digests)
    stream += h2c_data(1, asked.ttag, 500, b"b" * 500, digests=digests)
    engine.feed([stream[:arrived]])
    before = read()
    engine.respond(event.slot, 7)
    (answer,) = parse(engine.output(), digests)
    assert answer.status == 7
    assert engine.events()[0].kind == SENT
    # The slot has a new owner already; what comes for the old one reaches neither.
    engine.feed([stream[arrived:]])
    (again,) = engine.feed([command(sqe(2, length=1000), digests=digests)])
    read_again = engine.take(again.slot, [1000])
    (asked_again,) = parse(engine.output(), digests)
    assert asked_again.ttag != asked.ttag
    (done,) = engine.feed([h2c_data(2, asked_again.ttag, 0, b"c" * 1000, digests=digests)])
    assert (done.kind, done.digest_error) == (EV_DATA, 0)
    assert read() == before
    assert read_again() == b"c" * 1000


def test_owed_data_may_come_after_the_slot_was_given_away() -> None:
    engine = target(slot_count=1)
    slot, old = begin_write(engine, 1, 1000)
    engine.respond(slot, 7)
    engine.output()
    engine.events()
    slot, new = begin_write(engine, 2, 1000)
    assert new.ttag != old.ttag
    events = engine.feed(
        [
            h2c_data(1, old.ttag, 0, b"a" * 400, flags=0),
            h2c_data(2, new.ttag, 0, b"b" * 400, flags=0),
            h2c_data(1, old.ttag, 400, b"a" * 600),
            h2c_data(2, new.ttag, 400, b"b" * 600),
        ]
    )
    assert [event.kind for event in events] == [EV_DATA]


def test_no_more_is_discarded_than_was_asked_for() -> None:
    engine = target(slot_count=1)
    slot, old = begin_write(engine, 1, 1000)
    engine.respond(slot, 7)
    engine.output()
    engine.events()
    events = engine.feed([h2c_data(1, old.ttag, 0, b"a" * 1000), h2c_data(1, old.ttag, 0, b"a")])
    assert [(event.kind, event.fes) for event in events] == [(TERMINATED, 2)]


def test_slots_of_ended_writes_are_never_lost() -> None:
    engine = target(slot_count=3)
    for cid in range(1000):
        slot, _ = begin_write(engine, cid, 100 + cid)
        engine.respond(slot, 7)
        engine.output()
        assert [event.kind for event in engine.events()] == [SENT]
    events = engine.feed([command(sqe(cid)) for cid in range(3)])
    assert len({event.slot for event in events}) == 3


def test_an_r2t_that_was_not_shown_yet_is_taken_back() -> None:
    engine = target()
    (event,) = engine.feed([command(sqe(1, length=100))])
    engine.take(event.slot, [100])
    engine.respond(event.slot, 7)
    assert [pdu.kind for pdu in parse(engine.output())] == [RESPONSE]
    engine.events()


def test_bytes_that_were_shown_go_out_although_the_slot_ends() -> None:
    """Other slots' bytes stand behind the R2T in the list: the answer must not come between."""
    engine = target()
    first, second = engine.feed([command(sqe(1, length=100)) + command(sqe(2))])
    engine.take(first.slot, [100])
    engine.respond(second.slot)
    shown = b"".join(engine.iovecs())
    engine.respond(first.slot, 7)
    assert b"".join(engine.iovecs())[: len(shown)] == shown
    engine.sent(10)
    assert b"".join(engine.iovecs())[: len(shown) - 10] == shown[10:]
    engine.sent(len(shown) - 10)
    (answer,) = parse(engine.output())
    assert (answer.kind, answer.cid, answer.status) == (RESPONSE, 1, 7)
    assert [event.slot for event in engine.events()] == [second.slot, first.slot]


# ---- output ----


@pytest.mark.parametrize("digests", [0, 3])
def test_output_sent_in_pieces_of_any_size_is_the_same(digests: int) -> None:
    streams = []
    for step, most in itertools.product([1, 2, 3, 5, 23, 24, 25, 64, 1000, None], [1, 2, 64]):
        engine = target(digests, hpda=15)
        events = engine.feed(command(sqe(cid, length=300), digests=digests) for cid in range(6))
        for event in events[:3]:
            engine.respond(event.slot, data=BYTES[: 200 + event.slot], sizes=[7, 0, 500])
        engine.take(events[3].slot, [300])
        engine.respond(events[4].slot, 5)
        engine.respond(events[5].slot, data=b"z")
        streams.append(engine.output(step, most))
        assert [event.kind for event in engine.events()] == [SENT] * 5
    assert len(set(streams)) == 1
    assert len(parse(streams[0], digests)) == 10


def test_sent_is_told_with_the_last_byte_only() -> None:
    engine = target(3)
    (event,) = engine.feed([command(sqe(1), digests=3)])
    engine.respond(event.slot, data=b"q" * 50)
    size = sum(map(len, engine.iovecs()))
    for left in range(size, 0, -1):
        assert engine.events() == []
        assert sum(map(len, engine.iovecs())) == left
        engine.sent(1)
    assert [event.kind for event in engine.events()] == [SENT]
    assert engine.iovecs() == []


def test_a_read_costs_three_iovecs_and_two_with_success() -> None:
    engine = target()
    (event,) = engine.feed([command(sqe(1))])
    engine.respond(event.slot, data=b"q" * 4096)
    assert [len(part) for part in engine.iovecs()] == [24, 4096, 24]
    engine.output()
    engine.events()
    engine.bind(success_allowed=True)
    (event,) = engine.feed([command(sqe(1))])
    engine.respond(event.slot, data=b"q" * 4096)
    assert [len(part) for part in engine.iovecs()] == [24, 4096]


def test_all_slots_answered_in_one_pass_tell_sent_in_order() -> None:
    engine = target(slot_count=4096)
    engine.bind(sq_size=4096)
    events = engine.feed([b"".join(command(sqe(cid)) for cid in range(4096))])
    assert len({event.slot for event in events}) == 4096
    for event in events:
        engine.respond(event.slot)
    answers = parse(engine.output())
    assert [answer.cid for answer in answers] == list(range(4096))
    assert [event.slot for event in engine.events()] == [event.slot for event in events]
