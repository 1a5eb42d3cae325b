from __future__ import annotations

import numpy as np

from prestage.target.prestager.ledger import Gate, Ledger, Source

SEED = 5


DEADLINE_S = 10.0


def add(
    ledger: Ledger, chances: list[float], *, size: int = 1, acted: bool = True, now_s: float = 0.0
) -> np.ndarray:
    count = len(chances)
    slots, _, _ = ledger.add(
        Source.RETURN,
        np.arange(count),
        np.full(count, size),
        np.array(chances),
        np.full(count, now_s + DEADLINE_S),
        np.full(count, acted),
        np.ones(count, bool),
        now_s,
    )
    return slots


def end(ledger: Ledger, slots: np.ndarray, came: np.ndarray) -> None:
    """Let predictions come that do, all at once, and the others reach their deadline."""
    ledger.see_hits(came, np.ones(len(came), bool))
    ledger.end(came, is_used=True)
    ledger.charge(float(ledger.deadline_s[slots].max()))
    ledger.end(np.setdiff1d(slots, came), is_used=False)


def made(capacity: int = 4096) -> Ledger:
    return Ledger(capacity, 1e9, (0.5, 0.3))


def test_a_prediction_ends_in_time_late_or_expired_by_extents() -> None:
    ledger = made()
    slots = add(ledger, [0.5, 0.5], size=4)
    ledger.see_hits(np.repeat(slots[:1], 4), np.array([True, True, True, False]))
    ended = ledger.end(slots[:1], is_used=True)
    assert ended.hits.tolist() == [3] and ended.is_used.all() and ended.is_acted.all()
    assert ledger.due(9.0).tolist() == [] and ledger.due(10.0).tolist() == slots[1:].tolist()
    ledger.end(slots[1:], is_used=False)
    report = ledger.report()[Source.RETURN]
    assert (report.predictions, report.predicted, report.issued) == (2, 8, 8)
    assert (report.in_time, report.late, report.expired) == (3, 1, 4)
    assert report.precision == 3 / 8


def test_what_is_not_acted_on_counts_for_calibration_and_not_for_what_was_issued() -> None:
    ledger = made()
    slots = add(ledger, [0.9] * 50, acted=False)
    ledger.see_hits(slots, np.zeros(50, bool))
    ledger.end(slots, is_used=True)
    report = ledger.report()[Source.RETURN]
    assert (report.issued, report.in_time, report.late) == (0, 0, 0)
    assert ledger.precision(Source.RETURN)[0] > 0.8


def test_a_source_begins_in_doubt_and_is_opened_and_closed_by_what_comes() -> None:
    ledger = made()
    assert ledger.gate(Source.RETURN) == Gate.PROBE
    slots = add(ledger, [0.5] * 100)
    ledger.see_hits(slots[:80], np.ones(80, bool))
    ledger.end(slots[:80], is_used=True)
    assert ledger.gate(Source.RETURN) == Gate.OPEN
    ledger.end(slots[80:], is_used=False)
    ledger.end(add(ledger, [0.5] * 100), is_used=False)
    assert ledger.gate(Source.RETURN) == Gate.LIMITED
    ledger.end(add(ledger, [0.5] * 400), is_used=False)
    assert ledger.gate(Source.RETURN) == Gate.PROBE
    assert ledger.gate(Source.SUCCESSOR) == Gate.PROBE


def test_what_was_acted_on_and_is_late_each_time_closes_its_source() -> None:
    ledger = made()
    for _ in range(60):
        slots = add(ledger, [0.9])
        ledger.see_hits(slots, np.zeros(1, bool))
        ledger.end(slots, is_used=True)
        ledger.charge(DEADLINE_S)
    assert ledger.gate(Source.RETURN) == Gate.PROBE
    assert ledger.calibrated(Source.RETURN, np.array([0.9]))[0] > 0.85  # it was right all the same


