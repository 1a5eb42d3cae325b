from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from workload_support import CONVERSATION, workload_of

from prestage.ext import layout as wire
from prestage.ext.codec import encode_batches
from prestage.ext.records import Intent, Signature
from prestage.replay.generators import Affinity, Sessions, affinity, sessions
from prestage.replay.hint_plans import MAX_RANGES, NSID, Hint, HintPlan, announce, sign
from prestage.replay.traces import load_trace
from prestage.replay.workload import Layout, Workload, place

BLOCKS_PER_SLOT = 16


def layout_of(workload: Workload) -> Layout:
    return place(workload, slot_size=65536, block_size=4096)


def blocks_in(layout: Layout, hint: Hint) -> list[int]:
    """Return the workload's blocks of an intent, in its order."""
    assert isinstance(hint.record, Intent) and hint.record.nsid == NSID
    return [
        int(layout.block_of_extent[slba // BLOCKS_PER_SLOT])
        for each in hint.record.ranges
        for slba in range(each.slba, each.slba + each.nlb, BLOCKS_PER_SLOT)
    ]


def intents(hints: list[Hint]) -> list[Intent]:
    return [hint.record for hint in hints if isinstance(hint.record, Intent)]


def test_an_intent_says_what_its_request_will_read_and_when() -> None:
    workload = workload_of((0, [1, 2]), (10, [2, 1, 3]), (20, [3, 2]))
    layout = layout_of(workload)
    hints = announce(workload, layout, HintPlan(lead_s=4))
    assert [hint.time_s for hint in hints] == [6.0, 16.0]
    assert [blocks_in(layout, hint) for hint in hints] == [[1, 0], [2, 1]]
    first, second = intents(hints)
    assert (first.deadline_us, first.session, first.intent_id) == (4_000_000, 2, 1)
    assert (second.session, second.intent_id) == (3, 2)


def test_what_is_written_after_the_hint_is_not_announced() -> None:
    workload = workload_of((0, [1]), (9, [2]), (10, [1, 2]))
    layout = layout_of(workload)
    assert [blocks_in(layout, each) for each in announce(workload, layout, HintPlan(4))] == [[0]]
    assert announce(workload, layout, HintPlan(30)) == []


def test_what_was_there_before_is_announced_from_the_beginning() -> None:
    workload = workload_of((5, [9]), (7, [1]), writes=[[True], [False]])
    layout = layout_of(workload)
    (hint,) = announce(workload, layout, HintPlan(60))
    assert (hint.time_s, blocks_in(layout, hint)) == (5.0, [1])
    assert intents([hint])[0].deadline_us == 2_000_000


def test_a_long_chain_takes_several_intents_that_fit_a_batch_each() -> None:
    chain = list(range(2 * MAX_RANGES + 20))
    workload = workload_of((0, chain), (10, chain))
    layout = layout_of(workload)
    hints = announce(workload, layout, HintPlan(2))
    assert len(hints) == 3
    announced = [block for hint in hints for block in blocks_in(layout, hint)]
    assert announced == workload.blocks_of(1).tolist()
    assert len({record.intent_id for record in intents(hints)}) == 3
    batches = list(encode_batches([hint.record for hint in hints], writer=1, sequence=1))
    assert all(len(batch) <= wire.MAX_BATCH_BYTES for batch in batches)


@pytest.mark.parametrize("seed", range(3))
def test_as_large_a_share_is_announced_as_the_plan_says(seed: int) -> None:
    workload = sessions(seed, Sessions(requests=2000))
    layout = layout_of(workload)
    everything = announce(workload, layout, HintPlan(2))
    half = announce(workload, layout, HintPlan(2, share=0.5, seed=seed))
    assert len(half) == pytest.approx(len(everything) / 2, rel=0.1)
    assert announce(workload, layout, HintPlan(2, share=0)) == []


def test_leads_vary_about_their_median() -> None:
    workload = sessions(1, Sessions(requests=3000))
    hints = announce(workload, layout_of(workload), HintPlan(2, lead_sigma=1.0))
    lead_s = np.array([each.deadline_us for each in intents(hints)]) / 1e6
    assert np.median(lead_s) == pytest.approx(2, rel=0.1)
    assert np.log(lead_s).std() == pytest.approx(1, rel=0.1)
    assert [hint.time_s for hint in hints] == sorted(hint.time_s for hint in hints)


def test_false_hints_are_chains_of_the_past_and_as_many_as_said() -> None:
    workload = load_trace(CONVERSATION, seed=1)
    layout = layout_of(workload)
    plan = HintPlan(lead_s=2, false_per_true=1.0)
    hints = announce(workload, layout, plan)
    true = [hint for hint in hints if hint.tenant == 0]
    false = [hint for hint in hints if hint.tenant == workload.tenants]
    assert true and 0.8 * len(true) < len(false) <= 1.2 * len(true)
    stored_s = dict(zip(workload.block[::-1].tolist(), workload.time_s[::-1].tolist(), strict=True))
    reading = np.unique(workload.request[~workload.is_write])
    first_s: dict[int, float] = {}
    for request in reading.tolist():
        session = int(workload.request_session[request])
        first_s.setdefault(session, float(workload.request_time_s[request]))
    for hint, record in zip(false, intents(false), strict=True):
        blocks = blocks_in(layout, hint)
        assert blocks and all(stored_s[block] < hint.time_s for block in blocks)
        assert first_s[record.session - 1] < hint.time_s, "nobody had asked for it"
    alone = announce(workload, layout, replace(plan, false_per_true=0))
    assert [hint.time_s for hint in alone] == [hint.time_s for hint in true]
    mixed = announce(workload, layout, replace(plan, false_apart=False))
    assert {hint.tenant for hint in mixed} == {0} and len(mixed) == len(hints)


def test_a_plan_repeats_by_its_seed() -> None:
    workload = sessions(1, Sessions(requests=500))
    layout = layout_of(workload)
    plan = HintPlan(2, lead_sigma=0.5, share=0.5, false_per_true=1, seed=3)
    assert announce(workload, layout, plan) == announce(workload, layout, plan)
    assert announce(workload, layout, plan) != announce(workload, layout, replace(plan, seed=4))


def test_each_block_is_signed_when_it_is_stored() -> None:
    workload = affinity(1, Affinity(requests=50))
    layout = layout_of(workload)
    hints = sign(workload, layout)
    assert workload.signature is not None
    assert len(hints) == workload.block_count
    for hint in hints[::37]:
        record = hint.record
        assert isinstance(record, Signature) and record.nlb == BLOCKS_PER_SLOT
        block = int(layout.block_of_extent[record.slba // BLOCKS_PER_SLOT])
        assert int.from_bytes(record.vector, "little") == int(workload.signature[block])
        position = int(np.flatnonzero(workload.block == block)[0])
        assert hint.time_s == workload.time_s[position] and workload.is_write[position]
    assert sign(workload_of((0, [1])), layout_of(workload_of((0, [1])))) == []
