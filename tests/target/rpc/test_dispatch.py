"""JSON-RPC 2.0: requests, notifications, batches, ids, and what is none of these."""

from __future__ import annotations

import json
import random

import pytest
from rpc_tools import Rig

from prestage.target.rpc.dispatch import METHODS, Method, NoParams
from prestage.target.rpc.framing import MAX_DEPTH


def ping(identity: str) -> str:
    return f'{{"jsonrpc":"2.0","method":"framework_wait_init","id":{identity}}}'


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    "identity",
    ["1", "0", "-7", "1.5", "123456789012345678901234567890", '"abc"', '"\\u00e9"', '""', "1e5"],
)
def test_the_id_comes_back_as_it_was(rig: Rig, identity: str) -> None:
    answer = rig.raw(ping(identity))
    assert answer == {"jsonrpc": "2.0", "id": json.loads(identity), "result": True}


@pytest.mark.parametrize("identity", ["true", "false", "[]", "{}", "[1]"])
def test_an_id_of_another_type_is_an_invalid_request(rig: Rig, identity: str) -> None:
    assert rig.raw(ping(identity)) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32600,
            "message": "Invalid Request: expected an id that is a text, a number or null",
        },
    }


def test_an_id_of_128_bytes_is_accepted_and_one_more_is_not(rig: Rig) -> None:
    assert rig.raw(ping(f'"{"x" * 126}"'))["result"] is True
    answer = rig.raw(ping(f'"{"x" * 127}"'))
    assert answer["error"]["code"] == -32600
    assert answer["error"]["message"] == "Invalid Request: the id is longer than 128 bytes"
    assert answer["id"] is None


@pytest.mark.parametrize(
    "text",
    ['{"method":"framework_wait_init"}', '{"method":"framework_wait_init","id":null}',
     '{"method":"no_such_method"}', '{"method":"framework_wait_init","params":{"x":1}}'],
)  # fmt: skip
def test_a_notification_has_no_answer(rig: Rig, text: str) -> None:
    assert rig.raw(text) is None


def test_a_notification_is_carried_out(rig: Rig) -> None:
    assert rig.raw('{"method":"spdk_kill_instance","params":{"sig_name":"SIGTERM"}}') is None
    assert rig.signals == [15]


def test_the_version_and_the_parameters_may_be_absent(rig: Rig) -> None:
    assert rig.raw('{"id":1,"method":"framework_wait_init"}')["result"] is True
    assert rig.raw('{"id":1,"method":"framework_wait_init","params":null}')["result"] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", "expected an object or a batch of objects"),
        ('"x"', "expected an object or a batch of objects"),
        ("null", "expected an object or a batch of objects"),
        ("{}", 'expected "method" to be a text'),
        ('{"id":1,"method":1}', 'expected "method" to be a text'),
        ('{"id":1,"method":"m","jsonrpc":"1.0"}', 'expected "jsonrpc" to be "2.0"'),
        ('{"id":1,"method":"m","jsonrpc":2.0}', 'expected "jsonrpc" to be "2.0"'),
        ('{"id":1,"method":"m","extra":1}', "unknown member 'extra'"),
        ("[]", "the batch is empty"),
    ],
)
def test_what_is_no_request_is_an_invalid_request(rig: Rig, text: str, message: str) -> None:
    answer = rig.raw(text)
    assert answer["error"] == {"code": -32600, "message": f"Invalid Request: {message}"}


@pytest.mark.parametrize(
    "text",
    [b"{", b'{"a":1,}', b"[1,]", b"{'a':1}", b"nul", b"+1", b"01", b"NaN", b"Infinity", b'{"a"}',
     b'"\xff"', b'"\x01"', b'"\\x"', b'"\\ud800"', b"{} {}", b"", b'{"id":1e999999,"method":"m"}',
     b"[" * 5000, b'{"a":' * 5000],
)  # fmt: skip
def test_what_is_not_json_is_a_parse_error_or_at_least_no_request(rig: Rig, text: bytes) -> None:
    answer = rig.raw(text)
    assert answer["error"]["code"] in (-32700, -32600)
    assert answer["id"] is None


def test_an_unknown_method_is_named_so(rig: Rig) -> None:
    assert rig.fail("no_such_method") == (-32601, "Method not found")


