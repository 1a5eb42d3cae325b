"""Wrong specs: what is wrong, where it stands, what was expected; and nothing is left behind."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from prestage.testing_media import MediaError, Medium

FLASH = "seed=1,read_us=80,read_p99_us=300,write_us=20,bandwidth=1G,channels=4"

WRONG = [
    ("", 1, 'unknown kind of medium ""; expected one of file, ram, model'),
    ("fil:/x", 1, 'unknown kind of medium "fil"; expected one of file, ram, model'),
    ("file", 5, "the path is empty; expected file:PATH"),
    ("file:", 6, "the path is empty; expected file:PATH"),
    ("file:,size=1M", 6, "the path is empty; expected file:PATH"),
    ("file:a%2", 7, "\"%2\" is no escape; expected %2C for ',', %7C for '|', %25 for '%'"),
    ("file:a%00b", 7, '"%00" is no escape; expected'),
    ("file:a%zz", 7, '"%zz" is no escape; expected'),
    ("ram:size", 5, '"size" is no option; expected KEY=VALUE'),
    ("ram:=4", 5, '"=4" is no option; expected KEY=VALUE'),
    ("ram:", 1, 'option "size" is missing; expected size=... after "ram"'),
    ("ram:size=1M,", 13, '"" is no option; expected KEY=VALUE'),
    ("ram", 1, 'option "size" is missing; expected size=... after "ram"'),
    ("ram:sze=1M", 5, 'unknown option "sze"; expected one of size'),
    ("ram:size=1M,size=2M", 13, 'option "size" is given twice; expected once'),
    ("ram:size=", 10, 'size="" is no size; expected bytes, or a number with K, M, G or T'),
    ("ram:size=1X", 10, 'size="1X" is no size; expected bytes, or a number with K, M, G or T'),
    ("ram:size=1MB", 10, 'size="1MB" is no size; expected bytes'),
    ("ram:size=-1", 10, 'size="-1" is no size; expected bytes'),
    ("ram:size=99999999999999999999", 10, "is no size; expected bytes"),
    ("ram:size=99999999999T", 10, "is no size; expected bytes"),
    ("ram:size=0", 10, "size=0 is out of range; expected 512 to 70368744177664"),
    ("ram:size=513", 10, "size is no multiple of the block size; expected a multiple of 512"),
    ("ram:size=1M|ram:size=1M", 12, '"ram" has nothing below it; expected the end of the spec'),
    ("stall", 6, 'nothing is below "stall"; expected "|" and a medium'),
    ("stall|", 7, 'unknown kind of medium ""'),
    (
        "stal|ram:size=1M",
        1,
        'unknown wrapper "stal"; expected one of delay, error, stall, powercut',
    ),
    ("stall:after=x|ram:size=1M", 13, 'after="x" is no number; expected a whole number'),
    ("delay:read_us=3600000001|ram:size=1M", 15, "out of range; expected 0 to 3600000000"),
    ("error:op=both|ram:size=1M", 10, 'op="both" is unknown; expected one of any, read, write, sy'),
    ("error:errno=5|ram:size=1M", 13, 'errno="5" is unknown; expected one of EIO, ENOSPC, SHORT'),
    ("error:rate=1.5|ram:size=1M", 12, "rate=1.5 is out of range; expected 0 to 1"),
    ("error:rate=.5|ram:size=1M", 12, 'rate=".5" is no number; expected a decimal number such'),
    ("error:rate=1e-3|ram:size=1M", 12, 'rate="1e-3" is no number; expected a decimal number'),
    ("error:rate=nan|ram:size=1M", 12, 'rate="nan" is no number; expected a decimal number'),
    ("powercut:limit=1K|ram:size=1M", 16, "limit=1K is out of range; expected 4096 to"),
    ("powercut:limit=1T|ram:size=1M", 16, "limit=1T is out of range; expected 4096 to 687194767"),
    (
        "file:{path}",
        6,
        "{path} does not exist; expected a file or block device (or create=1 and si",
    ),
    ("file:{path},create=1", 6, "{path} does not exist and create=1 has no size; expected size=BY"),
    ("file:{path},create=yes", 0, 'create="yes" is unknown; expected one of 0, 1'),
    ("file:{path},create=1,size=1000", 0, "size 1000 of {path} is no multiple of its block size;"),
    ("file:{path},depth=0", 0, "depth=0 is out of range; expected 1 to 4096"),
    ("file:{path},engine=aio", 0, 'engine="aio" is unknown; expected one of auto, uring, threads'),
    ("file:{path}/x,create=1,size=1M", 6, "there is no directory to create {path}/x in; expected"),
    ("file:/dev/null", 6, "/dev/null is a character device; expected a regular file or block dev"),
    ("file:/proc", 6, "/proc is a directory; expected a regular file or block device"),
    ("file:{fifo}", 6, "{fifo} is a pipe; expected a regular file or block device"),
    ("file:{empty}", 6, "{empty} is empty; expected size=BYTES to give it a size"),
    (
        "file:{large},size=1M",
        0,
        "size=1048576 is smaller than {large}; expected at least its 20971",
    ),
    ("file:{odd}", 6, "size 700 of {odd} is no multiple of its block size; expected a multiple of"),
    ("model:{path},create=1,size=1M", 1, 'option "seed" is missing; expected seed=... after "mod'),
    (
        "model:{path},create=1,size=1M," + FLASH.replace("_us=300", "_us=79"),
        0,
        "read_p99_us is below the median; expected at least read_us=80",
    ),
    ("model:{path},create=1,size=1M," + FLASH + ",write_p99_us=19", 0, "below the median; expecte"),
    ("model:{path},size=1M," + FLASH.replace("=4", "=257"), 0, "out of range; expected 1 to 256"),
    ("|".join(["delay"] * 16 + ["ram:size=1M"]), 97, "the chain is too long; expected at most 16"),
]


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(("spec", "at", "text"), WRONG, ids=[each[0] or "empty" for each in WRONG])
def test_wrong_spec_is_refused(spec: str, at: int, text: str, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("path", "fifo", "empty", "large", "odd")}
    os.mkfifo(places["fifo"])
    places["empty"].touch()
    places["large"].write_bytes(bytes(2 << 20))
    places["odd"].write_bytes(bytes(700))
    spec, text = spec.format(**places), text.format(**places)
    descriptors = count_descriptors()
    with pytest.raises(MediaError) as caught:
        Medium(spec)
    said = str(caught.value)
    assert said.startswith(f'media spec "{spec}", at byte ')
    assert text in said
    if at:
        assert f"at byte {at}: " in said
    assert count_descriptors() == descriptors
    assert not places["path"].exists()
    assert places["large"].stat().st_size == 2 << 20


@pytest.mark.skipif(
    Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1",
    reason="this system promises any amount of memory",
)
def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(MediaError, match="no memory for so much; expected a smaller size"):
        Medium("ram:size=60T")
    with pytest.raises(MediaError, match="no memory for the log; expected a smaller limit"):
        Medium("|".join(["powercut:limit=64G"] * 15 + ["ram:size=1M"]))


def test_place_of_an_error_is_where_the_value_stands(tmp_path: Path) -> None:
    spec = f"delay:read_us=5|file:{tmp_path}/f,create=1,size=1M,depth=none"
    with pytest.raises(MediaError, match=f"at byte {spec.index('none') + 1}: depth="):
        Medium(spec)


def test_sizes_take_suffixes(tmp_path: Path) -> None:
    for text, size in [("512", 512), ("3K", 3 << 10), ("2M", 2 << 20), ("1G", 1 << 30)]:
        with Medium(f"ram:size={text}") as medium:
            assert medium.limits.size == size
    with Medium(f"file:{tmp_path}/sparse,create=1,size=1T") as medium:
        assert medium.limits.size == 1 << 40


def test_path_is_unescaped(tmp_path: Path) -> None:
    path = tmp_path / "a,b|c%d"
    escaped = str(path).replace("%", "%25").replace(",", "%2C").replace("|", "%7c")
    with Medium(f"file:{escaped},create=1,size=1M") as medium:
        medium.write(0, b"x" * 512)
    assert path.stat().st_size == 1 << 20


def test_long_error_is_cut_not_overrun(tmp_path: Path) -> None:
    with pytest.raises(MediaError) as caught:
        Medium("ram:size=" + "9" * 5000)
    assert len(str(caught.value)) == 1023


def test_a_path_that_is_no_text_is_refused_like_any_other() -> None:
    # %de is the byte DEh: a path may be any bytes, and the complaint shows them.
    with pytest.raises(MediaError, match=r"xde"):
        Medium("file:/nowhere/%de", start=False)


def test_random_specs_never_crash(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    words = [
        "ram",
        "file",
        "delay",
        "powercut",
        "error",
        ":",
        ",",
        "|",
        "=",
        "%",
        "size",
        "1M",
        "9",
    ]
    words += ["op", "rate", "0.5", "after", str(tmp_path), "create", "seed", "\x01", "é"]
    for _ in range(3000):
        spec = "".join(rng.choices(words, k=rng.randint(0, 14)))
        try:
            Medium(spec, start=False).close()
        except MediaError as error:
            assert re.match(r'(?s)media spec ".*".*: .+', str(error))
