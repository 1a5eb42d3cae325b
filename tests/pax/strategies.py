"""Records at random, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from prestage.ext.codec import encode_batch
from prestage.ext.names import CancelWhat, IntentFlag, SetFlag, SetOp
from prestage.ext.records import (
    Cancel,
    Intent,
    Outcome,
    Range,
    Record,
    Residency,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
U64 = st.integers(0, 0xFFFFFFFFFFFFFFFF)
ID = st.integers(1, 0xFFFFFFFFFFFFFFFF)
RANGE = st.builds(Range, slba=U64, nlb=st.integers(1, 0xFFFFFFFF))
RANGES = st.lists(RANGE, min_size=1, max_size=5).map(tuple)
WHERE = st.one_of(
    st.fixed_dictionaries({"nsid": U32, "ranges": RANGES}),
    st.fixed_dictionaries({"nsid": U32, "set_id": ID}),
)


def _intent(where: dict[str, object], **fields: object) -> Intent:
    return Intent(**where, **fields)  # type: ignore[arg-type] # the strategies have the types


def _retain(where: dict[str, object], **fields: object) -> Retain:
    return Retain(**where, **fields)  # type: ignore[arg-type] # the strategies have the types


def _residency(where: dict[str, object], **fields: object) -> Residency:
    return Residency(**where, **fields)  # type: ignore[arg-type] # the strategies have the types


def known_records() -> SearchStrategy[Record]:
    """Well-formed records of the types that this version defines."""
    set_id = st.integers(1, 0x7FFFFFFFFFFFFFFF)
    set_flags = st.integers(0, 255).map(SetFlag)
    sets = st.builds(
        SetRecord,
        set_id=set_id,
        nsid=U32,
        ranges=RANGES,
        op=st.sampled_from([SetOp.DEFINE, SetOp.EXTEND]),
        flags=set_flags,
        ttl_ms=U32,
        tag=U32,
    )
    drops = st.builds(SetRecord, set_id=set_id, nsid=U32, op=st.just(SetOp.DROP), tag=U32)
    signatures = st.builds(
        Signature,
        nsid=U32,
        slba=U64,
        nlb=st.integers(1, 0xFFFFFFFF),
        vector=st.one_of(*(st.binary(min_size=size, max_size=size) for size in (8, 16))),
        family=U16,
        ttl_ms=U32,
        tag=U32,
    )
    intents = st.builds(
        _intent,
        WHERE,
        intent_id=ID,
        deadline_us=U32,
        session=U64,
        priority=st.integers(0, 3),
        confidence=st.integers(0, 100),
        flags=st.integers(0, 255).map(IntentFlag),
        tag=U32,
    )
    return st.one_of(
        sets,
        drops,
        signatures,
        intents,
        st.builds(_retain, WHERE, duration_ms=U32, tag=U32),
        st.builds(Cancel, what=st.sampled_from(list(CancelWhat)), id=U64, tag=U32),
        st.builds(_residency, WHERE, tag=U32),
        st.builds(Outcome, intent_id=ID, tag=U32),
    )


UNKNOWN = st.builds(
    Unknown,
    type=st.integers(6, 0xFF) | st.integers(0x103, 0xFFFF),
    body=st.integers(0, 6).flatmap(lambda n: st.binary(min_size=8 * n, max_size=8 * n)),
    tag=U32,
)
RECORDS: SearchStrategy[Record] = known_records() | UNKNOWN


def batches_of(records: SearchStrategy[Record]) -> SearchStrategy[bytes]:
    """Encoded batches of up to 6 records."""
    return st.builds(
        lambda items, writer, sequence: encode_batch(
            items, writer=writer, sequence=sequence, max_size=1 << 16
        ),
        st.lists(records, max_size=6),
        U64,
        U32,
    )
