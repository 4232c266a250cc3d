"""The document as a whole: root members, metadata, executor, workbook (PBK-001 to 013)."""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.dialects.playbook.document import keychain, legacy, steps, tasks, texts
from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.results import check_results
from perdure.dialects.playbook.document.tool_forms import workbook_entries
from perdure.dialects.playbook.document.vocabulary import PROFILES as PROFILES_OF_WORDS
from perdure.dialects.playbook.plan.durations import read_seconds
from perdure.dialects.playbook.plan.program import OnFailure, OnFinalFailure, OnStranded
from perdure.kernel.documents.problems import guess

# `step.spec.join`: where branches come together (PBK-130).

MODES = ("all", "any", "n")
HINT = "Write join: {from: [a, b], mode: all}."


def check_joins(cursor: Cursor) -> None:
    """`cursor` is at the workflow."""
    arcs = {item["step"]: _targets(item) for item in cursor.value if isinstance(item, dict) and _is_named(item)}
    for item in cursor.items():
        spec = item.value.get("spec") if isinstance(item.value, dict) else None
        if isinstance(spec, dict) and "join" in spec and _is_named(item.value):
            _join(item.at("spec").at("join"), item.value["step"], arcs)


def _is_named(step: Mapping[str, Any]) -> bool:
    return isinstance(step.get("step"), str)


def _targets(step: Mapping[str, Any]) -> Sequence[Any]:
    router = step.get("next")
    arcs = router.get("arcs") if isinstance(router, dict) else None
    return [arc.get("step") for arc in arcs if isinstance(arc, dict)] if isinstance(arcs, list) else []


def _join(cursor: Cursor, name: str, arcs: Mapping[str, Sequence[Any]]) -> None:
    if not cursor.has("a map", "PBK-130", HINT):
        return
    cursor.closed(("from", "mode", "n"), "PBK-130", "'join'")
    if "from" not in cursor.value:
        cursor.problem("PBK-130", "'join' lacks 'from'", hint=HINT)
    elif cursor.at("from").has("a list", "PBK-130", HINT):
        _branches(cursor.at("from"), name, arcs)
    mode = cursor.value.get("mode", "all")
    if "mode" in cursor.value and not cursor.at("mode").is_one_of(MODES, "PBK-130"):
        return
    if mode == "n":
        _count(cursor)
    elif "n" in cursor.value:
        cursor.problem_of_key("PBK-130", "'n' belongs to `mode: n`", "n")


def _branches(cursor: Cursor, name: str, arcs: Mapping[str, Sequence[Any]]) -> None:
    if not cursor.value:
        cursor.problem("PBK-130", "'from' needs at least one step")
    for index, item in enumerate(cursor.items()):
        source: Any = item.value
        if not isinstance(source, str) or source not in arcs:
            near = guess(source, tuple(arcs)) if isinstance(source, str) else ""
            item.problem("PBK-130", f"there is no step {source!r}{near}")
        elif source == name:
            item.problem("PBK-130", "a step cannot join itself")
        elif name not in arcs[source]:
            hint = f"Give it an arc to {name!r}, or leave it out."
            item.warn("PBK-130", f"no arc of step {source!r} leads here: it never delivers a token", hint=hint)
        elif source in cursor.value[:index]:
            item.problem("PBK-130", f"{source!r} is named twice")


def _count(cursor: Cursor) -> None:
    if "n" not in cursor.value:
        cursor.problem("PBK-130", "`mode: n` needs 'n', how many branches are waited for")
    elif cursor.at("n").is_at_least(1, "PBK-130") and isinstance(cursor.value.get("from"), list):
        most = len(cursor.value["from"])
        if cursor.value["n"] > most:
            cursor.at("n").problem("PBK-130", f"'n' is {cursor.value['n']}, and only {most} branches are named")


ROOT = ("apiVersion", "kind", "metadata", "keychain", "executor", "workload", "workflow", "workbook")
REQUIRED = ("apiVersion", "kind", "metadata", "workflow")
VERSIONS = ("noetl.io/v2", "noetl.io/v10")
EXECUTOR_SETTINGS = (
    *("entry_step", "final_step", "no_next_is_error", "loop_mode", "compat", "fanout", "policy", "pool"),
    "queue_ttl_s",
)
PROFILES = {"local": "local", "distributed": "distributed", "auto": "auto", "hybrid": "auto"}


