"""One step: its gate, loop, pipeline and router (PBK-014 to 016, 027 to 031)."""

from collections.abc import Sequence

from perdure.dialects.playbook.document import legacy, tasks, texts
from perdure.dialects.playbook.document.cursor import Cursor, Rule, anything
from perdure.dialects.playbook.document.results import check_results
from perdure.dialects.playbook.document.vocabulary import BOUND_NAMES
from perdure.dialects.playbook.plan.durations import read_seconds
from perdure.dialects.playbook.run.ctx_merge import REDUCERS
from perdure.kernel.documents.problems import guess

STEP = ("step", "desc", "spec", "loop", "tool", "next")
ROUTER_HINT = "Write next: {spec: {mode: exclusive}, arcs: [{step: name, when: …, args: {…}}]}."
SETTINGS = ("policy", "pool", "queue_ttl_s", "loop_mode", "fanout", "join", *tasks.SETTINGS)
LOOP_MODES, CURSOR_MODES = ("sequential", "parallel"), ("cursor",)
CURSOR_KINDS = ("postgres", "sqlite", "duckdb")
FRAME = ("max_rows", "process", "row_concurrency", "max_attempts")
UPSTREAM_FRAME = ("max_seconds", "max_bytes", "lease_seconds", "heartbeat_seconds", "verify_ipc", "retry_mode")
LOOP_SETTINGS = ("mode", "max_in_flight", "policy", "reduce", *tasks.SETTINGS)


def check_step(cursor: Cursor, known_names: tasks.KnownNames, names: Sequence[str]) -> None:
    body = cursor.value
    sets = "set" in body and (cursor.report.is_io or cursor.report.is_moved((*cursor.path, "set")))
    cursor.closed((*STEP, "set") if sets else STEP, "PBK-014", "a step", legacy.STEP)
    if sets and cursor.at("set").has("a map", "PBK-152"):
        tasks.check_assignments(cursor.at("set"), texts.CONTROL)
    if "tool" not in body and "next" not in body:
        cursor.problem("PBK-015", "a step needs 'tool' or 'next', or both")
    if "loop" in body and "tool" not in body:
        cursor.problem("PBK-016", "a loop needs 'tool': there is nothing to repeat")
    if "desc" in body:
        cursor.at("desc").has("a text", "PBK-014")
    iterator = None
    if "loop" in body:
        _loop(cursor.at("loop"), known_names)
        iterator = body["loop"].get("iterator", "") if isinstance(body["loop"], dict) else ""
    if "tool" in body:
        tasks.check_pipeline(cursor.at("tool"), str(body.get("step", "")), known_names, iterator)
    if "spec" in body and cursor.at("spec").has("a map", "PBK-014"):
        _spec(cursor.at("spec"))
        if body["spec"].get("loop_mode") == "fanout" and "cursor" in (body.get("loop") or {}):
            cursor.at("spec").problem_of_key("PBK-114", "a cursor loop has no shards: it pulls its rows", "loop_mode")
    if "next" in body:
        check_router(cursor.at("next"), names)


def _spec(cursor: Cursor) -> None:
    spec = cursor.value
    if "next_mode" in spec:
        cursor.problem_of_key("PBK-031", "a step's spec has no 'next_mode'", "next_mode", hint="Use `next.spec.mode`.")
    if "timeout" in spec:
        _seconds(cursor.at("timeout"))
    cursor.check_members({"result": check_results, "effects_in_doubt": tasks.check_effects_in_doubt})
    if spec.get("pool") is not None:
        cursor.at("pool").is_text("PBK-197")
    if spec.get("queue_ttl_s") is not None:
        _seconds(cursor.at("queue_ttl_s"))
    if "loop_mode" in spec:
        cursor.at("loop_mode").is_one_of(("local", "fanout"), "PBK-131")
    if "policy" in spec and cursor.at("policy").has("a map", "PBK-027"):
        _policy(cursor.at("policy"))
    refuse_directives(cursor, ("policy", "admit"))
    cursor.warn_unread((*SETTINGS, *tasks.kind_names(cursor.value), *(name for name in spec if name == "next_mode")))


def _seconds(cursor: Cursor) -> None:
    if read_seconds(cursor.value) is None:
        cursor.problem("PBK-193", f"{cursor.name} must be a number of seconds or a text like 30s, not {cursor.value!r}")


def _policy(cursor: Cursor) -> None:
    rules = {"admit": check_admission, "lifecycle": _lifecycle, "failure": _failure, "emit": anything}
    cursor.check_members(rules)
    cursor.warn_unread(rules)


