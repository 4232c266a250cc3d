"""Profile "io": translates `input`, `output` and `set` to the canonical vocabulary (PBK-158).

Happens before the checks, on a copy; `moved` says where the author wrote what was moved, so that a problem points to
the author's text. Afterwards `set` remains only where the canonical language has no equivalent: assignments to `ctx` on
a step or an arc, and values of a step's own in a task rule. Names and `output` are looked up when a run needs them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.dialects.playbook.document import vocabulary
from perdure.dialects.playbook.document.cursor import Cursor, Report
from perdure.dialects.playbook.document.field_aliases import replace_aliases
from perdure.dialects.playbook.document.tool_forms import tasks_of, workbook_entries
from perdure.documents.paths import Path
from perdure.kernel.lazy_regex import lazy_regex

CODE = "PBK-158"
NOT_SETTABLE = ("workload", "args", "event", "steps", "keychain", "output", "outcome", "results", "execution_id", "job")
AS_WITHOUT_RULES = [
    {"when": "{{ output.status == 'ok' }}", "then": {"do": "continue"}},
    {"else": {"then": {"do": "fail"}}},
]
EVENTS = {"done": "step.done", "error": "step.failed"}


class CanonicalDocument(msgspec.Struct):
    """A document in the canonical vocabulary, as it is validated."""

    data: Any
    is_io: bool = False
    moved: tuple[dict[Path, Path], ...] = ()  # the latest move first

    def written_path(self, path: Path) -> Path:
        """Where the author wrote what is now at `path`."""
        for moves in self.moved:
            for end in range(len(path), 0, -1):
                origin = moves.get(path[:end])
                if origin is not None:
                    path = (*origin, *path[end:])
                    break
        return path


def canonical_form(data: Any, report: Report) -> CanonicalDocument:
    """The document in the canonical vocabulary, which may be the document itself."""
    workbook = workbook_entries(data.get("workbook")) if isinstance(data, dict) else {}
    is_io = vocabulary.is_io(data, workbook)
    moves: tuple[dict[Path, Path], ...] = ()
    if is_io:
        translation = _Translation(data, report)
        data, moves = translation.translate(workbook), (translation.moved,)
    renamed: dict[Path, Path] = {}
    data = replace_aliases(data, renamed)
    return CanonicalDocument(data, is_io, (renamed, *moves) if renamed else moves)


class _Translation:
    def __init__(self, data: dict[str, Any], report: Report) -> None:
        self.cursor = Cursor(report, data)
        self.data = dict(data)
        self.moved: dict[Path, Path] = {}

    def translate(self, workbook: Mapping[str, tuple[Path, Any]]) -> dict[str, Any]:
        if isinstance(self.data.get("workflow"), list):
            self.data["workflow"] = list(self.data["workflow"])
        for path, step in vocabulary.steps_of(self.cursor.value):
            self._refuse_mixture(vocabulary.step_vocabulary(step, path), f"step {step.get('step')!r}")
            self.data["workflow"][path[-1]] = self._step(step, path)
        if workbook:
            self.data["workbook"] = _copied(self.data["workbook"])
            for name, (path, body) in workbook.items():
                self._refuse_mixture(
                    vocabulary.task_vocabulary(body, ("workbook", *path)), f"the workbook's task {name!r}"
                )
                if isinstance(body, dict):
                    _put(self.data["workbook"], path, self._task(body, ("workbook", *path), {}, ()))
        return self.data

    def _problem(self, path: Path, message: str, hint: str = "") -> None:
        Cursor(self.cursor.report, None, path).problem(CODE, message, hint=hint)

    def _refuse_mixture(self, vocabulary: vocabulary.Vocabulary, place: str) -> None:
        if vocabulary.is_mixed:
            (io_member, path), (canonical_member, _) = vocabulary.io[0], vocabulary.canonical[0]
            hint = "Write a step in one of the two: input, output, set, or args, outcome, set_ctx, set_iter."
            self._problem(path, f"{place} mixes two vocabularies: {io_member!r} and {canonical_member!r}", hint)

    def _map(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self._problem(path, f"{str(path[-1])!r} must be a map")
        return {}

    # Steps.

    def _step(self, step: dict[str, Any], path: Path) -> dict[str, Any]:
        new = {name: value for name, value in step.items() if name != "input"}
        step_input = self._map(step["input"], (*path, "input")) if "input" in step else {}
        if "input" in step and "tool" not in step:
            self._problem((*path, "input"), "'input' needs 'tool': there is no task to receive it")
        if "tool" in step:
            new["tool"] = _copied(step["tool"])
            for task in tasks_of(str(step.get("step", "")), step["tool"]):
                body = self._task(task.body, (*path, "tool", *task.path), step_input, (*path, "input"))
                new["tool"] = body if not task.path else _put(new["tool"], task.path, body)
        if "set" in step:
            new["set"] = self._ctx_only(step["set"], (*path, "set"))
        if isinstance(step.get("next"), dict):
            new["next"] = self._router(step["next"], (*path, "next"))
        for member in ("spec", "loop"):
            if member in step and vocabulary.has_old_event(step[member]):
                new[member] = _renamed(step[member])
        return new

    def _router(self, router: dict[str, Any], path: Path) -> dict[str, Any]:
        if not isinstance(router.get("arcs"), list):
            return router
        arcs = []
        for index, arc in enumerate(router["arcs"]):
            new = arc
            if isinstance(arc, dict):
                new = {
                    name: _renamed(value) if name in ("when", "args", "set") else value for name, value in arc.items()
                }
                if "set" in arc:
                    new["set"] = self._ctx_only(new["set"], (*path, "arcs", index, "set"))
            arcs.append(new)
        return {**router, "arcs": arcs}

    # Tasks.

    def _task(self, body: dict[str, Any], path: Path, step_input: dict[str, Any], origin: Path) -> dict[str, Any]:
        new = {name: value for name, value in body.items() if name != "input"}
        task_input = self._map(body["input"], (*path, "input")) if "input" in body else {}
        if ("input" in body or step_input) and "args" not in body:
            new["args"] = {**step_input, **task_input}
            self.moved[(*path, "args")] = (*path, "input") if "input" in body else origin
            self.moved |= {(*path, "args", name): (*origin, name) for name in step_input if name not in task_input}
        if "set" in new:
            new = self._with_assignments(new, _whole_results(self._map(new.pop("set"), (*path, "set"))), path)
        if any("set" in then for _, _, then in vocabulary.rules_of(new, path)):
            new["spec"] = self._spec(new["spec"], path)
        return new

    def _with_assignments(self, body: dict[str, Any], assignments: dict[str, Any], path: Path) -> dict[str, Any]:
        """`set` of a task belongs to each of its rules after which the pipeline goes on."""
        spec = body.get("spec") or {}
        policy = spec.get("policy", {"rules": AS_WITHOUT_RULES}) if isinstance(spec, dict) else None
        if not isinstance(policy, dict) or not isinstance(policy.get("rules"), list):
            return body  # the checks name what is wrong with it
        rules = _copied(policy["rules"])
        is_open = not any(isinstance(rule, dict) and "else" in rule for rule in rules)
        if is_open and policy.get("on_unmatched", "continue") == "continue":
            rules.append({"else": {"then": {"do": "continue"}}})
        body = {**body, "spec": {**spec, "policy": {**policy, "rules": rules}}}
        for at, _, then in vocabulary.rules_of(body, path):
            if then.get("do") in ("continue", "break", "jump"):
                own = then.get("set", {})
                if isinstance(own, dict):
                    then["set"] = {**assignments, **own}
                    added = [name for name in assignments if name not in own]
                    self.moved |= {(*at, "set", name): (*path, "set", name) for name in added}
                    if not own:
                        self.moved[(*at, "set")] = (*path, "set")
        return body

    def _spec(self, spec: dict[str, Any], path: Path) -> dict[str, Any]:
        rules = _copied(spec["policy"]["rules"])
        for at, _, then in vocabulary.rules_of({"spec": spec}, path):
            if "set" in then:
                _put(rules, at[len(path) + 3 :], self._then(then, at))
        return {**spec, "policy": {**spec["policy"], "rules": rules}}

    def _then(self, then: dict[str, Any], path: Path) -> dict[str, Any]:
        new = {name: value for name, value in then.items() if name != "set"}
        targets = {"ctx": "set_ctx", "iter": "set_iter", "step": "set"}
        for key, value in _whole_results(self._map(then["set"], (*path, "set"))).items():
            scope, name = self._target(key, (*path, "set", key))
            if scope:
                target = targets[scope]
                new[target] = {**new.get(target, {}), name: value}
                origin = (*path, "set")
                self.moved[(*path, target, name)] = self.moved.get((*origin, key), (*origin, key))
                self.moved.setdefault((*path, target), self.moved.get(origin, origin))
        return new

    # Assignments.

    def _target(self, key: str, path: Path) -> tuple[str, str]:
        """Which scope a key of `set` names, and the name in it; none when it names one that cannot be set."""
        scope, dot, name = key.partition(".")
        if not dot:
            return "ctx", key
        if scope in ("ctx", "iter", "step"):
            return scope, name
        if scope in NOT_SETTABLE:
            self._problem(path, f"{key!r} cannot be set", "`set` writes ctx, iter inside a loop, and step.")
            return "", ""
        return "ctx", key

    def _ctx_only(self, value: Any, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, inner in _whole_results(self._map(value, path)).items():
            scope, name = self._target(key, (*path, key))
            if scope == "ctx":
                result[name] = inner
                self.moved[(*path, name)] = (*path, key)
            elif scope:
                self._problem((*path, key), f"{key!r} cannot be set here: the pipeline has ended", "Set ctx instead.")
        return result


_WHOLE_OUTPUT = lazy_regex(r"\s*\{\{\s*output\s*\}\}\s*")


def _whole_results(assignments: dict[str, Any]) -> dict[str, Any]:
    """`{{ output }}` as a value to keep is the result."""
    return {
        name: "{{ output.data }}" if isinstance(value, str) and _WHOLE_OUTPUT.fullmatch(value) else value
        for name, value in assignments.items()
    }


def _copied(value: Any) -> Any:
    """A deep copy of maps and lists."""
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _put(document: Any, path: Path, value: Any) -> Any:
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return document


def _renamed(value: Any) -> Any:
    """Templates that compare the event's name, with the canonical names of events."""
    match value:
        case str() if vocabulary.has_old_event(value):
            return vocabulary.OLD_EVENT.sub(lambda old: f"{old['quote']}{EVENTS[old['end']]}{old['quote']}", value)
        case dict():
            return {name: _renamed(inner) for name, inner in value.items()}
        case list():
            return [_renamed(inner) for inner in value]
    return value