def check_document(cursor: Cursor, known_names: tasks.KnownNames) -> None:
    if not cursor.has("a map", "PBK-001", "A playbook begins with apiVersion, kind and metadata."):
        return
    cursor.closed(ROOT, "PBK-001", "a playbook", legacy.ROOT)
    for name in REQUIRED:
        if name not in cursor.value:
            cursor.problem("PBK-001", f"a playbook lacks {name!r}")
    cursor.check_members(
        {
            "apiVersion": lambda version: version.is_one_of(VERSIONS, "PBK-002"),
            "kind": lambda kind: kind.is_one_of(("Playbook",), "PBK-002"),
            "metadata": _metadata,
            "keychain": keychain.check_keychain,
            "workload": _workload,
            "workbook": lambda workbook: _workbook(workbook, known_names),
        }
    )
    names = step_names(cursor.value.get("workflow"))
    if "workflow" in cursor.value:
        _workflow(cursor.at("workflow"), known_names, names)
    if "executor" in cursor.value:
        _executor(cursor.at("executor"), names)


_NEEDED_METADATA = "For example: metadata: {name: nightly, path: team/nightly}; other documents call it by its path."


def _metadata(cursor: Cursor) -> None:
    if not cursor.has("a map", "PBK-003"):
        return
    for name in ("name", "path"):
        if name not in cursor.value:
            cursor.problem("PBK-003", f"metadata lacks {name!r}", hint=_NEEDED_METADATA)
        else:
            cursor.at(name).is_text("PBK-003")
    cursor.check_members(
        {
            "description": lambda text: _is(text, (str,), "a text"),
            "version": lambda version: _is(version, (str, int, float), "a text or a number"),
            "tags": lambda tags: _is(tags, (list, str), "a list or a text"),
            "labels": lambda labels: _is(labels, (dict,), "a map"),
            "capabilities": lambda able: _is(able, (list,), "a list"),
        }
    )


def _is(cursor: Cursor, kinds: tuple[type, ...], expected: str) -> None:
    if not isinstance(cursor.value, kinds) or isinstance(cursor.value, bool):
        cursor.problem("PBK-003", f"{cursor.name} must be {expected}")


