"""One request in, one answer out: the rules of JSON-RPC 2.0, and the table of methods.

A method is a coroutine of a context and its parameters, which are a `msgspec.Struct`; unknown
parameters are errors unless the method is relaxed, as in SPDK.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
import structlog

from prestage.target.errors import TargetError
from prestage.target.rpc.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    WRONG_STATE,
    RpcError,
    from_exception,
    invalid_parameters,
)

if typing.TYPE_CHECKING:
    from prestage.target.rpc.context import Context

MAX_ID_BYTES = 128
MAX_ANSWER_BYTES = 32 << 20
MEMBERS = frozenset(("jsonrpc", "method", "params", "id"))

log = structlog.get_logger("prestage.rpc")


class Params(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of parameters: unknown ones are errors."""


class RelaxedParams(msgspec.Struct, kw_only=True):
    """Base of the parameters of relaxed methods: unknown ones are ignored."""


class NoParams(Params):
    """The method takes none."""


AnyParams = TypeVar("AnyParams", bound=msgspec.Struct)
Handler = Callable[["Context", Any], Awaitable[object]]


class Method(NamedTuple):
    """A method of the control socket."""

    name: str
    handler: Handler
    params: type[msgspec.Struct]
    startup_only: bool


METHODS: dict[str, Method] = {}


def method(
    params: type[AnyParams], *, startup_only: bool = False
) -> Callable[
    [Callable[[Context, AnyParams], Awaitable[object]]],
    Callable[[Context, AnyParams], Awaitable[object]],
]:
    """Register a coroutine as the method that has its name."""

    def register(
        handler: Callable[[Context, AnyParams], Awaitable[object]],
    ) -> Callable[[Context, AnyParams], Awaitable[object]]:
        name = handler.__name__
        assert name not in METHODS
        METHODS[name] = Method(name, handler, params, startup_only)
        return handler

    return register


class _Request(NamedTuple):
    id: bytes | None
    """The JSON text of the id; None: a notification."""
    method: str
    params: bytes


class _InvalidRequest(Exception):
    """The value is no request; `id` is what could be made out of its id."""

    def __init__(self, message: str, identity: bytes = b"null") -> None:
        self.id = identity
        super().__init__(message)


def answer_error(code: int, message: str, identity: bytes = b"null") -> bytes:
    """Return the JSON text of an error answer."""
    error = msgspec.json.encode({"code": code, "message": message})
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (identity, error)


async def handle(context: Context, value: bytes) -> tuple[bytes | None, bool]:
    """Answer one JSON value from the wire.

    Returns the JSON text of the answer, or None when there is none to give, and whether the
    connection is to be closed because the value was not JSON.
    """
    try:
        # Proves that all of it is JSON; below, its parts are decoded into what they must be.
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return answer_error(PARSE_ERROR, f"Parse error: {error}"), True
    if value[:1] == b"[":
        return await _handle_batch(context, value), False
    return await _handle_one(context, value), False


async def _handle_batch(context: Context, value: bytes) -> bytes | None:
    requests = msgspec.json.decode(value, type=list[msgspec.Raw])
    if not requests:
        return answer_error(INVALID_REQUEST, "Invalid Request: the batch is empty")
    answers: list[bytes] = []
    size = 0
    for request in requests:
        answer = await _handle_one(context, bytes(request))
        if answer is not None:
            size += len(answer) + 1
            if size > MAX_ANSWER_BYTES:
                message = f"the answers are larger than {MAX_ANSWER_BYTES} bytes"
                return answer_error(INTERNAL_ERROR, message)
            answers.append(answer)
    return b"[" + b",".join(answers) + b"]" if answers else None


async def _handle_one(context: Context, value: bytes) -> bytes | None:
    try:
        request = _parse(value)
    except _InvalidRequest as error:
        return answer_error(INVALID_REQUEST, f"Invalid Request: {error}", error.id)
    try:
        result = msgspec.json.encode(await _call(context, request))
        if len(result) > MAX_ANSWER_BYTES:
            raise RpcError(INTERNAL_ERROR, f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    except RpcError as error:
        log.info("request failed", method=request.method, code=error.code, reason=error.message)
        return request.id and answer_error(error.code, error.message, request.id)
    return request.id and b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (request.id, result)


def _parse(value: bytes) -> _Request:
    if value[:1] != b"{":
        raise _InvalidRequest("expected an object or a batch of objects")
    members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    identity = bytes(members.get("id", msgspec.Raw(b"null")))
    if len(identity) > MAX_ID_BYTES:
        raise _InvalidRequest(f"the id is longer than {MAX_ID_BYTES} bytes")
    if identity[:1] in b'{[tf"' and identity[:1] != b'"':
        raise _InvalidRequest("expected an id that is a text, a number or null")
    unknown = sorted(members.keys() - MEMBERS)
    if unknown:
        raise _InvalidRequest(f"unknown member {unknown[0][:80]!r}", identity)
    if "jsonrpc" in members and bytes(members["jsonrpc"]) != b'"2.0"':
        raise _InvalidRequest('expected "jsonrpc" to be "2.0"', identity)
    name = bytes(members.get("method", msgspec.Raw(b"")))
    if name[:1] != b'"':
        raise _InvalidRequest('expected "method" to be a text', identity)
    params = bytes(members.get("params", msgspec.Raw(b"null")))
    return _Request(
        id=None if identity == b"null" else identity,
        method=msgspec.json.decode(name, type=str),
        params=b"{}" if params == b"null" else params,
    )


async def _call(context: Context, request: _Request) -> object:
    found = METHODS.get(request.method)
    if found is None:
        raise RpcError(METHOD_NOT_FOUND, "Method not found")
    if found.startup_only:
        raise RpcError(
            WRONG_STATE,
            "Method may only be called before framework is initialized: "
            f"{found.name} was called after it",
        )
    try:
        params = msgspec.json.decode(request.params, type=found.params)
    except msgspec.ValidationError as error:
        raise invalid_parameters(explain(str(error))) from None
    try:
        return await found.handler(context, params)
    except (TargetError, OSError) as error:
        raise from_exception(error) from error
    except RpcError:
        raise
    except Exception as error:
        # A fault of ours must not take the control socket down, nor go unseen.
        log.exception("request broke", method=found.name)
        raise RpcError(INTERNAL_ERROR, f"Internal error: {type(error).__name__}") from error


def explain(message: str) -> str:
    """Rewrite a message of msgspec so that it opens with the parameter's name."""
    match = re.fullmatch(r"(?s)(.*?)(?: - at `\$\.?(.*)`)?", message)
    assert match is not None
    text, path = match[1].replace("`", ""), match[2] or ""
    prefix = f"{path}: " if path else ""
    if field := re.fullmatch(r"Object missing required field (.*)", text):
        return f"{prefix}{field[1]} is missing" if not path else f"{path}.{field[1]} is missing"
    if field := re.fullmatch(r"Object contains unknown field (.*)", text):
        return f"{path}.{field[1]} is unknown" if path else f"{field[1]} is unknown"
    return prefix + text[:1].lower() + text[1:]
