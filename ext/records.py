"""The records of a batch and the answers to them, as values (specification, clauses 5.2 and 5.4).

Units stand in the names; sizes of ranges are logical blocks of their namespace (`nlb` is not
0-based). Ids are 64-bit numbers of the tenant, `tag` is a 32-bit number that comes back in answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .layout import READY_NEVER
from .names import (
    CancelWhat,
    IntentFlag,
    OutcomeFlag,
    Reason,
    RecordType,
    SetFlag,
    SetOp,
    State,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Range:
    """Blocks `slba` to `slba + nlb - 1` of a namespace."""

    slba: int
    nlb: int


@dataclass(frozen=True, slots=True)
class SetRecord:
    """These ranges of one namespace belong together (5.2.3).

    `ttl_ms` is how long the target remembers the set; 0: as long as it may.
    """

    set_id: int
    nsid: int
    ranges: tuple[Range, ...] = ()
    op: SetOp = SetOp.DEFINE
    flags: SetFlag = SetFlag.NONE
    ttl_ms: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """A locality signature of a range (5.2.4): `vector` is 8 or 16 bytes, lowest bits first.

    Distances mean something between vectors of one `family` only.
    """

    nsid: int
    slba: int
    nlb: int
    vector: bytes
    family: int = 0
    ttl_ms: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Intent:
    """Ranges, or a set, are needed `deadline_us` after the batch arrives (5.2.5).

    Either `set_id` or `ranges` of `nsid`. `priority` is 0 (urgent) to 3 (low), `confidence` is
    1 to 100 percent, 0: not said. `session` is opaque, 0: none.
    """

    intent_id: int
    deadline_us: int
    nsid: int = 0
    ranges: tuple[Range, ...] = ()
    set_id: int = 0
    session: int = 0
    priority: int = 2
    confidence: int = 0
    flags: IntentFlag = IntentFlag.NONE
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Retain:
    """Keep what is warm of ranges, or of a set, for `duration_ms` (5.2.6)."""

    duration_ms: int
    nsid: int = 0
    ranges: tuple[Range, ...] = ()
    set_id: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Withdraw an intent (`id`), a session's intents (`id`), or all (5.2.7)."""

    what: CancelWhat
    id: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Residency:
    """Ask how much of ranges, or of a set, is warm (5.2.8)."""

    nsid: int = 0
    ranges: tuple[Range, ...] = ()
    set_id: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Ask what became of an intent (5.2.9)."""

    intent_id: int
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A record, or an answer, of a type that this version does not define: skipped (9.3)."""

    type: int
    body: bytes = b""
    tag: int = 0


Record = SetRecord | Signature | Intent | Retain | Cancel | Residency | Outcome | Unknown

TYPES: Final[dict[type, RecordType]] = {
    SetRecord: RecordType.SET,
    Signature: RecordType.SIGNATURE,
    Intent: RecordType.INTENT,
    Retain: RecordType.RETAIN,
    Cancel: RecordType.CANCEL,
    Residency: RecordType.RESIDENCY,
    Outcome: RecordType.OUTCOME,
}


@dataclass(frozen=True, slots=True)
class ResidencyAnswer:
    """How much is warm (5.4.4); with a `reason` there is no answer, and all else is zero.

    `ready_us` is the time until what is coming is warm, READY_NEVER: not known.
    """

    total_bytes: int = 0
    warm_bytes: int = 0
    coming_bytes: int = 0
    ready_us: int = 0
    reason: Reason = Reason.NONE
    tag: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeAnswer:
    """What became of an intent (5.4.5). Times count from the arrival of the intent."""

    intent_id: int
    total_bytes: int = 0
    admitted_bytes: int = 0
    warm_bytes: int = 0
    predicted_us: int = 0
    ready_us: int = READY_NEVER
    state: State = State.UNKNOWN
    verdict: Verdict = Verdict.NONE
    reason: Reason = Reason.NONE
    flags: OutcomeFlag = OutcomeFlag.NONE
    tag: int = 0


Answer = ResidencyAnswer | OutcomeAnswer | Unknown
