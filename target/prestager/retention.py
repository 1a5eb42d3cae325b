"""What extents are worth: scores and return times of groups, and the tables that follow."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, CLASSES, age_bins
from prestage.target.prestager.classes import STRATUM, queue_classes, value_classes
from prestage.target.prestager.extents import I64, WAS_FETCHED, ExtentMap
from prestage.target.prestager.formation import Bools, Touches
from prestage.target.prestager.groups import LIVE, Groups
from prestage.target.prestager.hazard import F64, ReturnHazard
from prestage.target.prestager.intake import Evictions
from prestage.target.prestager.prices import VICTIM_SHARE, Prices, hold_index, outlook
from prestage.target.prestager.score import ReturnScore, strata
from prestage.target.prestager.shadow import Sampled, Shadows
from prestage.target.prestager.tables import LEARNED, POLICIES, in_force, lru_table, mq_table

__all__ = ["Retention"]

RECENT_S: Final = 1200.0
"""Groups touched so lately say how scores are spread."""
TOLD_SHARE: Final = 1 / 4096
"""Of the share of reads that hints bring in, that one more moves it."""
MOSTLY: Final = 0.5
DEEPER_S: Final = 1e-7
"""By which an extent counts as older than the one before it in its chain."""
MQ_LIVES: Final = 2.0
"""MQ's life time, as a multiple of the age of what is evicted."""


