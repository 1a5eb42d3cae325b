"""The host role: what it sends, and what it makes of a controller that keeps the rules."""

from __future__ import annotations

import pytest
from engine_support import (
    COMMAND,
    COMPLETION,
    DDGSTF,
    H2C_DATA,
    LAST,
    SUCCESS,
    TERMINATED,
    Engine,
    c2h_data,
    host,
    parse,
    r2t,
    response,
    sqe,
)

BYTES = bytes(i * 11 % 253 for i in range(70000))


@pytest.mark.parametrize("digests", range(4))
@pytest.mark.parametrize(
    ("transfer", "length", "sgl"), [(0, 0, 0x5A), (1, 512, 0x5A), (2, 512, 0x5A), (3, 512, 0x01)]
)
def test_a_submission_sets_cid_and_sgl1_and_nothing_else(
    digests: int, transfer: int, length: int, sgl: int
) -> None:
    engine = host(digests)
    engine.submit(sqe(0))
    entry = bytes(range(64))
    data = BYTES[:length] if transfer > 1 else b""
    slot, _ = engine.submit(entry, transfer, data, length)
    pdu = parse(engine.output(), digests)[1]
    assert pdu.kind == COMMAND
    sent = pdu.header[8:]
    assert sent[2:4] == slot.to_bytes(2, "little")
    assert sent[24:40] == bytes(8) + length.to_bytes(4, "little") + bytes(3) + bytes([sgl])
    assert (sent[0], sent[1], sent[4:24], sent[40:]) == (0, 0x41, entry[4:24], entry[40:])
    assert pdu.data == (BYTES[:512] if transfer == 3 else b"")
    assert bool(pdu.flags & DDGSTF) == (transfer == 3 and digests > 1)


def test_a_response_completes_its_slot() -> None:
    engine = host()
    first, _ = engine.submit(sqe(0))
    second, _ = engine.submit(sqe(0))
    engine.output()
    (event,) = engine.feed([response(second, 0x4002, 0x12345678, 7)])
    assert (event.kind, event.slot, event.data_length) == (COMPLETION, second, 0)
    assert event.entry == response(second, 0x4002, 0x12345678, 7)[8:24]
    (event,) = engine.feed([response(first)])
    assert event.slot == first


def test_a_cid_that_is_kept_goes_to_no_other_command() -> None:
    engine = host(slot_count=2)
    kept, _ = engine.submit(sqe(0))
    engine.output()
    engine.keep(kept)
    (event,) = engine.feed([response(kept)])
    assert (event.kind, event.slot) == (COMPLETION, kept)
    other, _ = engine.submit(sqe(0))
    assert other != kept
    assert engine.submit(sqe(0))[0] == -1
    engine.let_go(kept)
    assert engine.submit(sqe(0))[0] == kept


def test_a_cid_that_is_let_go_before_its_command_has_ended_is_free_when_it_has() -> None:
    engine = host(slot_count=1)
    slot, _ = engine.submit(sqe(0))
    engine.output()
    engine.keep(slot)
    engine.let_go(slot)
    assert engine.submit(sqe(0))[0] == -1
    engine.feed([response(slot)])
    assert engine.submit(sqe(0))[0] == slot


def test_a_second_response_to_a_cid_that_is_kept_is_a_fault() -> None:
    engine = host()
    slot, _ = engine.submit(sqe(0))
    engine.output()
    engine.keep(slot)
    engine.feed([response(slot)])
    (event,) = engine.feed([response(slot)])
    assert event.kind == TERMINATED


def test_no_more_commands_than_slots() -> None:
    engine = host(slot_count=3)
    slots = [engine.submit(sqe(0))[0] for _ in range(4)]
    assert sorted(slots) == [-1, 0, 1, 2]
    engine.output()
    engine.feed([response(1)])
    assert engine.submit(sqe(0))[0] == 1


@pytest.mark.parametrize("digests", range(4))
@pytest.mark.parametrize("success", [False, True])
def test_data_from_the_controller_arrives_in_order(digests: int, success: bool) -> None:
    engine = host(digests, data_alignment=7)
    slot, read = engine.submit(sqe(0), 1, length=1000, sizes=[1, 0, 999])
    engine.output()
    pad = 32 - 24 - 4 * (digests & 1)
    last = LAST | (SUCCESS if success else 0)
    pdus = [
        c2h_data(slot, 0, BYTES[:600], flags=0, digests=digests, pad=pad),
        c2h_data(slot, 600, BYTES[600:1000], flags=last, digests=digests, pad=pad + 32),
    ]
    if not success:
        pdus.append(response(slot, digests=digests))
    (event,) = engine.feed(pdus)
    assert (event.kind, event.slot, event.data_length) == (COMPLETION, slot, 1000)
    assert event.entry[12:16] == bytes([slot, 0, 0, 0])
    assert event.digest_error == 0
    assert read() == BYTES[:1000]


def test_a_shorter_answer_says_how_much_there_was() -> None:
    engine = host()
    slot, _ = engine.submit(sqe(0), 1, length=4096)
    engine.output()
    (event,) = engine.feed([c2h_data(slot, 0, BYTES[:20]) + response(slot)])
    assert event.data_length == 20