def test_chances_that_come_true_as_said_are_calibrated() -> None:
    rng = np.random.default_rng(SEED)
    ledger = made()
    chances = rng.random(4000)
    slots = add(ledger, chances.tolist())
    came = slots[rng.random(4000) < chances]
    end(ledger, slots, came)
    assert ledger.calibration_error(Source.RETURN) < 0.03, f"seed {SEED}"
    asked = np.array([0.15, 0.75])
    assert np.allclose(ledger.calibrated(Source.RETURN, asked), asked, atol=0.05)


def test_chances_that_are_said_too_high_are_corrected() -> None:
    ledger = made()
    slots = add(ledger, [0.85] * 1000)
    end(ledger, slots, slots[:200])
    assert ledger.calibrated(Source.RETURN, np.array([0.85]))[0] < 0.25
    assert ledger.calibration_error(Source.RETURN) > 0.6
    ledger.fade(1e12)
    assert ledger.calibrated(Source.RETURN, np.array([0.85]))[0] > 0.8


def test_chances_are_right_while_more_and_more_is_predicted() -> None:
    """What comes ends before its deadline, and what does not ends at it."""
    rng = np.random.default_rng(SEED)
    ledger = made(1 << 16)
    due_s = np.full(1 << 16, np.inf)
    for step in range(60):
        now_s = step / 2
        ledger.charge(now_s)
        come = np.flatnonzero(due_s <= now_s)
        due_s[come] = np.inf
        ledger.see_hits(come, np.ones(len(come), bool))
        ledger.end(come, is_used=True)
        ledger.end(ledger.due(now_s), is_used=False)
        slots = add(ledger, [0.55] * 20 * (1 + step), now_s=now_s)
        comes = slots[rng.random(len(slots)) < 0.55]
        due_s[comes] = now_s + DEADLINE_S * rng.random(len(comes))
        if step >= 20:
            found = ledger.calibrated(Source.RETURN, np.array([0.55]))[0]
            assert abs(found - 0.55) < 0.1, f"seed {SEED}, step {step}: {found}"


def test_what_gives_way_has_been_promised_to_its_end() -> None:
    ledger = made(8)
    for _ in range(40):
        add(ledger, [0.75] * 8)
    assert ledger.calibrated(Source.RETURN, np.array([0.75]))[0] < 0.05


def test_what_is_judged_are_chances_as_they_are_acted_on() -> None:
    rng = np.random.default_rng(SEED)
    ledger = made()
    for _ in range(20):  # it says .85, and a fifth of it comes
        slots = add(ledger, [0.85] * 200)
        came = slots[rng.random(200) < 0.2]
        end(ledger, slots, came)
    assert ledger.calibration_error(Source.RETURN) < 0.08, f"seed {SEED}: the first 200 count"
    assert ledger.calibration_error() == ledger.calibration_error(Source.RETURN)
    *late, early = ledger.curve()
    assert early.predicted > 0.8 and early.count == 200
    assert sum(each.count for each in late) == 3800
    assert all(0.1 < each.predicted < 0.3 for each in late)


def test_sources_do_not_make_up_for_each_other() -> None:
    ledger = made()
    for source, is_used in ((Source.RETURN, True), (Source.SUCCESSOR, False)):
        ones = np.ones(100, int)
        slots, _, _ = ledger.add(
            source,
            np.arange(100),
            ones,
            np.full(100, 0.5),
            np.full(100, 10.0),
            ones > 0,
            ones > 0,
            0.0,
        )
        ledger.see_hits(slots[: 100 * is_used], np.ones(100 * is_used, bool))
        ledger.end(slots, is_used=is_used)
    assert ledger.calibration_error() > 0.45
    (both,) = ledger.curve()
    assert both.predicted == both.realised == 0.5


def test_the_oldest_gives_way_when_all_slots_are_taken() -> None:
    ledger = made(8)
    add(ledger, [0.5] * 6)
    _, ended, left = ledger.add(
        Source.RETURN, np.arange(10, 14), np.ones(4, int), np.full(4, 0.5), np.full(4, 10.0),
        np.ones(4, bool), np.ones(4, bool), 0.0,
    )  # fmt: skip
    assert left.tolist() == [0, 1] and not ended.is_used.any()
