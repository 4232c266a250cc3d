"""Bodies passed between executions of one tree: they are copied, since values belong to one run (PBK-177, 202).

A caller lends what its arguments mention; a child takes along what its result and its `ctx` mention. What is of scope
`execution` stays at home, except that a child's own result is always readable by the one who called it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from perdure.dialects.playbook.state.events import Stored
from perdure.dialects.playbook.state.values import Value
from perdure.dialects.playbook.values import references
from perdure.dialects.playbook.values.references import CROSSING
from perdure.kernel import jsontext
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
        held = references.lookup(turn.body, uri)
        if held is None or held.scope not in CROSSING or uri in by_uri:
            continue
        whole = held.value.whole(turn.text)
        if held.value.parts is not None and uri.endswith("/results"):
            whole = whole["results"]
        described = reference if held.reference is None else jsontext.decode(held.reference)
        by_uri[uri] = {"reference": described, "expires": held.expires, "body": whole}
    return list(by_uri.values())


def adopt(turn: Turn, lent: Iterable[Lent], result: Any = None) -> tuple[Stored, ...]:
    return tuple(_adopted(turn, reference, result) for reference in lent)


def _adopted(turn: Turn, lent: Lent, result: Any) -> Stored:
    reference = lent["reference"]
    body = lent["body"] if "body" in lent else _at(result, lent["of"])
    text = turn.keep(jsontext.encode(body))
    return Stored(reference["ref"], jsontext.encode(reference), text, reference["scope"], lent["expires"])


def _at(value: Any, path: list[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


# A child's end.


def wrap_result(turn: Turn, result: Value, ctx: dict[str, Any]) -> dict[str, Any]:
    """The result of an execution for its caller: the value itself, and `seen` if templates see less than that."""
    seen = result.read(turn.text)
    if result.weight > LARGEST_RESULT:
        return {"result": seen, "ctx": ctx}
    own = list(_own(turn, result))
    lent = [*own, *lend(turn, [seen, ctx])]
    envelope: dict[str, Any] = {"result": result.whole(turn.text) if own else seen, "ctx": ctx}
    if own:
        envelope["seen"] = seen
    if lent:
        envelope["references"] = lent
    return envelope


def _own(turn: Turn, result: Value) -> Iterator[Lent]:
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
    lent: list[Lent] = [{"reference": ctx, "expires": 0, "body": envelope["ctx"]}]
    seen = {
        "execution_id": child,
        "status": envelope["status"],
        "result": envelope.get("seen", envelope["result"]),
        "ctx": ctx,
    }
    return seen, [*lent, *envelope.get("references", ())]


def is_envelope(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= {"execution_id", "status", "result", "ctx"}
