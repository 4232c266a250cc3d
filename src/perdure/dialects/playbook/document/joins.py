"""`step.spec.join`: where branches come together (PBK-130)."""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.kernel.problems import guess

MODES = ("all", "any", "n")
HINT = "Write join: {from: [a, b], mode: all}."


def joins(look: Cursor) -> None:
    """`look` is at the workflow."""
    arcs = {item["step"]: _targets(item) for item in look.value if isinstance(item, dict) and _is_named(item)}
    for item in look.items():
        spec = item.value.get("spec") if isinstance(item.value, dict) else None
        if isinstance(spec, dict) and "join" in spec and _is_named(item.value):
            _join(item.at("spec").at("join"), item.value["step"], arcs)


def _is_named(step: Mapping[str, Any]) -> bool:
    return isinstance(step.get("step"), str)


def _targets(step: Mapping[str, Any]) -> Sequence[Any]:
    router = step.get("next")
    arcs = router.get("arcs") if isinstance(router, dict) else None
    return [arc.get("step") for arc in arcs if isinstance(arc, dict)] if isinstance(arcs, list) else []


def _join(look: Cursor, name: str, arcs: Mapping[str, Sequence[Any]]) -> None:
    if not look.has("a map", "PBK-130", HINT):
        return
    look.closed(("from", "mode", "n"), "PBK-130", "'join'")
    if "from" not in look.value:
        look.problem("PBK-130", "'join' lacks 'from'", hint=HINT)
    elif look.at("from").has("a list", "PBK-130", HINT):
        _branches(look.at("from"), name, arcs)
    mode = look.value.get("mode", "all")
    if "mode" in look.value and not look.at("mode").is_one_of(MODES, "PBK-130"):
        return
    if mode == "n":
        _count(look)
    elif "n" in look.value:
        look.problem_of_key("PBK-130", "'n' belongs to `mode: n`", "n")


def _branches(look: Cursor, name: str, arcs: Mapping[str, Sequence[Any]]) -> None:
    if not look.value:
        look.problem("PBK-130", "'from' needs at least one step")
    for index, item in enumerate(look.items()):
        source: Any = item.value
        if not isinstance(source, str) or source not in arcs:
            near = guess(source, tuple(arcs)) if isinstance(source, str) else ""
            item.problem("PBK-130", f"there is no step {source!r}{near}")
        elif source == name:
            item.problem("PBK-130", "a step cannot join itself")
        elif name not in arcs[source]:
            hint = f"Give it an arc to {name!r}, or leave it out."
            item.warn("PBK-130", f"no arc of step {source!r} leads here: it never delivers", hint=hint)
        elif source in look.value[:index]:
            item.problem("PBK-130", f"{source!r} is named twice")


def _count(look: Cursor) -> None:
    if "n" not in look.value:
        look.problem("PBK-130", "`mode: n` needs 'n', how many branches are waited for")
    elif look.at("n").is_at_least(1, "PBK-130") and isinstance(look.value.get("from"), list):
        most = len(look.value["from"])
        if look.value["n"] > most:
            look.at("n").problem("PBK-130", f"'n' is {look.value['n']}, and only {most} branches are named")