def test_data_in_the_capsule_counts_as_transferred() -> None:
    engine = host()
    slot, _ = engine.submit(sqe(0), 3, BYTES[:512])
    engine.output()
    (event,) = engine.feed([response(slot)])
    assert (event.kind, event.data_length) == (COMPLETION, 512)


@pytest.mark.parametrize("success", [False, True])
def test_a_wrong_data_digest_is_told_with_the_completion(success: bool) -> None:
    engine = host(2)
    slot, _ = engine.submit(sqe(0), 1, length=512)
    engine.output()
    flags = LAST | (SUCCESS if success else 0)
    data = c2h_data(slot, 0, BYTES[:512], flags=flags, digests=2, data_digest_xor=1)
    (event,) = engine.feed([data, *([] if success else [response(slot, digests=2)])])
    assert (event.kind, event.digest_error) == (COMPLETION, 1)
    engine.submit(sqe(0), 1, length=512)
    engine.output()
    (event,) = engine.feed([c2h_data(slot, 0, BYTES[:512], digests=2), response(slot, digests=2)])
    assert event.digest_error == 0


@pytest.mark.parametrize("digests", range(4))
def test_an_r2t_is_honoured_in_pieces_of_maxh2cdata(digests: int) -> None:
    engine = host(digests, limit=8192)
    slot, _ = engine.submit(sqe(0), 2, BYTES[:20000], sizes=[5, 0, 19995])
    engine.output()
    engine.feed([r2t(slot, 4711, 0, 20000, digests=digests)])
    pdus = parse(engine.output(), digests)
    assert [(pdu.kind, pdu.cid, pdu.ttag) for pdu in pdus] == [(H2C_DATA, slot, 4711)] * 3
    assert [pdu.offset for pdu in pdus] == [0, 8192, 16384]
    assert [pdu.length for pdu in pdus] == [8192, 8192, 3616]
    assert [pdu.flags & LAST for pdu in pdus] == [0, 0, LAST]
    assert b"".join(pdu.data for pdu in pdus) == BYTES[:20000]
    (event,) = engine.feed([response(slot, digests=digests)])
    assert (event.kind, event.data_length) == (COMPLETION, 20000)


@pytest.mark.parametrize("max_r2t", range(4))
def test_r2ts_up_to_the_limit_are_honoured_in_order(max_r2t: int) -> None:
    engine = host(max_r2t=max_r2t)
    slot, _ = engine.submit(sqe(0), 2, BYTES[:600])
    engine.output()
    count = max_r2t + 1
    engine.feed([r2t(slot, 50 + n, n * 100, 100) for n in range(count)])
    pdus = parse(engine.output(step=9))
    assert [(pdu.ttag, pdu.offset) for pdu in pdus] == [(50 + n, n * 100) for n in range(count)]
    engine.feed([r2t(slot, 99, count * 100, 600 - count * 100)])
    pdus += parse(engine.output())
    assert b"".join(pdu.data for pdu in pdus) == BYTES[:600]
    assert all(pdu.flags & LAST for pdu in pdus)


def test_an_r2t_before_the_capsule_has_left_waits_for_it() -> None:
    engine = host()
    slot, _ = engine.submit(sqe(0), 2, BYTES[:100])
    engine.feed([r2t(slot, 5, 0, 100)])
    assert [pdu.kind for pdu in parse(engine.output(step=11))] == [COMMAND, H2C_DATA]


def test_writes_take_turns() -> None:
    engine = host(limit=4096)
    slots = [engine.submit(sqe(0), 2, BYTES[:12288])[0] for _ in range(2)]
    engine.output()
    engine.feed([r2t(slot, slot, 0, 12288) for slot in slots])
    assert [pdu.cid for pdu in parse(engine.output())] == slots * 3


@pytest.mark.parametrize("sent", [0, 1, 23, 24, 2000, 4119])
def test_a_completion_waits_for_the_pdu_that_is_being_sent(sent: int) -> None:
    engine = host(limit=4096)
    slot, _ = engine.submit(sqe(0), 2, BYTES[:12288])
    engine.output()
    engine.feed([r2t(slot, 1, 0, 12288)])
    engine.iovecs()
    engine.sent(sent)
    assert engine.feed([response(slot, 7)]) == []
    assert len(engine.output()) == 24 + 4096 - sent, "this PDU is finished, no other begun"
    assert [(event.kind, event.slot) for event in engine.events()] == [(COMPLETION, slot)]
    assert engine.submit(sqe(0))[0] == slot


def test_output_sent_in_pieces_of_any_size_is_the_same() -> None:
    streams = set()
    for step in (1, 2, 3, 24, 76, 77, 1000, None):
        engine: Engine = host(3, limit=4096)
        engine.submit(sqe(0), 3, BYTES[:777], sizes=[1, 0, 776])
        engine.submit(sqe(0), 1, length=10)
        slot, _ = engine.submit(sqe(0), 2, BYTES[:9000])
        stream = engine.output(step, 2)
        engine.feed([r2t(slot, 3, 0, 9000, digests=3)])
        streams.add(stream + engine.output(step, 1))
    assert len(streams) == 1
