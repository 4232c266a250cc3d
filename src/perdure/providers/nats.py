"""`nats`: one operation on the key-value store, the object store or a stream of a NATS server with JetStream.

A message is published under the task's idempotency key: the server drops a repetition (within the stream's window for
duplicates). Putting and deleting can be repeated. What is not JSON text is answered as text, or else as Base64.

It works in a subprocess: the library reads whatever a server sends, headers, lists and JSON, before anybody can count
it.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.jsontext import MOST_VALUES, has_too_many_values
from perdure.providers.context import TaskContext
from perdure.providers.databases.transaction import limited, subprocess_memory
from perdure.providers.failure import ProviderFailure
from perdure.providers.nats_connection import NatsConnector, nats_library
from perdure.providers.registry import DATABASE, Mode, Provider
from perdure.providers.task_outcomes import RESULT_LIMIT
from perdure.providers.text import readable

PREFIX = "Provider.Call.Nats"
MOST_NAMES = 100_000  # keys or objects of a list
_MEMORY = "256MB"  # of the library
ADDRESSES = ("url", "nats_url", "servers", "server")

Operation = Literal[
    "kv_get",
    "kv_put",
    "kv_delete",
    "kv_purge",
    "kv_keys",
    "object_get",
    "object_put",
    "object_delete",
    "object_info",
    "object_list",
    "js_publish",
    "js_get_msg",
    "js_stream_info",
]


class NatsRequest(msgspec.Struct):
    """What is asked for, besides the operation."""

    context: TaskContext
    bucket: str | None = None
    key: str | None = None
    value: Any = None
    name: str | None = None
    data: Any = None
    encoding: str = "utf-8"
    pattern: str | None = None
    subject: str | None = None
    stream: str | None = None
    seq: int | None = None
    headers: dict[str, str] | None = None

    def need(self, field: str, operation: str) -> Any:
        value = getattr(self, field)
        if value is None or value == "":
            raise _refusal("BadArguments", f"{operation} needs {field!r}")
        return value


async def nats(
    context: TaskContext,
    operation: Operation,
    auth: dict[str, Any] | None = None,
    url: str | list[str] | None = None,
    bucket: str | None = None,
    key: str | None = None,
    value: Any = None,
    name: str | None = None,
    data: Any = None,
    encoding: Literal["utf-8", "base64"] = "utf-8",
    pattern: str | None = None,
    subject: str | None = None,
    stream: str | None = None,
    seq: int | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Do one operation on a NATS server: `kv_…` in a bucket of keys, `object_…` in one of objects, `js_…` on a stream.

    `auth` has the address (`url`) and `token`, or `user` and `password`; perhaps `ca`, authorities in PEM.
    """
    request = NatsRequest(context, bucket, key, value, name, data, encoding, pattern, subject, stream, seq, headers)
    connector = _connector(auth or {}, url)
    library = nats_library(PREFIX)
    timeout = limited(timeout)
    try:
        async with asyncio.timeout(timeout):
            client = await connector.connect()
            try:
                return await _OPERATIONS[operation](client.jetstream(), request)
            finally:
                with suppress(TimeoutError, library.errors.Error):
                    await asyncio.wait_for(client.close(), 2)
    except TimeoutError:
        raise ProviderFailure(f"{PREFIX}.Timeout", f"{operation} took more than {timeout} s", retryable=True) from None
    except library.js.errors.NotFoundError as error:
        raise _refusal("NotFound", _missing(request, error)) from None
    except library.js.errors.APIError as error:
        raise _refusal("Refused", f"the NATS server refuses it: {error.description}") from None
    except library.errors.Error as error:
        raise ProviderFailure(f"{PREFIX}.ConnectionFailed", f"{operation}: {error}", retryable=True) from None


def _refusal(name: str, message: str) -> ProviderFailure:
    return ProviderFailure(f"{PREFIX}.{name}", message, retryable=False)


def _missing(request: NatsRequest, error: Exception) -> str:
    place = request.bucket or request.stream or request.subject
    return f"there is no such bucket, key, object, stream or message ({place!r}): {error}"


