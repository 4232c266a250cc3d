"""The pipeline of a step: labels, tasks, and the rules for their outcomes (PBK-017 to 026)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document import legacy, sensitive, texts
from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.results import check_results
from perdure.dialects.playbook.document.tool_forms import lone_label, tasks_of
from perdure.dialects.playbook.plan.durations import read_seconds
from perdure.dialects.playbook.plan.program import Directive
from perdure.dialects.playbook.plan.workload import overlay
from perdure.expressions.jinja import has_template
from perdure.kernel.documents.problems import guess

DIRECTIVES = tuple(task.value for task in Directive)
RETRY_ONLY = ("attempts", "backoff", "delay")
NEVER = ("loop", "next")
SETTINGS = ("timeout", "result", "resources", "effects_in_doubt")  # of a task, and of all tasks of a step or a loop


class KnownNames(msgspec.Struct, frozen=True):
    """What tasks may refer to: providers that are tool kinds, and entries of the workbook."""

    provides: Callable[[str], bool]
    kinds: Callable[[], Sequence[str]]
    workbook: Mapping[str, Any]
    lacks: Callable[[str], str | None] = lambda kind: (
        None
    )  # the package that must be installed before a kind can be used
    keychain: frozenset[str] = frozenset()
    refusal: Callable[[str], str | None] = lambda name: None  # why the operator does not allow a provider


def check_pipeline(cursor: Cursor, step: str, known_names: KnownNames, iterator: str | None) -> None:
    tool = cursor.value
    if isinstance(tool, list):
        _check_list(cursor)
    elif not cursor.has("a map", "PBK-017", "Write one task with `kind`, or a list of tasks."):
        return
    tasks = list(tasks_of(step, tool))
    labels = [task.label for task in tasks]
    for index, task in enumerate(tasks):
        inner = _at(cursor, task.path)
        if task.label in labels[:index]:
            inner.problem("PBK-018", f"the label {task.label!r} is used twice in this step")
        if "name" in task.body and task.path[-1:] != (task.label,):
            inner.at("name").is_text("PBK-018")
        check_task(inner, known_names)
        _policy(_workbook_entry(inner, known_names), labels, index, iterator)
    sensitive.check_rules([_workbook_entry(_at(cursor, task.path), known_names) for task in tasks], labels)


def _at(cursor: Cursor, path: Sequence[str | int]) -> Cursor:
    for part in path:
        cursor = cursor.at(part)
    return cursor


def _workbook_entry(cursor: Cursor, known_names: KnownNames) -> Cursor:
    """The body of the workbook entry that the task calls: its rules are checked where they are used."""
    body, depth = cursor.value, 0
    while isinstance(body, dict) and body.get("kind") == tools.WORKBOOK and depth <= len(known_names.workbook):
        entry = known_names.workbook.get(str(body.get("task")))
        if not isinstance(entry, dict):
            break
        body = overlay(entry, {name: body[name] for name in ("args", "spec") if name in body})
        depth += 1
    return Cursor(cursor.report, body, cursor.path)


def _check_list(cursor: Cursor) -> None:
    if not cursor.value:
        cursor.problem("PBK-018", "a pipeline needs at least one task")
    for item in cursor.items():
        if not item.has("a map", "PBK-017", "Write {name: label, kind: …} or {label: {kind: …}}."):
            continue
        if "kind" not in item.value and lone_label(item.value) is None:
            item.problem("PBK-017", "a task is {name: label, kind: …} or {label: {kind: …}} with exactly one label")


def check_task(cursor: Cursor, known_names: KnownNames) -> None:
    """A task body, in a pipeline or in the workbook."""
    body = cursor.value
    if "kind" not in body:
        cursor.problem("PBK-018", "the task lacks 'kind'")
        return
    kind = body["kind"]
    for name, remedy in legacy.TASK.items():
        if name in body:
            cursor.problem_of_key("PBK-020", f"a task has no member {name!r}", name, hint=f"Use {remedy}.")
    if not isinstance(kind, str):
        cursor.at("kind").problem("PBK-018", "'kind' must be a text")
        return
    if kind == tools.WORKBOOK:
        _call_of_workbook(cursor, known_names)
    elif kind in tools.KINDS:
        _fields(cursor, kind, tools.KINDS[kind])
        tools.KINDS[kind].check(cursor)
        missing = known_names.lacks(kind)
        if missing is not None:
            hint = f"To use it here: pip install '{missing}'."
            cursor.at("kind").warn("PBK-101", f"the kind {kind!r} cannot be used on this machine", hint=hint)
    elif not known_names.provides(kind):
        _unknown_kind(cursor.at("kind"), kind, known_names)
    if (refusal := _refusal(kind, known_names)) is not None:
        cursor.at("kind").problem("POLICY", refusal, hint="An operator can allow it; see docs/security.md.")
    if body.get("args") is not None and (
        texts.is_plain_text(cursor.at("args")) or not isinstance(body["args"], dict | str)
    ):
        cursor.at("args").problem(
            "PBK-020", f"'args' must be a map, not {body['args']!r}", hint="Write args: {name: value}."
        )
    for name in body:
        if name not in ("kind", "name", "spec", *legacy.TASK) and not tools.kind_of(kind).is_text(name, body[name]):
            texts.check_data(cursor.at(name), texts.FIELDS)
            sensitive.check_field(cursor.at(name), kind, known_names.keychain)
    if "spec" in body and cursor.at("spec").has("a map", "PBK-020"):
        _spec(cursor.at("spec"))
        cursor.at("spec").warn_unread(
            ("policy", *SETTINGS, *tools.kind_of(kind).settings, *kind_names(cursor.at("spec").value))
        )


def kind_names(spec: Mapping[str, Any]) -> list[str]:
    """Members of `spec` that are named after a kind: settings for tasks of that kind (PBK-036)."""
    return [name for name in spec if name in tools.KINDS]


def _refusal(kind: str, known_names: KnownNames) -> str | None:
    """Why the operator does not allow the kind, by its own name or by that of the provider behind it."""
    if kind == tools.WORKBOOK or (kind not in tools.KINDS and not known_names.provides(kind)):
        return None
    provider = (tools.kind_of(kind).provider or kind).format(kind=kind)
    refusal = known_names.refusal(provider)
    return None if refusal is None or known_names.refusal(kind) is None else refusal


def _unknown_kind(cursor: Cursor, kind: str, known_names: KnownNames) -> None:
    remedy = legacy.KINDS.get(kind)
    if remedy is not None:
        cursor.problem("PBK-032", f"{kind!r} is not a tool kind", hint=f"Use {remedy}.")
        return
    names = (*tools.KINDS, tools.WORKBOOK, *known_names.kinds())
    hint = f"There are: {', '.join(sorted(set(names)))}. Load further kinds with --load."
    cursor.problem("PBK-019", f"there is no tool kind {kind!r}{guess(kind, names)}", hint=hint)


def _fields(cursor: Cursor, kind: str, rules: tools.ToolKind) -> None:
    body = cursor.value
    for group in rules.required:
        if not any(body.get(name) is not None for name in group):
            cursor.problem("PBK-020", f"a {kind} task needs {' or '.join(repr(name) for name in group)}")
    for name, allowed_values in rules.choices.items():
        value = body.get(name)
        if value is not None and not (isinstance(value, str) and has_template(value)):
            cursor.at(name).is_one_of(allowed_values, "PBK-020")
    if rules.fields is None:
        return
    allowed = ("kind", "name", "spec", *sorted(rules.fields))
    for name in body:
        if name not in allowed and name not in legacy.TASK:
            near = guess(name, allowed)
            remedy = legacy.FIELDS.get(name)
            hint = f"Use {remedy}." if remedy else f"Allowed are: {', '.join(allowed)}."
            cursor.problem_of_key("PBK-020", f"a {kind} task has no field {name!r}{near}", name, hint=hint)


def _call_of_workbook(cursor: Cursor, known_names: KnownNames) -> None:
    body = cursor.value
    name = body.get("task")
    if not isinstance(name, str):
        cursor.problem("PBK-099", "a workbook task needs 'task', the name of an entry")
    elif name not in known_names.workbook:
        message = f"the workbook has no task {name!r}{guess(name, tuple(known_names.workbook))}"
        cursor.at("task").problem("PBK-099", message)


def check_effects_in_doubt(cursor: Cursor) -> None:
    """Whether an effect in doubt is performed again or waits for an operator."""
    cursor.is_one_of(("repeat", "hold"), "PBK-035")


def _spec(cursor: Cursor) -> None:
    cursor.check_members({"result": check_results, "effects_in_doubt": check_effects_in_doubt})
    timeout = cursor.value.get("timeout")
    for value in timeout.values() if isinstance(timeout, dict) else (timeout,):
        if value is not None and read_seconds(value) is None:
            cursor.at("timeout").problem(
                "PBK-193", f"a timeout is a number of seconds or a text like 30s, not {value!r}"
            )


# Rules.


def _policy(cursor: Cursor, labels: Sequence[str], index: int, iterator: str | None) -> None:
    spec = cursor.value.get("spec")
    if not isinstance(spec, dict) or "policy" not in spec:
        return
    policy = cursor.at("spec").at("policy")
    hint = "Write policy: {rules: [{when: …, then: {do: …}}, {else: {then: {do: …}}}]}."
    if not policy.has("a map", "PBK-021", hint):
        return
    if not isinstance(policy.value.get("rules"), list):
        policy.problem("PBK-021", "a task policy needs a list 'rules'", hint=hint)
        return
    policy.closed(("rules", "mode", "on_unmatched", "before", "after", "finally"), "PBK-026", "a task policy")
    if "mode" in policy.value:
        policy.at("mode").is_one_of(("exclusive",), "PBK-026")
    if "on_unmatched" in policy.value:
        policy.at("on_unmatched").is_one_of(("continue", "fail"), "PBK-026")
    for name in ("before", "after", "finally"):
        if policy.value.get(name):
            policy.at(name).problem("PBK-026", f"{name!r} is reserved")
    check_rules(policy.at("rules"), "PBK-022", lambda then: _then(then, labels, index, iterator), texts.POLICY)
    if policy.value["rules"] and not any(isinstance(rule, dict) and "else" in rule for rule in policy.value["rules"]):
        policy.warn("PBK-033", "no rule says `else`: an outcome that no rule matches continues, even an error")


def check_rules(cursor: Cursor, code: str, then: Callable[[Cursor], None], scope: frozenset[str]) -> None:
    """A list of `{when, then}`, the last perhaps `{else: {then}}`."""
    for index, rule in enumerate(cursor.items()):
        if not rule.has("a map", code):
            continue
        rule.closed(("when", "then", "else"), code, "a rule", legacy.RULE)
        has_when, has_else = "when" in rule.value, "else" in rule.value
        if has_when == has_else:
            which = "both" if has_when else "neither"
            rule.problem(code, f"a rule has either 'when' or 'else', not {which}")
        if has_when:
            texts.check_guard(rule.at("when"), scope)
            if "then" not in rule.value:
                rule.problem(code, "the rule lacks 'then'")
            elif rule.at("then").has("a map", code):
                then(rule.at("then"))
        if has_else:
            if index != len(cursor.value) - 1:
                rule.problem(code, "'else' must be the last rule")
            if rule.at("else").has("a map", code, "Write else: {then: {…}}."):
                inner = rule.at("else")
                if "then" not in inner.value:
                    inner.problem(code, "'else' lacks 'then'")
                elif inner.at("then").has("a map", code):
                    then(inner.at("then"))


def _then(cursor: Cursor, labels: Sequence[str], index: int, iterator: str | None) -> None:
    then = cursor.value
    writes = ("set_ctx", "set_iter", "set") if cursor.report.is_io else ("set_ctx", "set_iter")
    cursor.closed(("do", *RETRY_ONLY, "to", *writes), "PBK-024", "'then'", legacy.THEN)
    if "do" not in then:
        cursor.problem("PBK-023", "'then' lacks 'do'", hint=f"One of: {', '.join(DIRECTIVES)}.")
        return
    if not cursor.at("do").is_one_of(DIRECTIVES, "PBK-023"):
        return
    do = then["do"]
    for name in RETRY_ONLY:
        if name in then and do != "retry":
            cursor.problem_of_key("PBK-024", f"{name!r} belongs to `do: retry`", name)
    if "attempts" in then:
        cursor.at("attempts").is_at_least(1, "PBK-023")
    if "backoff" in then:
        cursor.at("backoff").is_one_of(("none", "linear", "exponential"), "PBK-023")
    if "delay" in then:
        _delay(cursor.at("delay"))
    _jump(cursor, labels, index)
    for name in writes:
        if name in then and cursor.at(name).has("a map", "PBK-023"):
            check_assignments(cursor.at(name), texts.POLICY)
            if name == "set_iter":
                _iter_only(cursor.at(name), iterator)


def _delay(cursor: Cursor) -> None:
    if texts.is_plain_text(cursor):
        cursor.problem(
            "PBK-023", f"'delay' must be a number of seconds or a template that gives one, not {cursor.value!r}"
        )
    elif isinstance(cursor.value, str):
        texts.check_data(cursor, texts.POLICY)
    elif cursor.has("a number", "PBK-023") and cursor.value < 0:
        cursor.problem("PBK-023", "'delay' must not be negative")


def _jump(cursor: Cursor, labels: Sequence[str], index: int) -> None:
    then = cursor.value
    if then["do"] != "jump":
        if "to" in then:
            cursor.problem_of_key("PBK-024", "'to' belongs to `do: jump`", "to")
        return
    if "to" not in then:
        cursor.problem("PBK-023", "`do: jump` needs 'to', a label of this step")
    elif then["to"] == "previous" and "previous" not in labels:
        if index == 0:
            cursor.at("to").problem("PBK-025", "the first task has no previous one")
    elif then["to"] not in labels:
        near = guess(str(then["to"]), labels)
        cursor.at("to").problem(
            "PBK-025", f"this step has no task {then['to']!r}{near}", hint=f"Labels: {', '.join(labels)}."
        )


def check_assignments(cursor: Cursor, scope: frozenset[str]) -> None:
    for name in cursor.value:
        if not all(name.split(".")):
            cursor.problem_of_key(
                "PBK-152", f"{name!r} is not a valid name: the parts of a dotted key must not be empty", name
            )
        texts.check_data(cursor.at(name), scope)


def _iter_only(cursor: Cursor, iterator: str | None) -> None:
    if iterator is None:
        cursor.problem("PBK-024", "'set_iter' needs a loop: this step has none", hint="Use set_ctx.")
    for name in cursor.value:
        if name.partition(".")[0] in ("index", "count", "parent", iterator):
            cursor.problem_of_key("PBK-105", f"iter.{name} is read-only", name)
