"""Bodies of requests: JSON, YAML, or protocol buffers.

kubectl sends protocol buffers for a few kinds without asking whether they are understood. Only those kinds are read,
and only their fields that count here; answers are JSON.
"""

import base64
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.kernel.errors import UnfitInput
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.server.kubernetes.catalog_objects import check_metadata
from perdure.server.request_reading import read_json_text
from perdure.views.api_errors import UnsupportedMediaType
from perdure.views.errors import BadRequest
from perdure.views.resources.resource_list import read_resource_yaml

if TYPE_CHECKING:
    from perdure.server.calls import ApiCall
    from perdure.server.kubernetes.discovery import ApiResource

Object = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

TEXT, BYTES, TEXTS, BLOBS, FLAG = "text", "bytes", "texts", "blobs", "flag"
Fields = Mapping[int, tuple[str, Any]]  # by number: name, and what it is; a mapping is a message, in a list repeated

METADATA: Fields = {
    1: ("name", TEXT),
    2: ("generateName", TEXT),
    3: ("namespace", TEXT),
    5: ("uid", TEXT),
    6: ("resourceVersion", TEXT),
    11: ("labels", TEXTS),
    12: ("annotations", TEXTS),
}
MESSAGES: dict[str, Fields] = {
    "Namespace": {1: ("metadata", METADATA)},
    "ConfigMap": {1: ("metadata", METADATA), 2: ("data", TEXTS), 3: ("binaryData", BLOBS), 4: ("immutable", FLAG)},
    "Secret": {
        1: ("metadata", METADATA),
        2: ("data", BLOBS),
        3: ("type", TEXT),
        4: ("stringData", TEXTS),
        5: ("immutable", FLAG),
    },
    "SelfSubjectAccessReview": {
        1: ("metadata", METADATA),
        2: (
            "spec",
            {
                1: (
                    "resourceAttributes",
                    {
                        1: ("namespace", TEXT),
                        2: ("verb", TEXT),
                        3: ("group", TEXT),
                        4: ("version", TEXT),
                        5: ("resource", TEXT),
                        6: ("subresource", TEXT),
                        7: ("name", TEXT),
                    },
                ),
                2: ("nonResourceAttributes", {1: ("path", TEXT), 2: ("verb", TEXT)}),
            },
        ),
    },
    "SelfSubjectRulesReview": {1: ("metadata", METADATA), 2: ("spec", {1: ("namespace", TEXT)})},
    "SelfSubjectReview": {1: ("metadata", METADATA)},
    "DeleteOptions": {4: ("propagationPolicy", TEXT), 5: ("dryRun", [TEXT])},
}
ENVELOPE: Fields = {1: ("type", {1: ("apiVersion", TEXT), 2: ("kind", TEXT)}), 2: ("raw", BYTES)}


async def read_json(call: "ApiCall") -> Any:
    media_type = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == MEDIA_TYPE:
        return read_protobuf(call.raw_body)
    if media_type == "application/yaml":
        return await read_yaml(call)
    if media_type not in ("", "application/json"):
        raise UnsupportedMediaType(f"the body must be application/json, not {media_type!r}")
    return await done_aside(len(call.raw_body), partial(read_json_text, call.raw_body))


async def read_yaml(call: "ApiCall") -> Any:
    return await done_aside(len(call.raw_body) * WORK_OF_TEXT, partial(read_resource_yaml, call.raw_body))


def check_object(call: "ApiCall", resource: "ApiResource", body: Any) -> Object:
    """The object of a body, which is the one of the path."""
    kind = resource.kind
    if not isinstance(body, dict):
        raise BadRequest("the body must be an object")
    body = {"apiVersion": kind.api_version, "kind": kind.name, **body}
    if (body["apiVersion"], body["kind"]) != (kind.api_version, kind.name):
        named = f"{body['kind']} in version {body['apiVersion']}"
        raise BadRequest(
            f"the object is of kind {named}, and this path is for {kind.name} in version {kind.api_version}"
        )
    metadata = body.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise BadRequest("metadata: must be an object")
    own_name, namespace = metadata.get("name"), call.path.get("namespace", "")
    name = call.path.get("name") or own_name or ""
    if not isinstance(name, str) or (own_name and own_name != name):
        raise BadRequest(f"metadata.name: {str(own_name)[:80]!r} is not the name of the path, {name!r}")
    if kind.has_namespace:
        namespace = namespace or DEFAULT_NAMESPACE
        if metadata.get("namespace") not in (None, "", namespace):
            raise BadRequest(f"metadata.namespace: the object is not in the namespace of the path, {namespace!r}")
    metadata = {**metadata, "name": name}
    if kind.has_namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    checked = {**body, "metadata": metadata}
    check_metadata(checked)
    return checked


def read_version(metadata: Mapping[str, Any]) -> int | None:
    """The version that a writer has seen; None: it does not say."""
    text = metadata.get("resourceVersion")
    if text in (None, ""):
        return None
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20):
        raise UnfitInput("metadata.resourceVersion: must be a version that the server has given")
    return int(text)


def read_protobuf(text: bytes) -> dict[str, Any]:
    if not text.startswith(MAGIC):
        raise BadRequest(f"the body is not {MEDIA_TYPE}")
    try:
        envelope = _message(text[len(MAGIC) :], ENVELOPE)
        head = envelope.get("type", {})
        kind = str(head.get("kind", ""))
        fields = MESSAGES.get(kind)
        if fields is None:
            raise BadRequest(f"a {kind[:60] or 'body'} is read as JSON only", hint="Send application/json.")
        return {**head, **_message(envelope.get("raw", b""), fields)}
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise BadRequest(f"the body cannot be read: {error}") from None


def _message(text: bytes, fields: Fields) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for number, value in _parts(text):
        if number not in fields:
            continue
        name, kind = fields[number]
        match kind:
            case "texts" | "blobs":
                key, member = _member(value)
                result.setdefault(name, {})[key] = member.decode() if kind == TEXTS else _base64(member)
            case "flag":
                result[name] = bool(value)
            case "text":
                result[name] = _bytes(value).decode()
            case "bytes":
                result[name] = _bytes(value)
            case list():
                result.setdefault(name, []).append(_bytes(value).decode())
            case _:
                result[name] = _message(_bytes(value), kind)
    return result


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number is where a text is expected")
    return value


def _member(value: bytes | int) -> tuple[str, bytes]:
    parts = dict(_parts(_bytes(value)))
    return _bytes(parts.get(1, b"")).decode(), _bytes(parts.get(2, b""))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _parts(text: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message: their numbers and what they contain."""
    place = 0
    while place < len(text):
        tag, place = _number(text, place)
        match tag & 7:
            case 0:
                value, place = _number(text, place)
                yield tag >> 3, value
            case 1:
                place += 8
            case 2:
                size, place = _number(text, place)
                if place + size > len(text):
                    raise ValueError("a field is longer than its message")
                yield tag >> 3, text[place : place + size]
                place += size
            case 5:
                place += 4
            case _:
                raise ValueError("a field of an unknown type")


def _number(text: bytes, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = text[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