def _connector(auth: Mapping[str, Any], url: str | list[str] | None) -> NatsConnector:
    servers = url or next((auth[name] for name in ADDRESSES if auth.get(name)), None)
    if not servers:
        raise _refusal("BadArguments", "no server is named: give `url`, or an `auth` with one")
    named = [text.strip() for text in servers.split(",")] if isinstance(servers, str) else list(servers)
    named = [text if "://" in str(text) else f"nats://{text}" for text in named]
    if any(not text.startswith(("nats://", "tls://")) for text in named):
        raise _refusal("BadArguments", "the address of a NATS server begins with nats:// or tls://")
    login = {}
    if token := auth.get("token", auth.get("nats_token")):
        login = {"token": str(token)}
    elif user := auth.get("user", auth.get("username", auth.get("nats_user"))):
        login = {"user": str(user), "password": str(auth.get("password", auth.get("nats_password", "")))}
    authorities = auth.get("ca")
    return NatsConnector(named, login, "perdure", authorities if isinstance(authorities, str) else None, PREFIX)


# Values.


def _bytes(value: Any, encoding: str) -> bytes:
    if encoding == "base64":
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise _refusal("BadArguments", "with the encoding base64 the data must be Base64") from None
    return value.encode() if isinstance(value, str) else jsontext.encode(value)


def _answer(data: bytes | None, name: str, encoding: str = "utf-8") -> dict[str, Any]:
    """JSON as the value, other text as text, anything else as Base64, which the answer says."""
    data = data or b""
    if len(data) > RESULT_LIMIT:
        raise _refusal("TooLarge", f"it has {len(data)} bytes, {RESULT_LIMIT} are read")
    if has_too_many_values(data):
        raise _refusal("TooLarge", f"it has more than {MOST_VALUES} values")
    if encoding == "base64":
        return {name: base64.b64encode(data).decode(), "encoding": "base64"}
    try:
        return {name: jsontext.read_strict(data)} if data else {name: None}
    except jsontext.NotJson:
        text, kind = readable(data)
        return {name: text, "encoding": kind} if kind else {name: text}


# Keys.


