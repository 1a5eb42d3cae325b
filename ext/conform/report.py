"""What a run of the kit found: a table to read, JSON and JUnit for programs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Any
from xml.etree import ElementTree as ET

from ..names import Carrier
from ..pages import Capability
from .registry import Check, Level


class Outcome(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """A check that was run: how it ended, why if it did not pass, and how long it took."""

    check: Check
    outcome: Outcome
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """All results, by clause. `capability` is None: the controller has no PAX."""

    capability: Capability | None
    results: tuple[Result, ...]
    seed: int = 0

    @property
    def failed(self) -> tuple[Result, ...]:
        """What failed, SHOULD and MUST."""
        return tuple(each for each in self.results if each.outcome is Outcome.FAILED)

    @property
    def exit_status(self) -> int:
        """Return 1 when a MUST failed, otherwise 0."""
        return int(any(each.check.level is Level.MUST for each in self.failed))

    @property
    def summary(self) -> str:
        """Return one line: PAX or not, and how many checks ended how."""
        counts = Counter(each.outcome for each in self.results)
        numbers = ", ".join(f"{counts[each]} {each.value}" for each in Outcome)
        if self.capability is None:
            return f"no PAX; fallback clauses: {numbers}"
        return f"PAX 1.{self.capability.minor}: {numbers}"

    def table(self) -> str:
        """Return the results as lines of text, reasons below what did not pass."""
        lines = []
        for each in self.results:
            check = each.check
            lines.append(
                f"{each.outcome.value:8}{check.clause:8}{check.level.value:7}{check.title}"
            )
            if each.why:
                lines.append(f"{'':23}{each.why}")
        return "\n".join([*lines, self.summary, ""])

    def json(self) -> str:
        """Return the results as JSON."""
        return json.dumps(
            {
                "pax": self.capability is not None,
                "minor": self.capability.minor if self.capability else None,
                "carriers": _carriers(self.capability),
                "seed": self.seed,
                "exit_status": self.exit_status,
                "results": [_json(each) for each in self.results],
            },
            indent=2,
        )

    def junit(self) -> str:
        """Return the results as JUnit XML; a SHOULD that failed is there as skipped."""
        counts = Counter(_junit_kind(each) for each in self.results)
        suite = ET.Element(
            "testsuite",
            name="PAX 1.0",
            tests=str(len(self.results)),
            failures=str(counts["failure"]),
            skipped=str(counts["skipped"]),
            errors="0",
            time=f"{sum(each.seconds for each in self.results):.3f}",
        )
        for each in self.results:
            check = each.check
            case = ET.SubElement(
                suite,
                "testcase",
                classname=f"pax.{check.clause}",
                name=f"{check.clause} {check.level.value} {check.title}",
                time=f"{each.seconds:.3f}",
            )
            if kind := _junit_kind(each):
                ET.SubElement(case, kind, message=each.why)
        ET.indent(suite)
        return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _carriers(capability: Capability | None) -> list[str]:
    offered = capability.carriers if capability else Carrier.NONE
    return [str(each.name).lower() for each in Carrier if each in offered]


def _json(result: Result) -> dict[str, Any]:
    return {
        "clause": result.check.clause,
        "level": result.check.level.value,
        "check": result.check.name,
        "title": result.check.title,
        "outcome": result.outcome.value,
        "why": result.why,
        "seconds": round(result.seconds, 6),
    }


def _junit_kind(result: Result) -> str:
    if result.outcome is Outcome.PASSED:
        return ""
    is_failure = result.outcome is Outcome.FAILED and result.check.level is Level.MUST
    return "failure" if is_failure else "skipped"