def _lifecycle(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-193"):
        rules: dict[str, Rule] = {
            "timeout_s": _seconds,
            "deadline_s": _seconds,
            "redelivery": lambda how: how.is_one_of(("resume", "restart"), "PBK-195"),
        }
        cursor.check_members(rules)
        cursor.warn_unread(rules)


def _failure(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-109"):
        cursor.check_members({"mode": lambda mode: mode.is_one_of(("fail_fast", "best_effort"), "PBK-109")})
        cursor.warn_unread(("mode",))


def check_admission(cursor: Cursor) -> None:
    hint = "Write admit: {rules: [{when: …, then: {allow: true}}, {else: {then: {allow: false}}}]}."
    if not cursor.has("a map", "PBK-027", hint):
        return
    cursor.closed(("rules", "mode", "on_deny"), "PBK-027", "'admit'")
    cursor.check_members(
        {
            "mode": lambda mode: mode.is_one_of(("exclusive", "inclusive"), "PBK-027"),
            "on_deny": lambda answer: answer.is_one_of(("pending", "discard"), "PBK-027"),
        }
    )
    if not isinstance(cursor.value.get("rules"), list) or not cursor.value["rules"]:
        cursor.problem("PBK-027", "'admit' needs a list 'rules' with at least one rule", hint=hint)
        return
    tasks.check_rules(cursor.at("rules"), "PBK-027", _allow, texts.CONTROL)


def _allow(cursor: Cursor) -> None:
    cursor.closed(("allow",), "PBK-027", "'then' of an admission rule")
    if "allow" not in cursor.value:
        cursor.problem("PBK-027", "'then' of an admission rule lacks 'allow'")
    else:
        cursor.at("allow").has("true or false", "PBK-027", "A literal: the guard decides, not the answer.")


def refuse_directives(cursor: Cursor, leaving_out: tuple[str, ...] = ()) -> None:
    """Task control belongs to tasks (PBK-009, 031)."""
    value = cursor.value
    if isinstance(value, dict):
        if "do" in value:
            cursor.problem_of_key(
                "PBK-031", "control directives belong to task policies", "do", hint="Use tool.spec.policy."
            )
        for name in value:
            if leaving_out != (name,):
                refuse_directives(cursor.at(name), leaving_out[1:] if leaving_out[:1] == (name,) else ())
    elif isinstance(value, list):
        for item in cursor.items():
            refuse_directives(item)


# Loops.


def _loop(cursor: Cursor, known_names: tasks.KnownNames) -> None:
    if not cursor.has("a map", "PBK-030", "Write loop: {in: …, iterator: name, spec: {mode: sequential}}."):
        return
    loop = cursor.value
    cursor.closed(("in", "iterator", "spec", "cursor"), "PBK-030", "'loop'", legacy.LOOP)
    if "cursor" in loop and "in" in loop:
        cursor.problem_of_key("PBK-114", "a loop has 'in' or 'cursor', not both", "cursor")
    elif "cursor" in loop:
        _cursor_loop(cursor, known_names)
    elif "in" not in loop:
        cursor.problem("PBK-030", "'loop' lacks 'in' (a list) or 'cursor' (rows that are claimed)")
    elif isinstance(loop["in"], str | list):
        texts.check_data(cursor.at("in"), texts.CONTROL)
        if isinstance(loop["in"], str) and "{" not in loop["in"]:
            cursor.at("in").problem("PBK-030", "'in' is plain text, not a list", hint="Write a template or a list.")
    else:
        cursor.at("in").problem("PBK-030", "'in' must be a template or a list")
    if "iterator" not in loop:
        cursor.problem("PBK-030", "'loop' lacks 'iterator'")
    elif not (isinstance(loop["iterator"], str) and loop["iterator"].isidentifier()):
        cursor.at("iterator").problem("PBK-030", f"'iterator' must be a name, not {loop['iterator']!r}")
    elif loop["iterator"] in BOUND_NAMES:
        cursor.at("iterator").problem("PBK-030", f"'iterator' must not be {loop['iterator']!r}: iter has that already")
    if "spec" in loop and cursor.at("spec").has("a map", "PBK-030"):
        _loop_spec(cursor.at("spec"), LOOP_MODES if "cursor" not in loop else CURSOR_MODES)


def _cursor_loop(cursor: Cursor, known_names: tasks.KnownNames) -> None:
    """A claim is checked as the task that it becomes: the same kinds, connections and credentials."""
    hint = "Write cursor: {kind: postgres, auth: name, claim: UPDATE … RETURNING …}, and spec: {mode: cursor}."
    written = cursor.at("cursor")
    if not (cursor.report.is_io or "cursor" in cursor.report.features):
        remedy = "Write `executor: {requires: {features: [cursor]}}`, or use profile io (`executor.spec.compat: io`)."
        message = "cursor loops are an extension that the document must ask for"
        cursor.problem_of_key("PBK-114", message, "cursor", hint=remedy)
        return
    if not written.has("a map", "PBK-114", hint):
        return
    spec = cursor.value.get("spec")
    if not isinstance(spec, dict) or spec.get("mode") != "cursor":
        cursor.problem("PBK-114", "a loop with 'cursor' needs 'mode: cursor' in its spec", hint=hint)
    kind = written.value.get("kind")
    if kind not in CURSOR_KINDS:
        message = f"there is no cursor driver {kind!r}; there are {', '.join(CURSOR_KINDS)}"
        (written.at("kind") if "kind" in written.value else written).problem("PBK-114", message, hint=hint)
        return
    if "claim" not in written.value:
        written.problem("PBK-114", "'cursor' lacks 'claim', the statement that claims rows and returns them", hint=hint)
        return
    if written.at("claim").is_text("PBK-114"):
        texts.check_data(written.at("claim"), texts.CLAIM)
    rest = {name: value for name, value in written.value.items() if name not in ("claim", "options")}
    tasks.check_task(Cursor(written.report, {**rest, "command": ""}, written.path), known_names)
    if "options" in written.value and written.at("options").has("a map", "PBK-114"):
        options = written.at("options")
        options.check_members({"max_iterations": lambda most: most.is_at_least(1, "PBK-114")})
        options.warn_unread(("max_iterations",))


def _frame(cursor: Cursor) -> None:
    if not cursor.has("a map", "PBK-114", "Write frame: {max_rows: 50}."):
        return
    numbers = ("max_rows", "row_concurrency", "max_attempts")
    cursor.check_members({name: lambda number: number.is_at_least(1, "PBK-114") for name in numbers})
    cursor.check_members({"process": lambda process: process.is_one_of(("row", "frame"), "PBK-114")})
    for name in cursor.value:
        if name in UPSTREAM_FRAME:
            message = f"{name!r} has no effect: max_rows bounds a frame, and tasks have limits of their own"
            cursor.at(name).warn("PBK-114", message)
    cursor.warn_unread((*FRAME, *UPSTREAM_FRAME))


def _loop_spec(cursor: Cursor, modes: Sequence[str]) -> None:
    refuse_directives(cursor)
    if "frame" in cursor.value and modes is LOOP_MODES:
        cursor.at("frame").problem("PBK-114", "'frame' belongs to a loop with 'cursor'")
    elif "frame" in cursor.value:
        _frame(cursor.at("frame"))
    cursor.check_members(
        {
            "mode": lambda mode: mode.is_one_of(modes, "PBK-030"),
            "max_in_flight": _in_flight,
            "effects_in_doubt": tasks.check_effects_in_doubt,
            "policy": _loop_policy,
            "reduce": _reduce,
            "result": check_results,
        }
    )
    cursor.warn_unread((*LOOP_SETTINGS, "frame", *tasks.kind_names(cursor.value)))


def _in_flight(cursor: Cursor) -> None:
    if texts.is_plain_text(cursor):
        message = f"'max_in_flight' must be a whole number or a template that gives one, not {cursor.value!r}"
        cursor.problem("PBK-030", message)
    elif isinstance(cursor.value, str):
        texts.check_data(cursor, texts.CONTROL)
    else:
        cursor.is_at_least(1, "PBK-030")


def _loop_policy(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-030"):
        cursor.check_members({"exec": lambda where: where.is_one_of(("local", "distributed"), "PBK-030")})
        cursor.warn_unread(("exec",))


def _reduce(cursor: Cursor) -> None:
    if cursor.has("a map", "PBK-113"):
        for name in cursor.value:
            cursor.at(name).is_one_of(REDUCERS, "PBK-113")


# Routers.


def check_router(cursor: Cursor, names: Sequence[str]) -> None:
    if not isinstance(cursor.value, dict) or ("arcs" not in cursor.value and "step" in cursor.value):
        cursor.problem("PBK-028", "'next' must be a router with 'arcs'", hint=ROUTER_HINT)
        return
    cursor.closed(("spec", "arcs"), "PBK-028", "'next'")
    if "spec" in cursor.value and cursor.at("spec").has("a map", "PBK-028"):
        refuse_directives(cursor.at("spec"))
        cursor.at("spec").check_members({"mode": lambda mode: mode.is_one_of(("exclusive", "inclusive"), "PBK-028")})
        cursor.at("spec").warn_unread(("mode", *(("on_no_match",) if cursor.report.is_io else ())))
    if "arcs" not in cursor.value:
        cursor.problem("PBK-028", "'next' lacks 'arcs'", hint=ROUTER_HINT)
    elif cursor.at("arcs").has("a list", "PBK-028", ROUTER_HINT):
        for arc in cursor.at("arcs").items():
            _arc(arc, names)


def _arc(cursor: Cursor, names: Sequence[str]) -> None:
    if not cursor.has("a map", "PBK-028", ROUTER_HINT):
        return
    takes_set = cursor.report.is_io and "set" in cursor.value
    if takes_set:
        tasks.check_assignments(cursor.at("set"), texts.CONTROL)
    cursor.closed(("step", "when", "args", "spec", *(["set"] if takes_set else ())), "PBK-028", "an arc", legacy.ARC)
    if "step" not in cursor.value:
        cursor.problem("PBK-028", "an arc lacks 'step'")
    elif cursor.value["step"] not in names:
        target = cursor.value["step"]
        near = guess(target, names) if isinstance(target, str) else ""
        cursor.at("step").problem("PBK-028", f"there is no step {target!r}{near}", hint="Names are case-sensitive.")
    if "when" in cursor.value:
        texts.check_guard(cursor.at("when"), texts.CONTROL)
    if "args" in cursor.value and cursor.at("args").has("a map", "PBK-028"):
        texts.check_data(cursor.at("args"), texts.CONTROL)
    if "spec" in cursor.value and cursor.at("spec").has("a map", "PBK-028"):
        refuse_directives(cursor.at("spec"))