class Retention:
    """Rates groups, and says by which table the tier evicts."""

    def __init__(
        self, extents: ExtentMap, groups: Groups, *,
        frame_count: int, half_life_s: float, flash_floor: float, least_chance: float,
        acted_share: float,
    ) -> None:  # fmt: skip
        """`acted_share` of what is worth a fetch is fetched; the rest is held out."""
        self._extents = extents
        self._groups = groups
        self.score = ReturnScore(half_life_s)
        self.hazard = ReturnHazard(half_life_s=half_life_s)
        self.prices = Prices(flash_floor=flash_floor)
        self.shadows = Shadows(POLICIES, frame_count, half_life_s)
        self._told = 0.0
        """The share of reads that hints bring in anyway, as of late."""
        self._class_scores = np.zeros(CLASSES)
        chances = self.score.chances(self._class_scores, STRATUM)
        self._least_chance, self._acted_share = least_chance, acted_share
        self.outlook = outlook(chances, 0.0, flash_floor, least_chance)
        self.life_s = 60.0
        """How old victims are, as of late."""
        self._margins = dict.fromkeys(POLICIES, 0.0)
        """What victims are worth by each table, as of late."""
        self._tables: dict[str, F64] = {}
        self._set_tables(hold_index(chances))

    # ---- learning ----

    def see_returns(self, numbers: I64, times_s: F64) -> None:
        """Groups came back; their records are still as they were."""
        ages_s = times_s - self._groups.touched_s[numbers]
        self.hazard.add_returns(self._groups.value_class[numbers], age_bins(ages_s))
        self.score.see_returns(self._groups, numbers, times_s)

    def see_touches(self, touches: Touches, is_told: Bools, now_s: float) -> None:
        """Extents were touched: rate their groups anew.

        Where hints bring in most of what is read anyway (`is_told`), what a policy would have had
        says little of what it is worth, and the learned one knows of hints.
        """
        is_read = ~touches.is_write
        told, reads = int(np.sum(is_told & is_read)), int(np.sum(is_read))
        share = 1 - (1 - TOLD_SHARE) ** reads
        self._told += share * (told / max(reads, 1) - self._told)
        self.shadows.is_bound = self._told > MOSTLY
        groups, number = self._groups, touches.groups
        scores = self.score.scores(groups, number)
        groups.score[number] = scores
        stratum = strata(groups, number)
        bucket = self.score.buckets(stratum, scores)
        groups.value_class[number] = value_classes(
            stratum, bucket, groups.gap_s[number], groups.touches[number]
        )
        self._try_policies(touches, is_told, now_s)

    def _try_policies(self, touches: Touches, is_told: Bools, now_s: float) -> None:
        groups = self._groups
        owner = np.maximum(self._extents.group[touches.rows], 0)
        keys = self._extents.key[touches.rows]
        # As the tier is told: all of a group are as old, and of these the deepest goes first.
        depth = self._extents.position[touches.rows]
        times_s = groups.touched_s[owner] - DEEPER_S * depth
        learned, queue = groups.value_class[owner], queue_classes(groups.touches[owner])
        classes = {"lru": learned, "mq": queue, LEARNED: learned}
        was_fetched = self._extents.marks[touches.rows] & WAS_FETCHED != 0
        is_kept = touches.is_hit & ~was_fetched
        seen = Sampled(
            keys, times_s, np.full(len(keys), now_s), ~touches.is_write, touches.is_hit,
            is_kept, is_told,
        )  # fmt: skip
        self.shadows.see(seen, classes, self._tables)

    def see_victims(self, gone: Evictions) -> None:
        """Extents were evicted: what they were worth is what a frame costs."""
        read = ~gone.is_unread
        if not read.any():
            return
        ages_s = gone.ages_s[read]
        where = (gone.classes[read], age_bins(ages_s))
        self.prices.see_victims(self.outlook.keep[where])
        share = 1 - (1 - VICTIM_SHARE) ** len(ages_s)
        self.life_s += share * (float(ages_s.mean()) - self.life_s)
        for policy, table in self._tables.items():
            worth = float(table[where].mean())
            self._margins[policy] += share * (worth - self._margins[policy])

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        self.hazard.fade(elapsed_s)
        self.score.fade(elapsed_s)
        self.shadows.fade(elapsed_s)

    # ---- deciding ----

    def refresh(self, now_s: float) -> NDArray[np.float32]:
        """Look at all groups, and return the value table that is to be in force."""
        chances, prices = self._chances(now_s), self.prices
        self.outlook = outlook(
            chances, prices.memory, prices.flash, self._least_chance, self._acted_share
        )
        self._set_tables(hold_index(chances))
        policy = self.shadows.choose(now_s)
        table, margin = self._tables[policy], self._margins[policy]
        if policy == LEARNED:
            table, margin = self.outlook.keep, self.prices.memory
        values = in_force(table, margin, self.prices.memory)
        # Victims may be worth nearly nothing, and all else then more than these numbers can say.
        return np.minimum(values, np.finfo(np.float32).max).astype(np.float32)

    def classes_in_force(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        """Return the classes of groups that the table in force is about."""
        if self.shadows.chosen == "mq":
            return queue_classes(self._groups.touches[numbers])
        return np.asarray(self._groups.value_class[numbers], np.uint8)

    def _set_tables(self, held: F64) -> None:
        # A shadow fetches nothing: what is let go there to be fetched later would be lost.
        mq = mq_table(MQ_LIVES * self.life_s)
        self._tables = {"lru": lru_table(), "mq": mq, LEARNED: held}

    def _chances(self, now_s: float) -> F64:
        """Return the chances of a return by class and age, after a look at all that wait."""
        groups = self._groups
        number = groups.live()
        self.score.see_waiting(groups, number, np.full(len(number), now_s))
        self.score.update_rates()
        own = number[groups.kind[number] == LIVE]
        recent = own[now_s - groups.touched_s[own] < RECENT_S]
        self.score.update_cuts(strata(groups, recent), groups.score[recent])
        classes = groups.value_class[number].astype(np.int64)
        where = classes * AGE_BINS + age_bins(now_s - groups.touched_s[number])
        waiting: F64 = np.bincount(where, minlength=CLASSES * AGE_BINS).astype(np.float64)
        count = np.bincount(classes, minlength=CLASSES)
        total = np.bincount(classes, groups.score[number], minlength=CLASSES)
        seen = count > 0
        self._class_scores[seen] = total[seen] / count[seen]
        expected = self.score.chances(self._class_scores, STRATUM)
        return self.hazard.chances(waiting.reshape(CLASSES, AGE_BINS), expected)
