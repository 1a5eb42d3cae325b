"""Find the JSON values in a byte stream that has no other framing.

Requests are concatenated JSON values. The scanner looks only for where a value ends, in one pass
over the bytes however they are cut up, and enforces the limits before anything is decoded; what it
hands out is decoded, and so judged, by the caller.
"""

from __future__ import annotations

import re

MAX_REQUEST_BYTES = 256 << 10
MAX_VALUES = 8192
MAX_DEPTH = 64

# Outside of a text: white space, one structural character, or a run of a bare word or number.
TOKEN = re.compile(rb'[ \t\r\n]+|[\[\]{}",:]|[^ \t\r\n\[\]{}",:]+')
# Inside of a text: everything up to its end or to a backslash.
TEXT = re.compile(rb'[^"\\]+')

SPACE = b" \t\r\n"
QUOTE = ord('"')
BACKSLASH = ord("\\")
OPEN = {ord("["): ord("]"), ord("{"): ord("}")}
CLOSE = frozenset(OPEN.values())
SEPARATORS = frozenset(b",:")


class FramingError(Exception):
    """The stream is no sequence of JSON values within the limits; nothing after it is found."""


class ValueScanner:
    """Cuts a stream into JSON values: `feed` it bytes, then ask for `next_value` until None."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start_over()

    def _start_over(self) -> None:
        self._position = 0
        self._closers: list[int] = []
        self._values = 0
        self._in_text = False
        self._escaped = False
        self._in_word = False

    @property
    def pending(self) -> bool:
        """Whether a value has begun and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take in bytes as they came from the peer."""
        self._buffer += data

    def next_value(self) -> bytes | None:
        """Return the next complete value, or None when more bytes are needed.

        Raises `FramingError`; the stream cannot be read on from there.
        """
        end = self._find_end()
        if end is None:
            end = len(self._buffer)
            value = None
        else:
            value = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._start_over()
        if end > MAX_REQUEST_BYTES:
            raise FramingError(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
        return value

    def _find_end(self) -> int | None:
        """Return the offset behind the first value, or None when it is not all there yet."""
        buffer = self._buffer
        while self._position < len(buffer):
            if self._in_text:
                if self._skip_text() and not self._closers:
                    return self._position
                continue
            match = TOKEN.match(buffer, self._position)
            assert match is not None
            first = match[0][0]
            if self._in_word and (first in SPACE or first in b'[]{}",:'):
                # Only now is it known that a bare number has no more digits.
                self._in_word = False
                if not self._closers:
                    return self._position
            if first in SPACE:
                self._skip_space(match.end())
                continue
            if self._take_token(first, match.end()):
                return self._position
        return None

    def _skip_space(self, end: int) -> None:
        if self._closers:
            self._position = end
        else:
            # White space between values is no part of any.
            del self._buffer[:end]
            self._position = 0

    def _skip_text(self) -> bool:
        """Go on inside of a text; return whether it ended."""
        if self._escaped:
            self._escaped = False
            self._position += 1
            return False
        match = TEXT.match(self._buffer, self._position)
        if match is not None:
            self._position = match.end()
            return False
        self._escaped = self._buffer[self._position] == BACKSLASH
        self._in_text = self._escaped
        self._position += 1
        return not self._in_text

    def _take_token(self, first: int, end: int) -> bool:
        """Take one token; return whether it ended the value."""
        if first in OPEN:
            self._count()
            self._closers.append(OPEN[first])
            if len(self._closers) > MAX_DEPTH:
                raise FramingError(f"the request is nested deeper than {MAX_DEPTH}")
        elif first in CLOSE:
            if not self._closers or self._closers.pop() != first:
                raise FramingError(f"found {chr(first)!r} where nothing was open")
            self._position = end
            return not self._closers
        elif first == QUOTE:
            self._count()
            self._in_text = True
        elif first in SEPARATORS:
            if not self._closers:
                raise FramingError(f"found {chr(first)!r} between requests")
        elif not self._in_word:
            self._count()
            self._in_word = True
        self._position = end
        return False

    def _count(self) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise FramingError(f"the request has more than {MAX_VALUES} values")
