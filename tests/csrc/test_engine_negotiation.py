"""ICReq and ICResp: what is agreed, what is refused, and where the fault is said to be."""

from __future__ import annotations

import struct

import pytest
from engine_support import (
    C2H_TERM,
    CONNECTED,
    EV_COMMAND,
    H2C_TERM,
    ICREQ,
    ICRESP,
    TERMINATED,
    Engine,
    command,
    icreq,
    icresp,
    parse,
    sqe,
    target,
)

from prestage._engine import ffi, lib


@pytest.mark.parametrize("asked", range(4))
@pytest.mark.parametrize("allowed", range(4))
def test_only_digests_asked_and_allowed_are_granted(asked: int, allowed: int) -> None:
    engine = Engine(digests=allowed)
    engine.feed([icreq(digests=asked)])
    (answer,) = parse(engine.output())
    assert answer.kind == ICRESP
    assert answer.header[11] == asked & allowed
    assert lib.ps_engine_digests(engine.engine) == asked & allowed


def test_icresp_announces_no_padding_and_maxh2cdata() -> None:
    engine = Engine(max_h2c_data=12288)
    engine.feed([icreq(maxr2t=0xFFFFFFFF)])
    stream = engine.output()
    assert len(stream) == 128
    assert stream == struct.pack("<BBBBIHBBI", ICRESP, 0, 128, 0, 128, 0, 0, 0, 12288).ljust(
        128, b"\0"
    )


def test_reserved_digest_bits_are_ignored() -> None:
    engine = Engine(digests=3)
    engine.feed([icreq(digests=0xFF)])
    (answer,) = parse(engine.output())
    assert answer.header[11] == 3


@pytest.mark.parametrize("hpda", range(32))
def test_every_legal_hpda_aligns_c2hdata(hpda: int) -> None:
    for digests in range(4):
        engine = target(digests, hpda=hpda)
        (event,) = engine.feed([command(sqe(3), digests=digests)])
        engine.respond(event.slot, data=b"x" * 100)
        data, answer = parse(engine.output(), digests)
        smallest = 24 + 4 * (digests & 1)
        assert data.pdo % ((hpda + 1) * 4) == 0
        assert smallest <= data.pdo < smallest + (hpda + 1) * 4
        assert data.data == b"x" * 100
        assert answer.cid == 3


@pytest.mark.parametrize(("hpda", "pdo"), [(1, 24), (3, 32), (31, 128)])
def test_pdo_is_a_multiple_of_hpda_plus_one_dwords(hpda: int, pdo: int) -> None:
    engine = target(hpda=hpda)
    (event,) = engine.feed([command(sqe(3))])
    engine.respond(event.slot, data=b"x")
    assert parse(engine.output())[0].pdo == pdo


def test_icreq_and_connect_in_one_segment_are_both_read() -> None:
    engine = Engine()
    events = engine.feed([icreq() + command(sqe(1, sgl=1, length=1024), b"c" * 1024)])
    assert [event.kind for event in events] == [CONNECTED, EV_COMMAND]
    assert events[1].data_length == 1024


def test_half_an_icreq_says_nothing() -> None:
    engine = Engine()
    assert engine.feed([icreq()[:64]]) == []
    assert engine.output() == b""


@pytest.mark.parametrize(
    ("request_", "fes", "fei"),
    [
        (icreq(pfv=1), 1, 8),
        (icreq(pfv=0x100), 1, 8),
        (icreq(hpda=32), 1, 10),
        (icreq(hpda=255), 1, 10),
        (icreq(plen=136), 1, 4),
        (icreq(plen=0), 1, 4),
        (icreq(plen=127), 1, 4),
        (icreq(hlen=64), 1, 2),
        (icreq(hlen=129), 1, 2),
        (command(sqe(1)), 2, 0),
        (icresp(), 2, 0),
        (b"\x0b" + icreq()[1:], 2, 0),
        (b"\xff" * 128, 2, 0),
        (icreq() + icreq(), 2, 0),
    ],
)
def test_a_wrong_first_pdu_is_answered_by_a_c2htermreq(request_: bytes, fes: int, fei: int) -> None:
    engine = Engine()
    events = engine.feed([request_ + icreq() + command(sqe(1))])
    assert events[-1].kind == TERMINATED
    assert (events[-1].fes, events[-1].fei, events[-1].from_peer) == (fes, fei, 0)
    answer = parse(engine.output())[-1]
    assert (answer.kind, answer.fes, answer.fei) == (C2H_TERM, fes, fei)
    assert answer.data in (request_[:8], request_[:128], request_[128:136])
    assert len(answer.data) <= 128


