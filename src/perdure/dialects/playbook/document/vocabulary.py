"""Which of the two vocabularies a document uses: the canonical one, or the one of profile "io" (10.4).

Only members that exist in one of the two count. A bare name does not (PBK-146): in a canonical document it is a mistake
and is reported as one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure.dialects.playbook.document.tool_forms import tasks_of
from perdure.documents.paths import Path
from perdure.expressions.jinja import Template
from perdure.kernel.lazy_regex import lazy_regex

OLD_EVENT = lazy_regex(r"""(?P<quote>['"])call\.(?P<end>done|error)(?P=quote)""")
PROFILES = ("io", "none")
BOUND_NAMES = ("index", "count", "parent", "id")  # of every iteration


class Vocabulary(msgspec.Struct):
    """Members of either vocabulary with their paths, in order."""

    io: list[tuple[str, Path]] = msgspec.field(default_factory=list)
    canonical: list[tuple[str, Path]] = msgspec.field(default_factory=list)

    @property
    def is_mixed(self) -> bool:
        return bool(self.io and self.canonical)

    def __iadd__(self, other: "Vocabulary") -> "Vocabulary":
        self.io += other.io
        self.canonical += other.canonical
        return self


def requested_profile(data: Mapping[str, Any]) -> str | None:
    """The profile that the document names: `executor.spec.compat`, or `metadata.compat`."""
    for path in (("executor", "spec"), ("metadata",)):
        place: Any = data
        for name in path:
            place = place.get(name) if isinstance(place, dict) else None
        if isinstance(place, dict) and place.get("compat") in PROFILES:
            return str(place["compat"])
    return None


def is_io(data: Any, workbook: Mapping[str, tuple[Path, Any]]) -> bool:
    """Whether the document is to be read in profile "io": it says so, or it uses only members of that profile."""
    if not isinstance(data, dict):
        return False
    requested = requested_profile(data)
    if requested is not None:
        return requested == "io"
    vocabulary = Vocabulary()
    for path, step in steps_of(data):
        vocabulary += step_vocabulary(step, path)
    for path, body in workbook.values():
        vocabulary += task_vocabulary(body, ("workbook", *path))
    return bool(vocabulary.io) and not vocabulary.canonical


def steps_of(data: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    workflow = data.get("workflow")
    for index, step in enumerate(workflow if isinstance(workflow, list) else ()):
        if isinstance(step, dict):
            yield ("workflow", index), step


def step_vocabulary(step: Mapping[str, Any], path: Path) -> Vocabulary:
    vocabulary = Vocabulary()
    for name in ("input", "set"):
        if name in step:
            vocabulary.io.append((name, (*path, name)))
    for task in tasks_of(str(step.get("step", "")), step.get("tool")):
        vocabulary += task_vocabulary(task.body, (*path, "tool", *task.path))
    for index, arc in enumerate(arcs_of(step)):
        at = (*path, "next", "arcs", index)
        if "set" in arc:
            vocabulary.io.append(("set", (*at, "set")))
        vocabulary.io += [("call.…", (*at, name)) for name in ("when", "args", "set") if has_old_event(arc.get(name))]
    return vocabulary


def arcs_of(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    router = step.get("next")
    arcs = router.get("arcs") if isinstance(router, dict) else None
    return [arc for arc in arcs if isinstance(arc, dict)] if isinstance(arcs, list) else []


def task_vocabulary(body: Any, path: Path) -> Vocabulary:
    vocabulary = Vocabulary()
    if not isinstance(body, dict):
        return vocabulary
    vocabulary.io += [(name, (*path, name)) for name in ("input", "set") if name in body]
    if isinstance(body.get("args"), dict | str):  # a list is a field of that name that belongs to the kind
        vocabulary.canonical.append(("args", (*path, "args")))
    for at, rule, then in rules_of(body, path):
        if "set" in then:
            vocabulary.io.append(("set", (*at, "set")))
        vocabulary.canonical += [(name, (*at, name)) for name in ("set_ctx", "set_iter") if name in then]
        names = Template([rule.get("when"), then]).reads.names
        if "output" in names:
            vocabulary.io.append(("output", at))
        if "outcome" in names:
            vocabulary.canonical.append(("outcome", at))
    return vocabulary


def rules_of(body: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """The well-formed rules of a task: the path of `then`, the rule, and its `then`."""
    spec = body.get("spec")
    policy = spec.get("policy") if isinstance(spec, dict) else None
    rules = policy.get("rules") if isinstance(policy, dict) else None
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        at: Path = (*path, "spec", "policy", "rules", index)
        place = rule
        if isinstance(rule, dict) and isinstance(rule.get("else"), dict):
            at, place = (*at, "else"), rule["else"]
        if isinstance(place, dict) and isinstance(place.get("then"), dict):
            yield (*at, "then"), rule, place["then"]


def has_old_event(value: Any) -> bool:
    match value:
        case str():
            return OLD_EVENT.search(value) is not None and "event" in Template(value).reads.names
        case dict():
            return any(has_old_event(inner) for inner in value.values())
        case list():
            return any(has_old_event(inner) for inner in value)
    return False