def _workload(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-011"):
        texts.check_workload(cursor)


# The workbook.


def _workbook(cursor: Cursor, known_names: tasks.KnownNames) -> None:
    if isinstance(cursor.value, dict):
        cursor.closed(("tasks",), "PBK-013", "the workbook")
    elif not isinstance(cursor.value, list):
        cursor.problem("PBK-013", "the workbook must be {tasks: {name: …}}")
    for name, (path, _) in workbook_entries(cursor.value).items():
        entry = cursor
        for part in path:
            if not isinstance(entry.value, dict | list) or (isinstance(entry.value, dict) and part not in entry.value):
                entry.problem("PBK-013", f"the entry {name!r} lacks {part!r}")
                break
            entry = entry.at(part)
        else:
            if entry.has("a map", "PBK-013"):
                tasks.check_task(entry, known_names)
                _refuse_circles(entry, name, known_names)


def _refuse_circles(cursor: Cursor, name: str, known_names: tasks.KnownNames) -> None:
    visited = {name}
    body = cursor.value
    while isinstance(body, dict) and body.get("kind") == "workbook":
        name = str(body.get("task"))
        if name in visited:
            cursor.problem("PBK-099", f"the workbook's task {name!r} calls itself")
            return
        visited.add(name)
        body = known_names.workbook.get(name)


# The workflow.


def step_names(workflow: Any) -> tuple[str, ...]:
    listed = workflow if isinstance(workflow, list) else ()
    return tuple(item["step"] for item in listed if isinstance(item, dict) and isinstance(item.get("step"), str))


def _workflow(cursor: Cursor, known_names: tasks.KnownNames, names: tuple[str, ...]) -> None:
    if not cursor.has("a list", "PBK-004"):
        return
    if not cursor.value:
        cursor.problem("PBK-004", "'workflow' needs at least one step")
    used_names: set[str] = set()
    for item in cursor.items():
        if not item.has("a map", "PBK-004", "A step begins with `step: name`."):
            continue
        name = item.value.get("step")
        if "step" not in item.value:
            item.problem("PBK-004", "the step lacks its name, 'step'")
        elif isinstance(name, bool):
            item.at("step").problem("PBK-005", f"the step's name is read as {name!r}", hint="Put it in quotes.")
        elif item.at("step").is_text("PBK-004"):
            if name in used_names:
                item.at("step").problem("PBK-004", f"there are two steps named {name!r}")
            used_names.add(name)
        steps.check_step(item, known_names, names)
    check_joins(cursor)


# The executor.


def _executor(cursor: Cursor, names: tuple[str, ...]) -> None:
    if not cursor.has("a map", "PBK-006"):
        return
    executor = cursor.value
    cursor.closed(("profile", "kind", "version", "requires", "spec"), "PBK-006", "'executor'")
    for name in ("profile", "kind"):
        if name in executor:
            cursor.at(name).is_one_of(tuple(PROFILES), "PBK-006")
    if "profile" in executor and "kind" in executor:
        meant = {PROFILES.get(str(executor["profile"])), PROFILES.get(str(executor["kind"]))}
        if len(meant) > 1:
            cursor.problem("PBK-006", "'profile' and 'kind' contradict each other", hint="Write `profile` alone.")
    if "requires" in executor and cursor.at("requires").has("a map", "PBK-008"):
        cursor.at("requires").check_members(
            {name: lambda listed: _are_texts(listed, "PBK-008") for name in ("tools", "features")}
        )
    if "spec" in executor and cursor.at("spec").has("a map", "PBK-006"):
        _executor_spec(cursor.at("spec"), names)


def _are_texts(cursor: Cursor, code: str) -> None:
    if cursor.has("a list", code):
        for item in cursor.items():
            item.has("a text", code)


def _executor_spec(cursor: Cursor, names: tuple[str, ...]) -> None:
    for name in ("entry_step", "final_step"):
        if name in cursor.value:
            _step_name(cursor.at(name), names)
    cursor.check_members(
        {
            "no_next_is_error": lambda switch: switch.has("true or false", "PBK-007"),
            "loop_mode": lambda mode: mode.is_one_of(("local", "fanout"), "PBK-131"),
            "compat": lambda profile: profile.is_one_of(PROFILES_OF_WORDS, "PBK-158"),
            "fanout": _fanout,
            "policy": _policy,
            "pool": _pool,
            "queue_ttl_s": _queue_ttl,
            "result": check_results,
            "effects_in_doubt": tasks.check_effects_in_doubt,
        }
    )
    steps.refuse_directives(cursor)
    cursor.warn_unread((*EXECUTOR_SETTINGS, *tasks.SETTINGS, *tasks.kind_names(cursor.value)))


def _step_name(cursor: Cursor, names: tuple[str, ...]) -> None:
    if not isinstance(cursor.value, str):
        cursor.problem("PBK-007", f"{cursor.name} must be the name of a step, not {cursor.value!r}")
    elif cursor.value not in names:
        cursor.problem("PBK-007", f"{cursor.name}: there is no step {cursor.value!r}{guess(cursor.value, names)}")


def _queue_ttl(cursor: Cursor) -> None:
    if cursor.value is not None:
        _seconds(cursor, "PBK-101")


def _pool(cursor: Cursor) -> None:
    if cursor.value is not None:
        cursor.is_text("PBK-197")


def _fanout(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-135"):
        cursor.closed(("fail_fast", "allow_partial", "max_job_retries", "max_shards"), "PBK-135", "'fanout'")
        for name in ("fail_fast", "allow_partial"):
            if name in cursor.value:
                cursor.at(name).has("true or false", "PBK-135")
        cursor.check_members(
            {
                "max_job_retries": lambda count: count.is_at_least(0, "PBK-135"),
                "max_shards": lambda count: count.is_at_least(1, "PBK-135"),
            }
        )


def _policy(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-009"):
        cursor.check_members({"completion": _completion, "limits": _limits, "lifecycle": _lifecycle})
        cursor.warn_unread(("completion", "limits", "lifecycle", "defaults", "results"))


def _completion(cursor: Cursor) -> None:
    if not cursor.has("a map", "PBK-009"):
        return
    cursor.closed(("on_failure", "on_stranded", "on_final_failure", "wait_timeout_s"), "PBK-009", "'completion'")
    for name, allowed in (("on_failure", OnFailure), ("on_stranded", OnStranded), ("on_final_failure", OnFinalFailure)):
        if name in cursor.value:
            cursor.at(name).is_one_of(tuple(member.value for member in allowed), "PBK-009")
    if cursor.value.get("wait_timeout_s") is not None:
        _seconds(cursor.at("wait_timeout_s"), "PBK-230")


def _lifecycle(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-193"):
        cursor.check_members({"timeout_s": lambda time: _seconds(time, "PBK-193")})
        cursor.warn_unread(("timeout_s",))


def _seconds(cursor: Cursor, code: str) -> None:
    if read_seconds(cursor.value) is None:
        cursor.problem(code, f"{cursor.name} must be a number of seconds, not {cursor.value!r}")


def _limits(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-009"):
        names = ("max_payload_bytes", "max_step_runs", "max_task_visits")
        for name in names:
            if name in cursor.value:
                cursor.at(name).is_at_least(1, "PBK-009")
        cursor.warn_unread(names)