def test_a_method_of_the_start_is_refused_when_the_target_runs(rig: Rig) -> None:
    code, message = rig.fail("framework_start_init")
    assert code == -1
    assert message.startswith("Method may only be called before framework is initialized")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('{"name":"b"}', "filename is missing"),
        ('{"name":1,"filename":"f"}', "name: expected str, got int"),
        (
            '{"name":"b","filename":"f","block_size":"x"}',
            "block_size: expected int | null, got str",
        ),
        ('{"name":"b","filename":"f","block_size":-1}', "block_size: expected int >= 0"),
        ('{"name":"b","filename":"f","colour":1}', "colour is unknown"),
        ("[1,2]", "expected object, got array"),
        ("3", "expected object, got int"),
        ('"x"', "expected object, got str"),
    ],
)
def test_a_wrong_parameter_is_named(rig: Rig, params: str, message: str) -> None:
    answer = rig.raw(f'{{"id":1,"method":"bdev_uring_create","params":{params}}}')
    assert answer["error"] == {"code": -32602, "message": f"Invalid parameters: {message}"}


def test_a_wrong_parameter_inside_another_is_named_with_its_path(rig: Rig) -> None:
    assert rig.fail("nvmf_subsystem_add_ns", nqn="n", namespace={"bdev_name": 3}) == (
        -32602,
        "Invalid parameters: namespace.bdev_name: expected str, got int",
    )
    assert rig.fail("nvmf_subsystem_add_ns", nqn="n", namespace={}) == (
        -32602,
        "Invalid parameters: namespace.bdev_name is missing",
    )


def test_a_relaxed_method_ignores_unknown_parameters(rig: Rig) -> None:
    assert rig.call("nvmf_create_transport", trtype="tcp", no_such_option=[1, {"a": 2}]) is True


def test_a_batch_is_answered_in_order_without_its_notifications(rig: Rig) -> None:
    answers = rig.raw(
        '[{"id":1,"method":"framework_wait_init"}, {"method":"framework_wait_init"},'
        '7, {"id":"b","method":"nope"}]'
    )
    assert [answer["id"] for answer in answers] == [1, None, "b"]
    assert answers[0]["result"] is True
    assert answers[1]["error"]["code"] == -32600
    assert answers[2]["error"]["code"] == -32601


def test_a_batch_of_notifications_has_no_answer(rig: Rig) -> None:
    assert rig.raw('[{"method":"framework_wait_init"}]') is None


def test_an_answer_that_is_too_large_becomes_an_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def huge(context: object, params: object) -> str:
        return "x" * (33 << 20)

    monkeypatch.setitem(METHODS, "huge", Method("huge", huge, NoParams, False))
    code, message = rig.fail("huge")
    assert (code, message) == (-32603, "the answer is larger than 33554432 bytes")


def test_a_fault_of_ours_is_an_internal_error_and_no_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(context: object, params: object) -> str:
        raise ZeroDivisionError("secret")

    monkeypatch.setitem(METHODS, "broken", Method("broken", broken, NoParams, False))
    assert rig.fail("broken") == (-32603, "Internal error: ZeroDivisionError")
    assert rig.call("framework_wait_init") is True


def test_every_method_survives_hostile_parameters(rig: Rig) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    odd: list[object] = [
        None,
        True,
        -1,
        1 << 70,
        1.5,
        "",
        "\0",
        "x" * 3000,
        "é",
        [],
        {},
        [[]],
        {"a": {}},
    ]
    names = ["nqn", "name", "nsid", "namespace", "host", "listen_address", "size", "filename",
             "block_size", "num_blocks", "bdev_name", "trtype", "kind", "verb"]  # fmt: skip
    for method in METHODS:
        for _ in range(60):
            params = {rng.choice(names): rng.choice(odd) for _ in range(rng.randrange(5))}
            answer = rig.ask(method, **params)
            code = answer.get("error", {}).get("code")
            assert code != -32603, f"seed {seed}: {method} {params} {answer}"


def test_the_deepest_nesting_that_is_framed_is_handled(rig: Rig) -> None:
    deep = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    answer = rig.raw(f'{{"id":1,"method":"nvmf_create_transport","params":{{"trtype":{deep}}}}}')
    assert answer["error"]["code"] == -32602
