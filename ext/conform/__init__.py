"""The conformance kit: whether a target keeps what the specification says.

`conform` runs every check against any target, by way of a `Host` that sends raw commands.
"""

from .host import Command, Completion, Host, Tenant
from .registry import CHECKS, Check, Level
from .report import Outcome, Report, Result
from .runner import conform

__all__ = [
    "CHECKS",
    "Check",
    "Command",
    "Completion",
    "Host",
    "Level",
    "Outcome",
    "Report",
    "Result",
    "Tenant",
    "conform",
]
