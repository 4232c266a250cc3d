"""Legacy routing (`case`, `next` as a name, a map or a list) as a router with arcs.

A legacy router is a list of choices. The first whose guard holds is taken, and all of its steps start. Arcs choose one
step (exclusive) or any number of them (inclusive), each by its own guard. So a choice that has several steps, beside
other choices, leads to a step of its own that only starts them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.dialects.playbook.document.texts import text_beside_templates

_COMPARED = re.compile(
    r"\s*\{\{(?P<expression>(?:(?!\}\}).)+)\}\}\s*(?P<operator>==|!=)\s*(?P<text>[^{}]+?)\s*", re.DOTALL
)
_BOOLEANS = ("true", "false")


class Choice(msgspec.Struct, frozen=True):
    guard: Any  # none: it is taken when it is reached
    arcs: Sequence[Mapping[str, Any]]  # without guards


def read_choices(router: Any) -> list[Choice] | None:
    """The choices that a legacy router means; none, if it also means something else."""
    match router:
        case str():
            return [Choice(None, [{"step": router}])]
        case {"step": str()}:
            return _arc(dict(router))
        case {"next": inner, **others} if not others:
            return read_choices(inner)
        case {"when": guard, "then": inner, **others} if not others.keys() - {"else"}:
            chosen = _all_of(inner)
            guard = convert_guard(guard)
            rest = read_choices(others["else"]) if "else" in others else []
            return None if chosen is None or rest is None or guard is None else [Choice(guard, chosen), *rest]
        case {"then": inner, **others} | {"else": inner, **others} if not others:
            chosen = _all_of(inner)
            return None if chosen is None else [Choice(None, chosen)]
        case list():
            read = [read_choices(inner) for inner in router]
            return None if None in read else [choice for choices in read for choice in choices or ()]
    return None


def _arc(arc: dict[str, Any]) -> list[Choice] | None:
    guard = None
    for name in ("when", "cond"):
        if guard is None and name in arc and (guard := convert_guard(arc.pop(name))) is None:
            return None
    if "args" not in arc and isinstance(arc.get("data"), dict):
        arc["args"] = arc.pop("data")
    return [Choice(guard, [arc])]


def _all_of(branch: Any) -> Sequence[Mapping[str, Any]] | None:
    """The arcs of a branch all of whose steps start; none, if some have conditions of their own."""
    choices = read_choices(branch)
    if not choices or any(choice.guard is not None for choice in choices):
        return None
    return [arc for choice in choices for arc in choice.arcs]


def convert_guard(guard: Any) -> Any:
    """Legacy guards may compare the text that a template gives with a text that follows it; none for other texts."""
    if not isinstance(guard, str) or not text_beside_templates(guard):
        return guard
    match = _COMPARED.fullmatch(guard)
    if match is None:
        return None
    text = match["text"]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    expression, operator = match["expression"].strip(), match["operator"]
    if text in _BOOLEANS:  # other engines write booleans in lower case
        return f"{{{{ (({expression}) | string | lower) {operator} {text!r} }}}}"
    return f"{{{{ (({expression}) | string) {operator} {text!r} }}}}"


class Routed(msgspec.Struct, frozen=True):
    router: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]  # that only start those of a choice


def route(step: str, choices: Sequence[Choice], mode: str | None, names: Iterable[str]) -> Routed:
    """`mode`: as the document says; `names` are taken by other steps."""
    if mode is None:
        choices = _joined(choices)
    guarded = [[_guarded(arc, choice.guard) for arc in choice.arcs] for choice in choices]
    arcs = [arc for choice in guarded for arc in choice]
    if mode == "inclusive" or len(choices) == 1 or len(arcs) == len(choices):
        several = len(choices) == 1 and len(arcs) > 1
        return Routed({"spec": {"mode": mode or ("inclusive" if several else "exclusive")}, "arcs": arcs}, ())
    taken = set(names)
    exclusive, steps = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for number, (choice, own) in enumerate(zip(choices, guarded, strict=True), 1):
        if len(own) == 1:
            exclusive += own
            continue
        name = next(name for name in _names(f"{step}_choice_{number}") if name not in taken)
        taken.add(name)
        arguments = {
            f"to_{index}": arc["args"] for index, arc in enumerate(choice.arcs) if isinstance(arc.get("args"), dict)
        }
        passed = [_passed(arc, f"to_{index}") for index, arc in enumerate(choice.arcs)]
        exclusive.append(_guarded({"step": name, **({"args": arguments} if arguments else {})}, choice.guard))
        steps.append({"step": name, "next": {"spec": {"mode": "inclusive"}, "arcs": passed}})
    return Routed({"spec": {"mode": "exclusive"}, "arcs": exclusive}, steps)


def _joined(choices: Sequence[Choice]) -> Sequence[Choice]:
    """Steps without guards that follow each other in a list all start."""
    joined = list[Choice]()
    for choice in choices:
        if joined and joined[-1].guard is None and choice.guard is None:
            joined[-1] = Choice(None, [*joined[-1].arcs, *choice.arcs])
        else:
            joined.append(choice)
    return joined


def _guarded(arc: Mapping[str, Any], guard: Any) -> Mapping[str, Any]:
    return dict(arc) if guard is None else {"step": arc["step"], "when": guard, **arc}


def _passed(arc: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Arguments are evaluated where the result of the step is known, and passed on."""
    if not isinstance(arc.get("args"), dict):
        return arc
    return {**arc, "args": {key: f"{{{{ args[{name!r}][{key!r}] }}}}" for key in arc["args"]}}


def _names(name: str) -> Iterable[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1
