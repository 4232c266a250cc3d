"""Reading the body behind a reference: only when a task asks, and never without comparing its digest (PBK-174, 175)."""

from typing import Any, NamedTuple

from perdure.dialects.playbook.plan.workload import overlay
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.values import references
from perdure.dialects.playbook.values.jsonpath import BadPath, JsonPath
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload, Ref, digest
from perdure.kernel.turn import Turn

KINDS = ("result_ref", "temp_ref", "manifest")


class UnresolvedReference(Exception):
    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem


class ResolvedReference(NamedTuple):
    payload: Payload
    reference: bytes | None = None  # the reference, if the body is too large to be inlined


def resolve(turn: Turn, reference: Any) -> ResolvedReference:
    """`reference` is a reference object, a manifest, or a uri."""
    match reference:
        case {"kind": "manifest", "parts": list(parts)} if not _is_available(turn, reference.get("ref")):
            return ResolvedReference(jsontext.encode(_assembled(turn, reference, parts)))
        case {"ref": str(uri)} if reference.get("kind", "result_ref") in KINDS:
            return _read(turn, uri, _digest(reference))
        case str(uri):
            return _read(turn, uri, None)
    message = f"a reference is an object of kind result_ref or manifest, or its uri, not {_brief(reference)}"
    raise UnresolvedReference(error("schema", message, source="artifact"))


def _is_available(turn: Turn, uri: Any) -> bool:
    return isinstance(uri, str) and references.lookup(turn.body, uri) is not None


def _brief(reference: Any) -> str:
    return repr(reference) if len(repr(reference)) < 80 else f"a {type(reference).__name__}"


def _digest(reference: dict[str, Any]) -> str | None:
    meta = reference.get("meta")
    digest = meta.get("sha256") if isinstance(meta, dict) else None
    return digest if isinstance(digest, str) else None


def _read(turn: Turn, uri: str, expected: str | None) -> ResolvedReference:
    if not uri.startswith(references.SCHEME):
        message = f"{uri!r} is not readable here: references begin with {references.SCHEME}"
        raise UnresolvedReference(error("storage_access", message, "STORE_NOT_AVAILABLE", source="artifact"))
    stored = references.lookup(turn.body, uri)
    if stored is None:
        raise UnresolvedReference(missing(uri))
    value, read_text = stored.value, reader(turn, uri)
    if value.parts is not None:
        body = value.whole(read_text)
        return ResolvedReference(
            jsontext.encode(body["results"] if uri.endswith("/results") else body), stored.reference
        )
    text = read_text(value.payload)
    if expected is not None and digest(text).hex() != expected:
        raise UnresolvedReference(_mismatch(uri))
    return ResolvedReference(value.payload, stored.reference)


def reader(turn: Turn, uri: str) -> Reader:
    def read(payload: Payload) -> bytes:
        text = turn.find(payload)
        if text is None:
            raise UnresolvedReference(missing(uri))
        if isinstance(payload, Ref) and digest(text) != payload.digest:
            raise UnresolvedReference(_mismatch(uri))
        return text

    return read


def missing(uri: str) -> Error:
    message = f"the body of {uri} is not available: its scope has ended, or it belongs to another execution"
    return error("missing_reference", message, "REFERENCE_NOT_AVAILABLE", source="artifact")


def _mismatch(uri: str) -> Error:
    message = f"the body of {uri} is not what was stored: its digest differs"
    return error("storage_access", message, "DIGEST_MISMATCH", source="artifact")


def _assembled(turn: Turn, reference: dict[str, Any], parts: list[Any]) -> Any:
    """The parts of a manifest, put together as its strategy says (PBK-176)."""
    values: list[Any] = [_part(turn, part) if isinstance(part, dict) and part.get("ref") else None for part in parts]
    merge_path = reference.get("merge_path")
    if merge_path:
        try:
            path = JsonPath(str(merge_path))
        except BadPath as problem:
            raise UnresolvedReference(error("schema", f"merge_path: {problem}", source="artifact")) from None
        values = [path.read(value) for value in values]
    strategy = reference.get("strategy", "append")
    if strategy == "append":
        return values
    if strategy == "replace":
        return values[-1] if values else None
    expected_type, name = (list, "lists") if strategy == "concat" else (dict, "maps")
    if strategy not in ("concat", "merge") or not all(isinstance(value, expected_type) for value in values):
        message = f"a manifest with strategy {strategy!r} needs {name} as its parts"
        raise UnresolvedReference(error("schema", message, source="artifact"))
    if strategy == "concat":
        return [item for value in values for item in value]
    merged: Any = {}
    for value in values:
        merged = overlay(merged, value)
    return merged


def _part(turn: Turn, part: dict[str, Any]) -> Any:
    resolved = resolve(turn, {"kind": "result_ref", **part})
    return jsontext.decode(reader(turn, str(part["ref"]))(resolved.payload))
