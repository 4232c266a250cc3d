"""Legacy constructs in the words of canonical v10, profile "io" (PBK-032), with a report of each change.

Legacy documents read results and inputs by bare names, as profile "io" does; so that is what they become. What has no
counterpart stays as it is, is reported, and is refused by the checks: nothing is changed or left out silently.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document.legacy_routing import Choice, convert_guard, read_choices, route
from perdure.dialects.playbook.document.tool_forms import lone_label
from perdure.documents import UnreadableText, read_document
from perdure.documents.paths import Path, spell
from perdure.documents.writer import write_document
from perdure.kernel.documents.validation import ConvertedConstruct, ConvertedDocument

STEP_MEMBERS = ("step", "desc", "spec", "loop", "tool", "next", "input", "set", "output", "result", "set_ctx")
NEVER_FIELDS = ("when", "case", "sink", "pipe", "save", "vars", "type", "retry", "name", "pagination")
RETRY_MEMBERS = {
    *("max_attempts", "attempts", "backoff_seconds", "initial_delay", "delay", "backoff_multiplier"),
    *("retry_on_status", "retryable_status_codes", "retry_on", "max_delay", "backoff"),
}
MODES = {"sequential": "sequential", "async": "parallel", "parallel": "parallel", "sequence": "sequential"}

_OPENING = re.compile(r"(?=(\{[{%]))")
_CLOSING = {"{{": "}}", "{%": "%}"}
_NAMES = (
    (re.compile(r"(?<![\w.\"'])vars\."), "ctx."),
    (re.compile(r"(?<![\w.\"'])outcome\.result\b"), "output.data"),
    (re.compile(r"(?<![\w.\"'])outcome\."), "output."),
)
_OWN_RESULT = re.compile(r"(?<![\w.\"'])(?:result|response)(?=\b(?!\s*\())")
_SUCCESS = re.compile(r"(output\.status\s*==\s*)([\"'])success\2")


def convert(text: bytes) -> ConvertedDocument:
    """The document without its legacy constructs, as far as they have a counterpart; nothing, if it cannot be read."""
    try:
        data = read_document(text).data
    except UnreadableText:
        return ConvertedDocument()
    converter = _Converter()
    converted = converter.document(data) if isinstance(data, dict) else data
    is_changed = any(change.is_done for change in converter.report)
    return ConvertedDocument(write_document(converted) if is_changed else None, tuple(converter.report))


class _Converter:
    def __init__(self) -> None:
        self.report: list[ConvertedConstruct] = []
        self._names = set[str]()  # of steps

    def _note(self, path: Path, message: str, *, is_done: bool = True) -> None:
        self.report.append(ConvertedConstruct(spell(path), message, is_done))

    # The document.

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        new = dict(data)
        if new.get("apiVersion") == "noetl.io/v1":
            new["apiVersion"] = "noetl.io/v2"
            self._note(("apiVersion",), "noetl.io/v1 is now noetl.io/v2")
        metadata = new.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and not metadata.get("path"):
            new["metadata"] = {**metadata, "path": metadata["name"]}
            self._note(("metadata",), "the name is also the path")
        if isinstance(new.get("vars"), dict) and isinstance(new.get("workload") or {}, dict):
            new["workload"] = {**new.pop("vars"), **(new.get("workload") or {})}
            self._note(("vars",), "the variables are members of `workload`: defaults that do not change")
        if isinstance(new.get("spec"), dict) and isinstance(new.get("workload") or {}, dict):
            new["workload"] = {**(new.get("workload") or {}), "spec": new.pop("spec")}
            self._note(("spec",), "a member of `workload`, which templates read by the same name")
        workflow = new.get("workflow")
        if isinstance(workflow, list):
            self._names = {str(step.get("step", step.get("name"))) for step in workflow if isinstance(step, dict)}
            steps = [new for index, step in enumerate(workflow) for new in self._step(step, ("workflow", index))]
            new["workflow"] = steps + self._implied_end(steps)
        workbook = new.get("workbook")
        if isinstance(workbook, list):
            new["workbook"] = {"tasks": dict(self._workbook(workbook))}
        if any(construct.is_done for construct in self.report):
            new = self._rename(new, ())
            executor = new.get("executor") or {}
            spec = executor.get("spec") or {} if isinstance(executor, dict) else None
            if isinstance(spec, dict) and "compat" not in spec:
                new["executor"] = {**executor, "spec": {**spec, "compat": "io"}}
                self._note(("executor", "spec"), "`compat: io`: names are looked up as legacy documents expect")
        return new

    def _implied_end(self, steps: list[Any]) -> list[dict[str, Any]]:
        """Legacy documents may lead to a step `end` that they do not have."""
        names = {step.get("step") for step in steps if isinstance(step, dict)}
        routers = [step["next"] for step in steps if isinstance(step, dict) and isinstance(step.get("next"), dict)]
        targets = [arc.get("step") for router in routers for arc in router.get("arcs") or () if isinstance(arc, dict)]
        if "end" in names or "end" not in targets:
            return []
        self._note(("workflow",), "a step `end`, to which an arc leads: `noop`")
        return [{"step": "end", "tool": {"kind": "noop"}}]

    def _workbook(self, entries: list[Any]) -> Iterator[tuple[str, Any]]:
        for index, entry in enumerate(entries):
            path: Path = ("workbook", index)
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                self._note(path, "an entry of the workbook needs a name", is_done=False)
                continue
            body = entry.get("tool")
            if not isinstance(body, dict):
                body = {name: value for name, value in entry.items() if name not in ("name", "tool", "type", "desc")}
                body["kind"] = entry.get("tool") or entry.get("type")
                self._note(path, "the members of the entry are fields of its task")
            yield entry["name"], self._task(body, path)

    # Steps.

    def _step(self, step: Any, path: Path) -> list[Any]:
        """The step, and others that its routing needs."""
        if not isinstance(step, dict):
            return [step]
        new = dict(step)
        if "step" not in new and isinstance(new.get("name"), str):
            new["step"] = new.pop("name")
            self._note((*path, "name"), "`step` names a step")
        self._collect_tool(new, path)
        self._guard(new, path)
        if isinstance(new.get("vars"), dict) and isinstance(new.get("set", {}), dict):
            new["set"] = new.get("set", {}) | {
                f"ctx.{name}": _own_result(value) for name, value in new.pop("vars").items()
            }
            self._note((*path, "vars"), "`set` assigns to `ctx` when the step has succeeded")
        if isinstance(new.get("loop"), dict):
            new["loop"] = self._loop(new["loop"], (*path, "loop"))
        added = self._route(new, path)
        self._collect_tasks(new, path)
        if "tool" not in new and "next" not in new:
            new["tool"] = {"kind": "noop"}
            self._note(path, "a step without a task and without `next` does nothing: `noop`")
        return [new, *added]

    def _collect_tool(self, step: dict[str, Any], path: Path) -> None:
        """A kind as a text, and fields of the task beside it."""
        kind = step.get("tool", step.get("type"))
        if isinstance(kind, str):
            step.pop("type", None)
            step["tool"] = {"kind": kind}
            self._note((*path, "tool"), "the kind is a member of `tool`")
        tool = step.get("tool")
        if not isinstance(tool, dict):
            return
        tool = dict(tool)
        legacy = [name for name in step if name not in (*STEP_MEMBERS, *NEVER_FIELDS)]
        for name in legacy:
            if name not in tool:
                tool[name] = step.pop(name)
                self._note((*path, name), f"{name!r} is a field of the task, in `tool`")
        step["tool"] = tool

    def _guard(self, step: dict[str, Any], path: Path) -> None:
        if "when" not in step:
            return
        when = convert_guard(step["when"])
        spec = step.get("spec") if isinstance(step.get("spec"), dict) else {}
        policy = spec.get("policy") if isinstance(spec.get("policy"), dict) else {}  # type: ignore[union-attr]
        if when is None or "admit" in policy:  # type: ignore[operator]
            self._note((*path, "when"), "write it as a rule of `spec.policy.admit`, as a template", is_done=False)
            return
        del step["when"]
        rules = [{"when": when, "then": {"allow": True}}, {"else": {"then": {"allow": False}}}]
        step["spec"] = {**spec, "policy": {**policy, "admit": {"on_deny": "discard", "rules": rules}}}  # type: ignore
        self._note((*path, "when"), "a rule of `spec.policy.admit`; a denied token is discarded")

    def _loop(self, loop: dict[str, Any], path: Path) -> dict[str, Any]:
        new = dict(loop)
        for legacy, name in (("element", "iterator"), ("collection", "in"), ("items", "in")):
            if legacy in new and name not in new:
                new[name] = new.pop(legacy)
                self._note((*path, legacy), f"`loop.{name}`")
        spec = dict(new["spec"]) if isinstance(new.get("spec"), dict) else {}
        mode = new.get("mode")
        if isinstance(mode, str) and mode in MODES:
            spec["mode"] = MODES[new.pop("mode")]
            self._note((*path, "mode"), "`loop.spec.mode`")
        if "max_in_flight" in new:
            spec["max_in_flight"] = new.pop("max_in_flight")
            self._note((*path, "max_in_flight"), "`loop.spec.max_in_flight`")
        if "pagination" in new:
            self._note(
                (*path, "pagination"), "pages are fetched with `jump` and `break` in the pipeline", is_done=False
            )
        return {**new, "spec": spec} if spec else new

    # Routing.

    def _route(self, step: dict[str, Any], path: Path) -> list[Any]:
        """Steps that the routing needs in addition."""
        router, choices = step.get("next"), list[Choice]()
        is_canonical = isinstance(router, dict) and "arcs" in router
        spec = step.get("spec") if isinstance(step.get("spec"), dict) else {}
        mode = spec.get("next_mode") if isinstance(spec, dict) else None
        if mode is not None and is_canonical:
            step["next"] = router = {**router, "spec": {**(router.get("spec") or {}), "mode": mode}}  # type: ignore
        if "case" in step:
            cases = read_choices(step["case"]) if isinstance(step["case"], list) and not is_canonical else None
            if cases is None:
                self._note(
                    (*path, "case"), "it does more than choose steps, or its guards are not templates", is_done=False
                )
            else:
                choices += [_reading_own_result(case) for case in cases]
                del step["case"]
                self._note((*path, "case"), "each case is an arc of `next`; the first whose guard holds is taken")
        if "next" in step and not is_canonical:
            others = read_choices(router or [])
            if others is None:
                self._note(
                    (*path, "next"), "it does more than choose steps, or its guards are not templates", is_done=False
                )
                return []
            choices += [_reading_own_result(choice) for choice in others]
            del step["next"]
            self._note((*path, "next"), "a router with `arcs`")
        if mode is not None:
            step["spec"] = {name: value for name, value in spec.items() if name != "next_mode"}  # type: ignore[union-attr]
            self._note((*path, "spec", "next_mode"), "`next.spec.mode`")
        if not choices:
            return []
        routed = route(str(step.get("step")), choices, mode, self._names)
        step["next"] = routed.router
        for added in routed.steps:
            self._names.add(added["step"])
            self._note((*path, "next"), f"step {added['step']!r} starts all steps of a choice, at the same time")
        return list(routed.steps)

    # Tasks.

    def _collect_tasks(self, step: dict[str, Any], path: Path) -> None:
        tool = step.get("tool")
        if isinstance(tool, dict):
            step["tool"] = self._task(tool, (*path, "tool"))
        elif isinstance(tool, list):
            step["tool"] = [self._labelled(item, (*path, "tool", index)) for index, item in enumerate(tool)]
        if isinstance(step.get("retry"), dict) and isinstance(step.get("tool"), dict):
            step["tool"] = self._with_retry(step["tool"], step.pop("retry"), (*path, "retry"))
        sink = step.get("sink")
        if (
            isinstance(sink, dict)
            and sink.keys() == {"tool"}
            and isinstance(sink["tool"], dict)
            and isinstance(step.get("tool"), dict)
        ):
            stored = self._task(sink["tool"], (*path, "sink", "tool"))
            step["tool"] = [{"name": f"{step.get('step')}_task", **step["tool"]}, {"name": "sink", **stored}]
            del step["sink"]
            self._note((*path, "sink"), "a task of its own at the end of the pipeline")
        for name in ("sink", "pipe", "save", "retry"):
            if name in step:
                self._note((*path, name), "it has no counterpart that would mean the same", is_done=False)

    def _labelled(self, item: Any, path: Path) -> Any:
        if isinstance(item, dict) and "kind" not in item and (label := lone_label(item)) is not None:
            return {label: self._task(item[label], (*path, label))}
        return self._task(item, path) if isinstance(item, dict) else item

    def _task(self, body: dict[str, Any], path: Path) -> dict[str, Any]:
        new = dict(body)
        if "kind" not in new and isinstance(new.get("type"), str):
            new["kind"] = new.pop("type")
            self._note((*path, "type"), "`kind`")
        if "args" in new and "input" not in new and isinstance(new["args"], dict):
            new["input"] = new.pop("args")
        if isinstance(new.get("retry"), dict):
            new = self._with_retry(new, new.pop("retry"), (*path, "retry"))
        spec = new.get("spec")
        policy = spec.get("policy") if isinstance(spec, dict) else None
        if isinstance(policy, dict) and isinstance(policy.get("rules"), list):
            rules = [self._rule(rule, (*path, "spec", "policy", "rules", i)) for i, rule in enumerate(policy["rules"])]
            new["spec"] = {**spec, "policy": {**policy, "rules": rules}}  # type: ignore[dict-item]
        kind = new.get("kind")
        if isinstance(kind, str) and kind == "iterator":
            self._note((*path, "kind"), "`loop` of the step repeats its tasks", is_done=False)
        elif isinstance(kind, str) and kind not in tools.KINDS and kind != tools.WORKBOOK:
            self._note((*path, "kind"), f"the kind {kind!r} is not known here", is_done=False)
        return new

    def _with_retry(self, body: dict[str, Any], retry: dict[str, Any], path: Path) -> dict[str, Any]:
        statuses = retry.get("retry_on_status", retry.get("retryable_status_codes"))
        kinds = retry.get("retry_on")
        unknown = sorted(retry.keys() - RETRY_MEMBERS)
        if unknown:
            names = ", ".join(f"`{name}`" for name in unknown)
            self._note(path, f"{names}: write rules of `spec.policy` with `do: retry`", is_done=False)
            return {**body, "retry": retry}
        attempts = retry.get("max_attempts", retry.get("attempts", 3))
        delays = ("backoff_seconds", "initial_delay", "delay", "backoff")
        delay = next((retry[name] for name in delays if isinstance(retry.get(name), int | float)), 1.0)
        backoff = "exponential" if retry.get("backoff_multiplier", 1) != 1 else "none"
        guard = "output.status == 'error'"
        if isinstance(statuses, list):
            guard += f" and output.http.status in {statuses!r}"
        if isinstance(kinds, list):
            guard += f" and output.error.kind in {[str(kind).removesuffix('_error') for kind in kinds]!r}"
        spec = body.get("spec") if isinstance(body.get("spec"), dict) else {}
        if isinstance(spec, dict) and "policy" in spec:
            self._note(path, "the task has rules already: add one with `do: retry`", is_done=False)
            return {**body, "retry": retry}
        then = {"do": "retry", "attempts": attempts, "backoff": backoff, "delay": delay}
        rules = [
            {"when": f"{{{{ {guard} }}}}", "then": then},
            {"when": "{{ output.status == 'error' }}", "then": {"do": "fail"}},
            {"else": {"then": {"do": "continue"}}},
        ]
        self._note(path, "a rule of `spec.policy` with `do: retry`")
        return {**body, "spec": {**spec, "policy": {"rules": rules}}}  # type: ignore[dict-item]

    def _rule(self, rule: Any, path: Path) -> Any:
        if not isinstance(rule, dict):
            return rule
        new = dict(rule)
        for legacy in ("expr", "eval", "if"):
            if legacy in new and "when" not in new and (guard := convert_guard(new[legacy])) is not None:
                del new[legacy]
                new["when"] = guard
                self._note((*path, legacy), "`when`")
        otherwise = new.get("else")
        if isinstance(otherwise, dict) and "then" not in otherwise and "do" in otherwise:
            new["else"] = {"then": otherwise}
            self._note((*path, "else"), "`else` has `then`")
        for place in (new, new.get("else")):
            if isinstance(place, dict) and isinstance(place.get("then"), dict):
                place["then"] = self._then(place["then"], (*path, "then"))
        return new

    def _then(self, then: dict[str, Any], path: Path) -> dict[str, Any]:
        assignments = dict(then["set"]) if isinstance(then.get("set"), dict) else {}
        for name, scope in (("set_vars", "ctx"), ("set_ctx", "ctx"), ("set_iter", "iter")):
            if isinstance(then.get(name), dict):
                assignments |= {f"{scope}.{key}": value for key, value in then[name].items()}
                if name == "set_vars":
                    self._note((*path, name), "`set` assigns to `ctx`")
        if then.get("backoff") == "fixed":
            then = {**then, "backoff": "none", "delay": then.get("delay", 1.0)}
            self._note((*path, "backoff"), "`none`, with a delay that stays the same")
        kept = {key: value for key, value in then.items() if key not in ("set", "set_vars", "set_ctx", "set_iter")}
        return {**kept, "set": assignments} if assignments else kept

    # Templates.

    def _rename(self, value: Any, path: Path) -> Any:
        match value:
            case str():
                new = _renamed(value)
                if new != value and "vars." in value:
                    self._note(path, "`vars` are in `ctx`")
                return new
            case dict():
                return {name: self._rename(inner, (*path, name)) for name, inner in value.items()}
            case list():
                return [self._rename(inner, (*path, index)) for index, inner in enumerate(value)]
        return value


def _reading_own_result(choice: Choice) -> Choice:
    arcs = [{**arc, "args": _own_result(arc["args"])} if "args" in arc else arc for arc in choice.arcs]
    return Choice(_own_result(choice.guard), arcs)


def _own_result(value: Any) -> Any:
    """A template that reads the result of its own step by the name `result`."""
    match value:
        case str():
            return _in_templates(value, lambda template: _OWN_RESULT.sub("output.data", template))
        case dict():
            return {name: _own_result(inner) for name, inner in value.items()}
        case list():
            return [_own_result(inner) for inner in value]
    return value


def _renamed(text: str) -> str:
    def rename(template: str) -> str:
        for pattern, name in _NAMES:
            template = pattern.sub(name, template)
        return _SUCCESS.sub(r"\1\2ok\2", template)

    return _in_templates(text, rename)


def _in_templates(text: str, change: Callable[[str], str]) -> str:
    """The text with its templates changed, in a time that grows with its length, however many are not closed."""
    last = {opening: text.rfind(closing) for opening, closing in _CLOSING.items()}
    parts: list[str] = []
    at = 0
    for match in _OPENING.finditer(text):
        begin, opening = match.start(), match[1]
        if begin >= at and begin + 2 <= last[opening]:
            end = text.find(_CLOSING[opening], begin + 2) + 2
            parts += [text[at:begin], change(text[begin:end])]
            at = end
    return "".join([*parts, text[at:]])
