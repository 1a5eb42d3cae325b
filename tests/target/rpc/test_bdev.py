"""bdev_* and prestage_*: media by name, and what each method refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from rpc_tools import HOST, NQN, Rig

from prestage.target.rpc.dispatch import handle


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "a.img"
    path.write_bytes(bytes(1 << 20))
    return path


@pytest.mark.parametrize(("driver", "product"), [("aio", "AIO disk"), ("uring", "URING bdev")])
def test_a_file_is_registered_and_deleted(rig: Rig, image: Path, driver: str, product: str) -> None:
    made = rig.call(f"bdev_{driver}_create", name="a", filename=str(image), block_size=512)
    assert made == "a"
    (found,) = rig.call("bdev_get_bdevs", name="a")
    assert found["product_name"] == product
    assert (found["block_size"], found["num_blocks"]) == (512, 2048)
    assert found["driver_specific"][driver]["filename"] == str(image)
    other = "aio" if driver == "uring" else "uring"
    assert rig.fail(f"bdev_{other}_delete", name="a")[0] == -19
    assert rig.call(f"bdev_{driver}_delete", name="a") is True
    assert rig.fail(f"bdev_{driver}_delete", name="a") == (
        -19,
        'No such device: there is no bdev "a"',
    )


def test_the_block_size_comes_from_the_size_when_none_is_given(rig: Rig, tmp_path: Path) -> None:
    for size, block in ((8192, 4096), (1536, 512)):
        path = tmp_path / str(size)
        path.write_bytes(bytes(size))
        rig.call("bdev_uring_create", name=str(size), filename=str(path))
        assert rig.call("bdev_get_bdevs", name=str(size))[0]["block_size"] == block


def test_deleting_a_bdev_takes_its_namespace_away(rig: Rig, image: Path) -> None:
    rig.call("bdev_uring_create", name="a", filename=str(image))
    rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "a"})
    rig.call("bdev_uring_delete", name="a")
    assert list(rig.target.subsystems[0].namespaces) == [1]


def test_memory_gets_a_name_when_none_is_given(rig: Rig) -> None:
    made = [rig.call("bdev_malloc_create", block_size=4096, num_blocks=256) for _ in range(2)]
    assert made == ["Malloc0", "Malloc1"]


@pytest.mark.parametrize(
    ("method", "params", "code", "message"),
    [
        ("bdev_uring_create", {"name": "a", "filename": "/no/such"}, -2,
         "No such file or directory: /no/such"),
        ("bdev_uring_create", {"name": "a", "filename": "/dev/null"}, -22,
         "Invalid argument: /dev/null: expected a regular file or a block device"),
        ("bdev_aio_create", {"name": "a", "filename": "/proc/version"}, -22,
         ("Invalid argument: /proc/version: Invalid argument (expected a regular file or a block "
         "device whose size can be told)")),
        ("bdev_uring_create", {"name": "", "filename": "@image"}, -22,
         'Invalid argument: name: found "", expected 1 to 255 bytes'),
        ("bdev_uring_create", {"name": "a", "filename": "@image", "block_size": 1000}, -22,
         "Invalid argument: block: found 1000, expected 512 or 4096"),
        ("bdev_aio_create", {"name": "a", "filename": "@image", "uuid": "x"}, -22,
         'Invalid argument: uuid: found "x", expected a UUID'),
        ("bdev_malloc_create", {"block_size": 512, "num_blocks": 0}, -32602,
         "Invalid parameters: num_blocks: found 0, expected 1 or more"),
        ("bdev_malloc_create", {"block_size": 512, "num_blocks": 8, "md_size": 8}, -95,
         "Operation not supported: md_size: expected 0, there is no metadata here"),
        ("bdev_malloc_create", {"block_size": 512, "num_blocks": 1 << 60}, -32602,
         "Invalid parameters: num_blocks: expected a size below 8 EiB"),
        ("bdev_uring_rescan", {"name": "x"}, -19, 'No such device: there is no bdev "x"'),
        ("bdev_get_bdevs", {"name": "x"}, -19, 'No such device: there is no bdev "x"'),
        ("bdev_get_iostat", {"names": ["x"]}, -19, 'No such device: there is no bdev "x"'),
        ("bdev_get_iostat", {"names": ["x"], "name": "x"}, -32602,
         "Invalid parameters: name: expected either name or names"),
        ("prestage_bdev_create", {"name": "a", "media": "rom", "path": "/x", "size": "1M"}, -22,
         ('Invalid argument: media: found "rom", expected file, ram or model (did you mean '
         '"ram"?)')),
        ("prestage_bdev_create", {"name": "a", "media": "ram", "size": "1X"}, -32602,
         ('Invalid parameters: size: found "1X", expected a size such as 4G, 512M, 64K or a whole '
         "number of bytes")),
        ("prestage_namespace_resize", {"nqn": NQN, "nsid": 9, "size": "2M"}, -19,
         f"No such device: {NQN} has no namespace 9"),
        ("prestage_namespace_resize", {"nqn": NQN, "nsid": 1, "size": 1000}, -32602,
         ("Invalid parameters: size: found 1000, expected a multiple of the block size, 4096, that "
          "is not 0")),
        ("prestage_media_control", {"nqn": NQN, "nsid": 9, "kind": "stall", "verb": "arm"}, -19,
         f"No such device: {NQN} has no namespace 9"),
        ("prestage_media_control", {"nqn": NQN, "nsid": 1, "kind": "x", "verb": "arm"}, -22,
         "Invalid argument: x: no such wrapper (expected stall)"),
        ("spdk_kill_instance", {"sig_name": "SIGFOO"}, -32602,
         "Invalid parameters: sig_name: invalid enum value 'SIGFOO'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(
    rig: Rig, image: Path, method: str, params: dict[str, Any], code: int, message: str
) -> None:
    params = {name: str(image) if v == "@image" else v for name, v in params.items()}
    assert rig.fail(method, **params) == (code, message)


def test_a_name_is_taken_once(rig: Rig, image: Path) -> None:
    rig.call("bdev_uring_create", name="a", filename=str(image))
    assert rig.fail("bdev_aio_create", name="a", filename=str(image)) == (
        -17,
        'File exists: there is a bdev "a" already',
    )
    assert rig.fail("bdev_malloc_create", name=f"{NQN}/1", block_size=512, num_blocks=8)[0] == -17


def test_a_rescan_takes_over_the_new_size(rig: Rig, image: Path) -> None:
    rig.call("bdev_aio_create", name="a", filename=str(image))
    nsid = rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "a"})
    with image.open("ab") as file:
        file.truncate(2 << 20)
    assert rig.call("bdev_aio_rescan", name="a") is True
    assert rig.target.subsystems[0].namespaces[nsid].size_bytes == 2 << 20
    assert rig.call("bdev_get_bdevs", name="a")[0]["num_blocks"] == 512


def test_counters_are_given_by_either_way_of_naming(rig: Rig) -> None:
    rig.target.counters[NQN, 1] = {
        "reads": 3, "read_bytes": 12288, "read_ns": 900, "writes": 2, "write_bytes": 8192,
    }  # fmt: skip
    name = f"{NQN}/1"
    whole = rig.call("bdev_get_iostat")
    assert whole["tick_rate"] == 1_000_000_000
    for answer in (
        whole,
        rig.call("bdev_get_iostat", names=[name], per_channel=False, reset_mode="none"),
        rig.call("bdev_get_iostat", name=name),
    ):
        (row,) = answer["bdevs"]
        assert (row["name"], row["num_read_ops"], row["bytes_read"]) == (name, 3, 12288)
        assert (row["num_write_ops"], row["bytes_written"]) == (2, 8192)
        assert row["read_latency_ticks"] == 900


def test_a_bdev_without_a_namespace_has_counted_nothing(rig: Rig) -> None:
    rig.call("bdev_malloc_create", name="m", block_size=512, num_blocks=8)
    (row,) = rig.call("bdev_get_iostat", name="m")["bdevs"]
    assert row["num_read_ops"] == 0


def test_examination_has_nothing_to_do(rig: Rig) -> None:
    assert rig.call("bdev_wait_for_examine") is True
    assert rig.call("bdev_examine", name="m") is True


def test_a_medium_of_any_kind_is_registered_and_saved(rig: Rig, tmp_path: Path) -> None:
    params = {
        "name": "p",
        "path": str(tmp_path / "m.img"),
        "size": "1M",
        "media": "model",
        "media_options": {
            "seed": 1,
            "read_us": 90,
            "read_p99_us": 200,
            "write_us": 9,
            "bandwidth": "2G",
            "channels": 4,
        },
        "faults": ["delay:read_us=10"],
        "write_policy": "through",
    }
    assert rig.call("prestage_bdev_create", **params) == "p"
    calls = rig.call("framework_get_config", name="bdev")
    (saved,) = [one for one in calls if one.get("params", {}).get("name") == "p"]
    assert saved == {"method": "prestage_bdev_create", "params": params | {"size": 1 << 20}}
    assert rig.call("prestage_bdev_delete", name="p") is True


def test_a_namespace_is_resized(rig: Rig) -> None:
    assert rig.call("prestage_namespace_resize", nqn=NQN, nsid=1, size="2M") is True
    assert rig.target.subsystems[0].namespaces[1].size_bytes == 2 << 20


def test_a_fault_wrapper_is_told(rig: Rig) -> None:
    params = {"nqn": NQN, "nsid": 1, "kind": "stall", "verb": "release"}
    assert rig.call("prestage_media_control", **params) is True
    assert rig.target.controls == [(101, "stall", "release")]


def test_the_framework_answers_as_tools_expect(rig: Rig) -> None:
    assert rig.call("framework_get_subsystems") == [
        {"subsystem": "bdev", "depends_on": []},
        {"subsystem": "nvmf", "depends_on": ["bdev"]},
        {"subsystem": "prestage", "depends_on": ["nvmf"]},
    ]
    assert rig.call("framework_get_config", name="iobuf") is None
    assert rig.call("spdk_get_version")["fields"]["major"] == 0
    every = rig.call("rpc_get_methods")
    now = rig.call("rpc_get_methods", current=True)
    assert set(every) - set(now) == {"framework_start_init"}
    (reactor,) = rig.call("framework_get_reactors")["reactors"]
    assert reactor["busy"] == 1000
    (thread,) = rig.call("thread_get_stats")["threads"]
    assert thread["name"] == "reactor_0"
    assert rig.call("prestage_get_stats")["core"]["commands"] == 5


def test_hints_are_told_of_all_hosts_or_of_one(rig: Rig) -> None:
    every = [{"host_nqn": HOST, "batches": 2}, {"host_nqn": NQN, "batches": 1}]
    rig.target.tenants = every
    assert rig.call("prestage_get_hints")["tenants"] == every
    assert rig.call("prestage_get_hints", host=HOST)["tenants"] == every[:1]
    code, message = rig.fail("prestage_get_hints", host="nqn.2026-11.com.example:else")
    assert code == -19 and "has not connected" in message


def test_a_saved_medium_has_the_size_that_it_has_now(rig: Rig) -> None:
    rig.call("prestage_bdev_create", name="p", media="ram", size="1M", write_policy="through")
    nsid = rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "p"})
    rig.call("prestage_namespace_resize", nqn=NQN, nsid=nsid, size="2M")
    calls = rig.call("framework_get_config", name="bdev")
    (saved,) = [one for one in calls if one.get("params", {}).get("name") == "p"]
    assert saved["params"]["size"] == 2 << 20


def at_once(rig: Rig, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers to requests that are under way together."""
    requests = [
        json.dumps({"method": method, "id": 1, "params": params}).encode()
        for method, params in calls
    ]

    async def all_of_them() -> list[bytes | None]:
        answers = await asyncio.gather(*(handle(rig.context, text) for text in requests))
        return [answer for answer, _ in answers]

    return [json.loads(answer or b"") for answer in asyncio.run(all_of_them())]


