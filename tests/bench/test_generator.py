"""csrc/bench: what the load generator asks of a server, and what the bare server answers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_run import Case, Run, Server, fill, load, load_command

import prestage.testing

LIMIT_S = 30.0
SPAN_BYTES = 16 << 20
COMMANDS = 200
DIGESTS = [
    {"header_digest": header, "data_digest": data}
    for header, data in itertools.product((0, 1), repeat=2)
]
CASES = [
    Case(operation, size, 8)
    for operation in ("read", "write", "mixed")
    for size in (4096, 128 << 10)
]
IC_BYTES, CAPSULE_BYTES, SHORT_BYTES = 128, 72, 24


def run(server: Server, case: Case, **options: object) -> Run:
    """Exactly COMMANDS of a load."""
    found = load(server, case, LIMIT_S, {"commands": COMMANDS, **options}, SPAN_BYTES)
    assert found["commands"] == COMMANDS
    return found


@pytest.mark.parametrize("digests", DIGESTS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_bare_server_and_ours_answer_every_command(
    bare: Server, served: Server, case: Case, digests: dict[str, int]
) -> None:
    for server in (bare, served):
        run(server, case, **digests)
        run(server, case, **digests, poll=1)


def test_commands_that_come_at_random_times_are_counted_too(served: Server) -> None:
    run(served, Case("read", 4096, 8), rate=100_000)


def test_many_connections_are_of_several_controllers(
    target: prestage.testing.SpawnedTarget, served: Server
) -> None:
    before = core_of(target)["connections_opened"]
    run(served, Case("read", 4096, 1, 200))
    assert core_of(target)["connections_opened"] - before == 200 + 4


def test_commands_go_to_every_namespace_that_is_asked_for(
    target: prestage.testing.SpawnedTarget, served: Server
) -> None:
    before = reads_of(target)
    run(served, Case("read", 4096, 8), nsid=2, namespaces=2)
    found = [now - then for now, then in zip(reads_of(target), before, strict=True)]
    assert (found[0], found[3]) == (0, 0)
    assert found[1] + found[2] == COMMANDS
    assert min(found[1:3]) > COMMANDS / 4


def test_blocks_of_512_are_read_one_by_one(
    target: prestage.testing.SpawnedTarget, served: Server
) -> None:
    run(served, Case("write", 512, 8), nsid=4)
    run(served, Case("read", 512, 8), nsid=4)


def test_idle_connections_are_open_all_the_while(
    target: prestage.testing.SpawnedTarget, served: Server
) -> None:
    command = load_command(served, Case("none", 4096, 1), 3600, {"idle": 150}, SPAN_BYTES)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: core_of(target)["connections"] == 151)  # and the admin queue
        finally:
            process.kill()
    wait_until(lambda: core_of(target)["connections"] == 0)


def test_a_run_says_what_memory_the_server_has(served: Server) -> None:
    assert run(served, Case("read", 4096, 1))["resident_bytes"] > 1 << 20


def test_more_in_flight_than_a_queue_takes_is_refused(served: Server) -> None:
    with pytest.raises(SystemExit, match="DEPTH is 256, expected up to 128"):
        run(served, Case("read", 4096, 256))


# ---- what cannot be done ----


def test_a_server_that_is_not_there_is_named(programs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = Server("127.0.0.1", port, "bare")
    with pytest.raises(SystemExit, match=f"on 127.0.0.1:{port}: .*refused"):
        fill(server)


def test_what_was_expected_is_said_of_a_subsystem_a_host_and_a_process(
    target: prestage.testing.SpawnedTarget, served: Server
) -> None:
    case = Case("read", 4096, 1)
    nobody = dataclasses.replace(served, nqn="nqn.2026-11.io.prestage:nobody")
    with pytest.raises(SystemExit, match="4182h: expected the NQN of a subsystem that is there"):
        load(nobody, case, LIMIT_S)
    with pytest.raises(SystemExit, match="no such process, expected that of the server"):
        load(dataclasses.replace(served, pid=1 << 22), case, LIMIT_S)
    with pytest.raises(SystemExit, match="PORT is '99999', expected 1 to 65535"):
        load(dataclasses.replace(served, port=99999), case, LIMIT_S)


# ---- digests that are wrong ----


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes."""
    found = connection.recv(size, socket.MSG_WAITALL)
    assert len(found) == size
    return found