async def _get_key(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, key = request.need("bucket", "kv_get"), request.need("key", "kv_get")
    store = await streams.key_value(bucket)
    errors = nats_library(PREFIX).js.errors
    try:
        entry = await store.get(key)
    except errors.KeyNotFoundError:
        return {"status": "not_found", "bucket": bucket, "key": key, "value": None}
    return {
        "status": "success", "bucket": bucket, "key": key, **_answer(entry.value, "value"), "revision": entry.revision
    }  # fmt: skip


async def _put_key(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, key = request.need("bucket", "kv_put"), request.need("key", "kv_put")
    revision = await (await streams.key_value(bucket)).put(key, _bytes(request.value, request.encoding))
    return {"status": "success", "bucket": bucket, "key": key, "revision": revision}


async def _delete_key(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, key = request.need("bucket", "kv_delete"), request.need("key", "kv_delete")
    await (await streams.key_value(bucket)).delete(key)
    return {"status": "success", "bucket": bucket, "key": key}


async def _purge_key(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, key = request.need("bucket", "kv_purge"), request.need("key", "kv_purge")
    await (await streams.key_value(bucket)).purge(key)
    return {"status": "success", "bucket": bucket, "key": key}


async def _list_keys(streams: Any, request: NatsRequest) -> dict[str, Any]:
    """`pattern` is one of NATS: `*` is a part between dots, `>` is the rest."""
    bucket = request.need("bucket", "kv_keys")
    store = await streams.key_value(bucket)
    if (await store.status()).values > MOST_NAMES:
        raise _refusal("TooLarge", f"the bucket has more than {MOST_NAMES} keys")
    watcher = await store.watch(request.pattern or ">", ignore_deletes=True, meta_only=True)
    keys = []
    try:
        async for entry in watcher:
            if entry is None:  # all that there is has come
                break
            keys.append(entry.key)
    finally:
        await watcher.stop()
    return {"status": "success", "bucket": bucket, "keys": sorted(keys), "count": len(keys)}


# Objects.


async def _get_object(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, name = request.need("bucket", "object_get"), request.need("name", "object_get")
    store = await streams.object_store(bucket)
    info = await store.get_info(name)
    if (info.size or 0) > RESULT_LIMIT:
        raise _refusal("TooLarge", f"the object has {info.size} bytes, {RESULT_LIMIT} are read")
    content = await store.get(name)
    answer = _answer(content.data, "data", request.encoding)
    return {"status": "success", "bucket": bucket, "name": name, **answer, "size": info.size}


async def _put_object(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, name = request.need("bucket", "object_put"), request.need("name", "object_put")
    content = request.data if request.data is not None else request.value
    info = await (await streams.object_store(bucket)).put(name, _bytes(content, request.encoding))
    return {"status": "success", "bucket": bucket, "name": name, "size": info.size, "digest": info.digest}


async def _delete_object(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, name = request.need("bucket", "object_delete"), request.need("name", "object_delete")
    await (await streams.object_store(bucket)).delete(name)
    return {"status": "success", "bucket": bucket, "name": name}


async def _tell_object(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket, name = request.need("bucket", "object_info"), request.need("name", "object_info")
    info = await (await streams.object_store(bucket)).get_info(name)
    return {"status": "success", "bucket": bucket, **_object_facts(info)}


async def _list_objects(streams: Any, request: NatsRequest) -> dict[str, Any]:
    bucket = request.need("bucket", "object_list")
    objects = await (await streams.object_store(bucket)).list()
    if len(objects) > MOST_NAMES:
        raise _refusal("TooLarge", f"the bucket has more than {MOST_NAMES} objects")
    facts = [_object_facts(info) for info in objects if not info.deleted]
    return {"status": "success", "bucket": bucket, "objects": facts, "count": len(facts)}


def _object_facts(info: Any) -> dict[str, Any]:
    return {"name": info.name, "size": info.size, "digest": info.digest, "mtime": info.mtime, "chunks": info.chunks}


# Streams.


async def _publish(streams: Any, request: NatsRequest) -> dict[str, Any]:
    subject = request.need("subject", "js_publish")
    content = request.data if request.data is not None else request.value
    headers = {**(request.headers or {}), "Nats-Msg-Id": request.context.idempotency_key}
    receipt = await streams.publish(subject, _bytes(content, request.encoding), stream=request.stream, headers=headers)
    return {"status": "success", "stream": receipt.stream, "seq": receipt.seq, "duplicate": bool(receipt.duplicate)}


async def _get_message(streams: Any, request: NatsRequest) -> dict[str, Any]:
    stream = request.need("stream", "js_get_msg")
    if request.seq is None and not request.subject:
        raise _refusal("BadArguments", "js_get_msg needs 'seq', or 'subject' for the last message of it")
    message = await streams.get_msg(stream, request.seq, subject=request.subject)
    return {
        "status": "success", "stream": stream, "subject": message.subject, "seq": message.seq,
        **_answer(message.data, "data", request.encoding), "headers": dict(message.headers or {}),
    }  # fmt: skip


async def _tell_stream(streams: Any, request: NatsRequest) -> dict[str, Any]:
    stream = request.need("stream", "js_stream_info")
    info = await streams.stream_info(stream)
    state = info.state
    return {
        "status": "success",
        "stream": stream,
        "config": {"name": info.config.name, "subjects": list(info.config.subjects or [])},
        "state": {
            "messages": state.messages, "bytes": state.bytes, "first_seq": state.first_seq,
            "last_seq": state.last_seq, "consumer_count": state.consumer_count,
        },
    }  # fmt: skip


_OPERATIONS: Mapping[str, Callable[[Any, NatsRequest], Awaitable[dict[str, Any]]]] = {
    "kv_get": _get_key,
    "kv_put": _put_key,
    "kv_delete": _delete_key,
    "kv_purge": _purge_key,
    "kv_keys": _list_keys,
    "object_get": _get_object,
    "object_put": _put_object,
    "object_delete": _delete_object,
    "object_info": _tell_object,
    "object_list": _list_objects,
    "js_publish": _publish,
    "js_get_msg": _get_message,
    "js_stream_info": _tell_stream,
}


def _memory() -> int:
    return subprocess_memory(_MEMORY)


PROVIDER = Provider.of("nats", nats, mode=Mode.ISOLATED, group=DATABASE, memory=_memory)