def test_one_bdev_becomes_one_namespace_however_many_ask_at_once(rig: Rig) -> None:
    rig.call("bdev_malloc_create", name="m", block_size=512, num_blocks=2048)
    add = ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": {"bdev_name": "m"}})
    answers = at_once(rig, add, add, add)
    assert sorted("result" in answer for answer in answers) == [False, False, True]
    assert len(rig.target.subsystems[0].namespaces) == 2
    assert {answer["error"]["code"] for answer in answers if "error" in answer} == {-16}


def test_a_bdev_that_becomes_a_namespace_is_not_deleted(rig: Rig) -> None:
    rig.call("bdev_malloc_create", name="m", block_size=512, num_blocks=2048)
    add = {"nqn": NQN, "namespace": {"bdev_name": "m"}}
    added, deleted = at_once(
        rig, ("nvmf_subsystem_add_ns", add), ("bdev_malloc_delete", {"name": "m"})
    )
    assert deleted["error"]["code"] == -16
    described = rig.call("nvmf_get_subsystems", nqn=NQN)[0]["namespaces"]
    assert (added["result"], "m") in [(one["nsid"], one["bdev_name"]) for one in described]
    assert rig.call("bdev_malloc_delete", name="m") is True


def test_a_bdev_that_leaves_its_namespace_while_its_size_is_looked_at(
    rig: Rig, image: Path
) -> None:
    rig.call("bdev_aio_create", name="a", filename=str(image))
    nsid = rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "a"})
    with image.open("ab") as file:
        file.truncate(2 << 20)
    remove = ("nvmf_subsystem_remove_ns", {"nqn": NQN, "nsid": nsid})
    looked, removed = at_once(rig, ("bdev_aio_rescan", {"name": "a"}), remove)
    assert looked["result"] is removed["result"] is True
    assert rig.call("bdev_get_bdevs", name="a")[0]["num_blocks"] == 512