def test_the_icresp_comes_before_the_term_for_a_second_icreq() -> None:
    engine = Engine()
    engine.feed([icreq() + icreq()])
    assert [pdu.kind for pdu in parse(engine.output(step=7))] == [ICRESP, C2H_TERM]


def test_a_host_asks_for_what_it_was_configured_with() -> None:
    engine = Engine(role=1, digests=2, max_r2t=3, data_alignment=5)
    (request,) = parse(engine.output())
    assert request.header == struct.pack("<BBBBIHBBI", ICREQ, 0, 128, 0, 128, 0, 5, 2, 3).ljust(
        128, b"\0"
    )


@pytest.mark.parametrize(
    ("response", "fes", "fei"),
    [
        (icresp(pfv=1), 1, 8),
        (icresp(cpda=1), 1, 10),
        (icresp(digests=0), 1, 11),
        (icresp(digests=3), 1, 11),
        (icresp(digests=1, limit=4092), 1, 12),
        (icresp(digests=1, limit=4098), 1, 12),
        (icresp(digests=1, limit=0), 1, 12),
        (icresp(digests=1, plen=132), 1, 4),
        (icresp(digests=1, hlen=24), 1, 2),
        (icreq(), 2, 0),
        (icresp(digests=1) * 2, 2, 0),
    ],
)
def test_a_host_refuses_an_icresp_it_cannot_live_with(response: bytes, fes: int, fei: int) -> None:
    engine = Engine(role=1, digests=1)
    engine.output()
    events = engine.feed([response])
    assert events[-1].kind == TERMINATED
    assert (events[-1].fes, events[-1].fei, events[-1].from_peer) == (fes, fei, 0)
    (term,) = parse(engine.output())
    assert (term.kind, term.fes, term.fei) == (H2C_TERM, fes, fei)


def test_a_host_cannot_submit_before_the_negotiation_or_after_the_end() -> None:
    engine = Engine(role=1)
    assert engine.submit(sqe(0))[0] == -1
    engine.feed([icresp()])
    assert engine.submit(sqe(0))[0] >= 0
    lib.ps_engine_terminate(engine.engine, 1, 2)
    assert engine.submit(sqe(0))[0] == -1


@pytest.mark.parametrize(
    "change",
    [
        {"role": 2},
        {"slot_count": 0},
        {"slot_count": 4097},
        {"max_h2c_data": 4095},
        {"max_h2c_data": 4098},
        {"max_h2c_data": 0},
        {"max_h2c_data": (16 << 20) + 4},
        {"digests": 4},
        {"role": 1, "max_r2t": 4},
        {"role": 1, "data_alignment": 32},
    ],
)
def test_a_configuration_out_of_range_is_refused(change: dict[str, int]) -> None:
    fields = {"slot_count": 4, "max_h2c_data": 4096, "in_capsule_size": 8192, **change}
    config = ffi.new("struct ps_engine_config *", fields)
    memory = ffi.new("uint64_t[]", 1 << 18)
    assert lib.ps_engine_size(config) == 0
    assert lib.ps_engine_init(memory, config) == ffi.NULL


def test_an_engine_needs_little_memory() -> None:
    config = ffi.new("struct ps_engine_config *", {"slot_count": 4096, "max_h2c_data": 4096})
    assert lib.ps_engine_size(config) <= 4096 * (320 + 8) + 1024
