"""Bodies passed between executions of one tree: they are copied, since values belong to one run (PBK-177, 202).

A caller lends the bodies that its arguments refer to; a child passes on those that its result and its `ctx` refer to.
Bodies of scope `execution` are not passed, except that a child's own result is always readable by its caller.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from perdure.dialects.playbook.state.events import Stored
from perdure.dialects.playbook.state.values import Value
from perdure.dialects.playbook.values import references
from perdure.dialects.playbook.values.references import CROSSING
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn

Lent = dict[str, Any]
"""A reference, when it expires, and its body or the path to it in the accompanying result."""

LARGEST_RESULT = 64 * 1024 * 1024
"""A larger result is passed as a reference only: it may not fit into memory."""


def lend(turn: Turn, value: Any) -> list[Lent]:
    """The bodies that a value refers to and that may leave this execution."""
    by_uri: dict[str, Lent] = {}
    for reference in references.references_in(value):
        uri = reference["ref"]
        stored = references.lookup(turn.body, uri)
        if stored is None or stored.scope not in CROSSING or uri in by_uri:
            continue
        body = stored.value.whole(turn.text)
        if stored.value.parts is not None and uri.endswith("/results"):
            body = body["results"]
        described = reference if stored.reference is None else jsontext.decode(stored.reference)
        by_uri[uri] = {"reference": described, "expires": stored.expires, "body": body}
    return list(by_uri.values())


def adopt(turn: Turn, lent_bodies: Iterable[Lent], result: Any = None) -> tuple[Stored, ...]:
    return tuple(_adopted(turn, reference, result) for reference in lent_bodies)


def _adopted(turn: Turn, lent_body: Lent, result: Any) -> Stored:
    reference = lent_body["reference"]
    body = lent_body["body"] if "body" in lent_body else _at(result, lent_body["of"])
    text = turn.keep(jsontext.encode(body))
    return Stored(reference["ref"], jsontext.encode(reference), text, reference["scope"], lent_body["expires"])


def _at(value: Any, path: list[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


# A child's end.


def wrap_result(turn: Turn, result: Value, ctx: dict[str, Any]) -> dict[str, Any]:
    """The result of an execution for its caller: the value itself, and `seen` if templates see less than that."""
    visible = result.read(turn.text)
    if result.weight > LARGEST_RESULT:
        return {"result": visible, "ctx": ctx}
    own_bodies = list(_own_bodies(turn, result))
    lent_bodies = [*own_bodies, *lend(turn, [visible, ctx])]
    envelope: dict[str, Any] = {"result": result.whole(turn.text) if own_bodies else visible, "ctx": ctx}
    if own_bodies:
        envelope["seen"] = visible
    if lent_bodies:
        envelope["references"] = lent_bodies
    return envelope


def _own_bodies(turn: Turn, result: Value) -> Iterator[Lent]:
    if result.reference is not None:
        of = [] if result.parts is None else ["results"]
        yield {"reference": jsontext.decode(result.reference), "expires": 0, "of": of}
    for index, part in enumerate(result.parts or ()):
        if part is not None and part.reference is not None:
            yield {"reference": jsontext.decode(part.reference), "expires": 0, "of": ["results", index]}


def unwrap_result(envelope: dict[str, Any]) -> tuple[dict[str, Any], list[Lent]]:
    """The end of a child as its caller sees it (PBK-202), and the bodies that were passed with it."""
    child = envelope["execution_id"]
    uri = references.ctx_uri(child)
    ctx = {**references.log_reference(uri, jsontext.encode(envelope["ctx"])), "scope": "workflow"}
    lent_bodies: list[Lent] = [{"reference": ctx, "expires": 0, "body": envelope["ctx"]}]
    visible = {
        "execution_id": child,
        "status": envelope["status"],
        "result": envelope.get("seen", envelope["result"]),
        "ctx": ctx,
    }
    return visible, [*lent_bodies, *envelope.get("references", ())]


def is_envelope(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= {"execution_id", "status", "result", "ctx"}
