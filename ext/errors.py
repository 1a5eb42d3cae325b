"""What can be wrong: with what a peer sent, and with what we were asked to send."""

from __future__ import annotations

from .names import Fault


class Malformed(Exception):
    """A peer's bytes are not what PAX allows (specification, clause 5.5).

    `fault` says what is wrong, `offset` is the byte at which the offending field begins.
    """

    def __init__(self, fault: Fault, offset: int) -> None:
        super().__init__(f"{fault.name.lower()} at byte {offset}: {fault.meaning}")
        self.fault = fault
        self.offset = offset


class BadRecord(ValueError):
    """A record that we were asked to encode has a value that its layout does not allow."""


class BatchTooLarge(ValueError):
    """The records do not fit into one batch of the size asked for."""
