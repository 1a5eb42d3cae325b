"""The scanner: the same values however the stream is cut, and its limits."""

from __future__ import annotations

import json
import random

import pytest

from prestage.target.rpc.framing import (
    MAX_DEPTH,
    MAX_REQUEST_BYTES,
    MAX_VALUES,
    FramingError,
    ValueScanner,
)

VALUES = [
    b'{"jsonrpc":"2.0","method":"m","id":1}',
    b'[1,2,{"a":[]}]',
    b'{"a":"\\"}{[\\\\","b":"\xc3\xa9\\u005d"}',
    b'"te\\\\xt"',
    b"{}",
    b"[]",
]
STREAM = b" \n".join(VALUES) + b"\t12.5e3 true\r\n" + b"".join(VALUES)
EXPECTED = [*VALUES, b"12.5e3", b"true", *VALUES]


def scan(*pieces: bytes) -> list[bytes]:
    """Return the values found in the pieces of a stream."""
    scanner = ValueScanner()
    found = []
    for piece in pieces:
        scanner.feed(piece)
        while (value := scanner.next_value()) is not None:
            found.append(value)
    return found


def test_concatenated_values_are_cut_apart() -> None:
    assert scan(STREAM) == EXPECTED


def test_the_same_values_come_out_at_every_split_point() -> None:
    for cut in range(len(STREAM) + 1):
        assert scan(STREAM[:cut], STREAM[cut:]) == EXPECTED, cut


def test_the_same_values_come_out_byte_by_byte() -> None:
    assert scan(*[STREAM[n : n + 1] for n in range(len(STREAM))]) == EXPECTED


def test_the_same_values_come_out_in_random_pieces() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(300):
        cuts = sorted(rng.choices(range(len(STREAM) + 1), k=rng.randrange(8)))
        pieces = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
        assert scan(*pieces) == EXPECTED, f"seed {seed}"


def test_pretty_printed_values_are_whole() -> None:
    text = json.dumps({"a": [1, {"b": None}]}, indent=2).encode()
    assert scan(text, b"\n", text) == [text, text]


def test_a_bare_number_ends_only_when_something_follows() -> None:
    assert scan(b"12") == []
    assert scan(b"12", b"3 ") == [b"123"]
    assert scan(b'12"a"') == [b"12", b'"a"']


def test_a_begun_value_is_pending() -> None:
    scanner = ValueScanner()
    scanner.feed(b" \n ")
    assert scanner.next_value() is None
    assert not scanner.pending
    scanner.feed(b'{"a')
    assert scanner.next_value() is None
    assert scanner.pending


def test_white_space_without_end_costs_no_memory() -> None:
    scanner = ValueScanner()
    for _ in range(100):
        scanner.feed(b" \n" * 8192)
        assert scanner.next_value() is None
    assert not scanner.pending


def test_values_before_a_fault_are_found() -> None:
    scanner = ValueScanner()
    scanner.feed(b"{}[}")
    assert scanner.next_value() == b"{}"
    with pytest.raises(FramingError):
        scanner.next_value()


@pytest.mark.parametrize("text", [b"}", b"]", b"[}", b"{]", b'{"a":[}', b",", b":", b"{},{}"])
def test_what_can_be_no_sequence_of_values_is_refused_at_once(text: bytes) -> None:
    with pytest.raises(FramingError):
        scan(text)


def test_the_deepest_allowed_nesting_is_found_and_one_more_is_refused() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert scan(deepest) == [deepest]
    with pytest.raises(FramingError, match="nested deeper than 64"):
        scan(b"[" * (MAX_DEPTH + 1))


def test_the_most_allowed_values_are_found_and_one_more_is_refused() -> None:
    most = b"[" + b",".join([b"1"] * (MAX_VALUES - 1)) + b"]"
    assert scan(most) == [most]
    with pytest.raises(FramingError, match="more than 8192 values"):
        scan(b"[" + b",".join([b"1"] * MAX_VALUES) + b"]")


def test_the_largest_allowed_request_is_found_and_one_byte_more_is_refused() -> None:
    largest = b'"' + b"x" * (MAX_REQUEST_BYTES - 2) + b'"'
    assert scan(largest) == [largest]
    assert scan(largest[:1000], largest[1000:]) == [largest]
    with pytest.raises(FramingError, match="larger than 262144 bytes"):
        scan(b'"' + b"x" * (MAX_REQUEST_BYTES - 1) + b'"')
    with pytest.raises(FramingError, match="larger than 262144 bytes"):
        scan(b'"' + b"x" * MAX_REQUEST_BYTES)


def test_a_large_request_in_small_pieces_is_scanned_in_one_pass() -> None:
    text = b"[" + b",".join([b'"' + b"y" * 60 + b'"'] * 4000) + b"]"
    assert scan(*[text[n : n + 16] for n in range(0, len(text), 16)]) == [text]


def test_random_bytes_give_values_or_a_fault_and_nothing_else() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(3000):
        text = bytes(rng.choices(b'{}[]",:\\ 1ae\n\x00\xff', k=rng.randrange(40)))
        try:
            found = scan(text)
        except FramingError:
            continue
        except BaseException as error:
            error.add_note(f"seed {seed}: {text!r}")
            raise
        assert b"".join(found).replace(b" ", b"").replace(b"\n", b"") in text.replace(
            b" ", b""
        ).replace(b"\n", b""), f"seed {seed}: {text!r}"
