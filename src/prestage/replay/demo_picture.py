"""The demonstration as a picture: one line for each returning request, as long as it waited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.replay.result import spread

WIDTH: Final = 900
LEFT: Final = 190
RIGHT: Final = 20
TOP: Final = 70
HEIGHT: Final = 110
"""Of a strip."""
GAP: Final = 26
LEAST: Final = 1.5
"""Height of what did not wait, so that it can be seen."""
HIGHEST: Final = 99.5
"""Percentile of all waits that fills a strip; longer ones are cut off."""
READY, WAITED, INK = "#2a9d8f", "#e76f51", "#333"
LINE_CHARACTERS: Final = 120

Strip = tuple[str, NDArray[np.float64], NDArray[np.bool_]]
"""A name, and of each request how long it waited (s) and whether all of it was in DRAM."""


def picture(time_s: NDArray[np.float64], strips: Sequence[Strip], about: str) -> str:
    """Return an SVG: a strip for each run, requests from left to right by `time_s`."""
    waits = np.concatenate([wait_s for _, wait_s, _ in strips])
    most_s = max(float(np.percentile(waits, HIGHEST)), 1e-9)
    height = TOP + len(strips) * (HEIGHT + GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f'<g font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-size="15">How long each returning request waited</text>',
        *_paragraph(about),
    ]
    for place, strip in enumerate(strips):
        parts += _strip(TOP + place * (HEIGHT + GAP), time_s, strip, most_s)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _paragraph(text: str) -> Iterator[str]:
    lines, rest = [], text
    while len(rest) > LINE_CHARACTERS:
        cut = rest.rfind(" ", 0, LINE_CHARACTERS)
        lines.append(rest[:cut])
        rest = rest[cut + 1 :]
    for number, line in enumerate([*lines, rest]):
        yield f'<text x="10" y="{36 + 13 * number}" font-size="10">{escape(line)}</text>'


def _strip(top: float, time_s: NDArray[np.float64], strip: Strip, most_s: float) -> Iterator[str]:
    name, wait_s, is_ready = strip
    base = top + HEIGHT
    last_s = max(float(time_s.max()), 1e-9)
    waited = spread(wait_s)
    notes = (
        f"all in DRAM: {is_ready.mean():.0%}",
        f"median {waited['p50']:.2f} s",
        f"p90 {waited['p90']:.2f} s, p99 {waited['p99']:.2f} s",
    )
    yield f'<text x="10" y="{top + 20}" font-weight="bold">{escape(name)}</text>'
    for number, note in enumerate(notes):
        yield f'<text x="10" y="{top + 42 + 16 * number}">{note}</text>'
    yield f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}" stroke="{INK}"/>'
    yield f'<text x="{LEFT - 38}" y="{top + 10}" font-size="10">{most_s:.1f} s</text>'
    for at, wait, ready in zip(time_s.tolist(), wait_s.tolist(), is_ready.tolist(), strict=True):
        x = LEFT + (WIDTH - RIGHT - LEFT) * at / last_s
        y = base - max(min(wait / most_s, 1.0) * HEIGHT, LEAST)
        colour = READY if ready else WAITED
        yield (
            f'<line x1="{x:.1f}" y1="{base}" x2="{x:.1f}" y2="{y:.1f}" stroke="{colour}" '
            'stroke-width="1.5"/>'
        )