def connect(server: Server, digests: int) -> socket.socket:
    """A connection to the bare server with these digests."""
    connection = socket.create_connection((server.address, server.port), LIMIT_S)
    request = bytes([0, 0, IC_BYTES, 0]) + struct.pack("<IHBB", IC_BYTES, 0, 0, digests)
    connection.sendall(request.ljust(IC_BYTES, b"\0"))
    answer = receive(connection, IC_BYTES)
    assert (answer[0], answer[11]) == (1, digests)
    return connection


@pytest.mark.parametrize("digests", [1, 2])
def test_the_bare_server_checks_digests(programs: Path, tmp_path: Path, digests: int) -> None:
    port_file = tmp_path / "port"
    command = [programs / "bare", port_file]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) as process:
        wait_until(lambda: port_file.exists() and port_file.read_text().endswith("\n"))
        server = Server("127.0.0.1", int(port_file.read_text()), "bare")
        with connect(server, digests) as connection:
            connection.sendall(write_capsule(digests))
            said = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 1
    assert "digest" in said


def write_capsule(digests: int) -> bytes:
    """A write of 512 bytes in its capsule; the digest that is in use is wrong."""
    header_digest, data_digest = digests & 1, digests >> 1
    start = CAPSULE_BYTES + 4 * header_digest
    size = start + 512 + 4 * data_digest
    header = bytearray(CAPSULE_BYTES)
    header[:8] = struct.pack("<BBBBI", 4, digests, CAPSULE_BYTES, start, size)
    header[8] = 1
    header[32 + 8 : 36 + 8] = struct.pack("<I", 512)
    return bytes(header).ljust(size, b"\0")


@pytest.fixture
def liar() -> Iterator[Server]:
    """A server that answers a read with a payload whose digest is wrong."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            request = bytearray(receive(connection, IC_BYTES))
            request[0] = 1
            connection.sendall(request)
            capsule = receive(connection, CAPSULE_BYTES)
            header = struct.pack("<BBBBI", 7, 0x0E, SHORT_BYTES, SHORT_BYTES, SHORT_BYTES + 516)
            header += capsule[10:12] + struct.pack("<HIII", 0, 0, 512, 0)
            connection.sendall(header + bytes(512) + b"lies")
            connection.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    yield Server("127.0.0.1", listener.getsockname()[1], "bare")
    thread.join(LIMIT_S)
    listener.close()


def test_the_generator_checks_digests(programs: Path, liar: Server) -> None:
    with pytest.raises(SystemExit, match="data came whose digest is wrong"):
        load(liar, Case("read", 512, 1), LIMIT_S, {"data_digest": 1}, SPAN_BYTES)


# ---- counting copies ----


def test_copies_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "copier.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        "extern _Atomic unsigned long ps_bytes_copied;\n"
        "int main(int argc, char **argv) {\n"
        "  static char a[9999], b[9999];\n"
        "  memcpy(a, b, strtoul(argv[1], 0, 10));\n"
        "  memmove(a, b, strtoul(argv[2], 0, 10));\n"
        '  printf("%lu", ps_bytes_copied);\n}\n'
    )
    counter = Path(__file__).resolve().parents[2] / "csrc" / "bench" / "count_copies.c"
    program = tmp_path / "copier"
    flags = ("-O2", "-Wl,--wrap=memcpy,--wrap=memmove")
    subprocess.run(["gcc", *flags, source, counter, "-o", program], check=True)
    found = subprocess.check_output([program, "1234", "5000"])
    assert int(found) == 6234


# ---- help ----


def stats(target: prestage.testing.SpawnedTarget) -> Any:
    """What the target has counted."""
    with target.client() as client:
        return json.loads(json.dumps(client.call("prestage_get_stats")))


def core_of(target: prestage.testing.SpawnedTarget) -> dict[str, int]:
    """Of connections and commands."""
    found: dict[str, int] = stats(target)["core"]
    return found


def reads_of(target: prestage.testing.SpawnedTarget) -> list[int]:
    """Of each namespace."""
    (subsystem,) = [each for each in stats(target)["subsystems"] if not each["discovery"]]
    return [each["counters"]["reads"] for each in subsystem["namespaces"]]


def wait_until(holds: Any) -> None:
    """Fail when it does not hold in time."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
