"""One step: its gate, loop, pipeline and router (PBK-014 to 016, 027 to 031)."""

from collections.abc import Sequence

from perdure.dialects.playbook.document import legacy, tasks, texts
from perdure.dialects.playbook.document.cursor import Cursor, anything
from perdure.dialects.playbook.document.results import results
from perdure.dialects.playbook.plan.durations import read_seconds
from perdure.dialects.playbook.run.ctx_merge import REDUCERS
from perdure.kernel.problems import guess

STEP = ("step", "desc", "spec", "loop", "tool", "next")
ROUTER_HINT = "Write next: {spec: {mode: exclusive}, arcs: [{step: name, when: …, args: {…}}]}."
BOUND_NAMES = ("index", "count", "parent", "id")


def step(look: Cursor, known: tasks.Known, names: Sequence[str]) -> None:
    body = look.value
    allowed = (*STEP, "set") if look.findings.is_io else STEP
    look.closed(allowed, "PBK-014", "a step", legacy.STEP)
    if "set" in allowed and "set" in body:
        tasks.assignments(look.at("set"), texts.CONTROL)
    if "tool" not in body and "next" not in body:
        look.problem("PBK-015", "a step needs 'tool' or 'next', or both")
    if "loop" in body and "tool" not in body:
        look.problem("PBK-016", "a loop needs 'tool': there is nothing to repeat")
    if "desc" in body:
        look.at("desc").has("a text", "PBK-014")
    iterator = None
    if "loop" in body:
        _loop(look.at("loop"))
        iterator = body["loop"].get("iterator", "") if isinstance(body["loop"], dict) else ""
    if "tool" in body:
        tasks.pipeline(look.at("tool"), str(body.get("step", "")), known, iterator)
    if "spec" in body and look.at("spec").has("a map", "PBK-014"):
        _spec(look.at("spec"))
    if "next" in body:
        router(look.at("next"), names)


def _spec(look: Cursor) -> None:
    spec = look.value
    if "next_mode" in spec:
        look.problem_of_key("PBK-031", "a step's spec has no 'next_mode'", "next_mode", hint="Use `next.spec.mode`.")
    if "timeout" in spec:
        _seconds(look.at("timeout"))
    look.members({"result": results, "effects_in_doubt": tasks.in_doubt})
    if spec.get("pool") is not None:
        look.at("pool").is_text("PBK-197")
    if spec.get("queue_ttl_s") is not None:
        _seconds(look.at("queue_ttl_s"))
    if "loop_mode" in spec:
        look.at("loop_mode").is_one_of(("local", "fanout"), "PBK-131")
    if "policy" in spec and look.at("policy").has("a map", "PBK-027"):
        _policy(look.at("policy"))
    refuse_directives(look, ("policy", "admit"))


def _seconds(look: Cursor) -> None:
    if read_seconds(look.value) is None:
        look.problem("PBK-193", f"{look.name} must be a number of seconds or a text like 30s, not {look.value!r}")


def _policy(look: Cursor) -> None:
    look.members({"admit": admission, "lifecycle": _lifecycle, "failure": _failure, "emit": anything})


def _lifecycle(look: Cursor) -> None:
    if look.has("a map", "PBK-193"):
        look.members(
            {
                "timeout_s": _seconds,
                "deadline_s": _seconds,
                "redelivery": lambda how: how.is_one_of(("resume", "restart"), "PBK-195"),
            }
        )


def _failure(look: Cursor) -> None:
    if look.has("a map", "PBK-109"):
        look.members({"mode": lambda mode: mode.is_one_of(("fail_fast", "best_effort"), "PBK-109")})


def admission(look: Cursor) -> None:
    hint = "Write admit: {rules: [{when: …, then: {allow: true}}, {else: {then: {allow: false}}}]}."
    if not look.has("a map", "PBK-027", hint):
        return
    look.closed(("rules", "mode", "on_deny"), "PBK-027", "'admit'")
    look.members(
        {
            "mode": lambda mode: mode.is_one_of(("exclusive", "inclusive"), "PBK-027"),
            "on_deny": lambda answer: answer.is_one_of(("pending", "discard"), "PBK-027"),
        }
    )
    if not isinstance(look.value.get("rules"), list) or not look.value["rules"]:
        look.problem("PBK-027", "'admit' needs a list 'rules' with at least one rule", hint=hint)
        return
    tasks.rules(look.at("rules"), "PBK-027", _allow, texts.CONTROL)


def _allow(look: Cursor) -> None:
    look.closed(("allow",), "PBK-027", "'then' of an admission rule")
    if "allow" not in look.value:
        look.problem("PBK-027", "'then' of an admission rule lacks 'allow'")
    else:
        look.at("allow").has("true or false", "PBK-027", "A literal: the guard decides, not the answer.")


def refuse_directives(look: Cursor, leaving_out: tuple[str, ...] = ()) -> None:
    """Task control belongs to tasks (PBK-009, 031)."""
    value = look.value
    if isinstance(value, dict):
        if "do" in value:
            look.problem_of_key(
                "PBK-031", "control directives belong to task policies", "do", hint="Use tool.spec.policy."
            )
        for name in value:
            if leaving_out != (name,):
                refuse_directives(look.at(name), leaving_out[1:] if leaving_out[:1] == (name,) else ())
    elif isinstance(value, list):
        for item in look.items():
            refuse_directives(item)


# Loops.


def _loop(look: Cursor) -> None:
    if not look.has("a map", "PBK-030", "Write loop: {in: …, iterator: name, spec: {mode: sequential}}."):
        return
    loop = look.value
    if "cursor" in loop:
        look.problem_of_key("PBK-114", "cursor loops are an extension that is not available", "cursor")
    look.closed(("in", "iterator", "spec", "cursor"), "PBK-030", "'loop'", legacy.LOOP)
    if "in" not in loop:
        look.problem("PBK-030", "'loop' lacks 'in'")
    elif isinstance(loop["in"], str | list):
        texts.data(look.at("in"), texts.CONTROL)
        if isinstance(loop["in"], str) and "{" not in loop["in"]:
            look.at("in").problem("PBK-030", "'in' is plain text, not a list", hint="Write a template or a list.")
    else:
        look.at("in").problem("PBK-030", "'in' must be a template or a list")
    if "iterator" not in loop:
        look.problem("PBK-030", "'loop' lacks 'iterator'")
    elif not (isinstance(loop["iterator"], str) and loop["iterator"].isidentifier()):
        look.at("iterator").problem("PBK-030", f"'iterator' must be a name, not {loop['iterator']!r}")
    elif loop["iterator"] in BOUND_NAMES:
        look.at("iterator").problem("PBK-030", f"'iterator' must not be {loop['iterator']!r}: iter has that already")
    if "spec" in loop and look.at("spec").has("a map", "PBK-030"):
        _loop_spec(look.at("spec"))


def _loop_spec(look: Cursor) -> None:
    refuse_directives(look)
    look.members(
        {
            "mode": lambda mode: mode.is_one_of(("sequential", "parallel"), "PBK-030"),
            "max_in_flight": _in_flight,
            "effects_in_doubt": tasks.in_doubt,
            "policy": _loop_policy,
            "reduce": _reduce,
            "result": results,
        }
    )


def _in_flight(look: Cursor) -> None:
    if texts.plain(look):
        message = f"'max_in_flight' must be a whole number or a template that gives one, not {look.value!r}"
        look.problem("PBK-030", message)
    elif isinstance(look.value, str):
        texts.data(look, texts.CONTROL)
    else:
        look.is_at_least(1, "PBK-030")


def _loop_policy(look: Cursor) -> None:
    if look.has("a map", "PBK-030"):
        look.members({"exec": lambda where: where.is_one_of(("local", "distributed"), "PBK-030")})


def _reduce(look: Cursor) -> None:
    if look.has("a map", "PBK-113"):
        for name in look.value:
            look.at(name).is_one_of(REDUCERS, "PBK-113")


# Routers.


def router(look: Cursor, names: Sequence[str]) -> None:
    if not isinstance(look.value, dict) or ("arcs" not in look.value and "step" in look.value):
        look.problem("PBK-028", "'next' must be a router with 'arcs'", hint=ROUTER_HINT)
        return
    look.closed(("spec", "arcs"), "PBK-028", "'next'")
    if "spec" in look.value and look.at("spec").has("a map", "PBK-028"):
        refuse_directives(look.at("spec"))
        look.at("spec").members({"mode": lambda mode: mode.is_one_of(("exclusive", "inclusive"), "PBK-028")})
    if "arcs" not in look.value:
        look.problem("PBK-028", "'next' lacks 'arcs'", hint=ROUTER_HINT)
    elif look.at("arcs").has("a list", "PBK-028", ROUTER_HINT):
        for arc in look.at("arcs").items():
            _arc(arc, names)


def _arc(look: Cursor, names: Sequence[str]) -> None:
    if not look.has("a map", "PBK-028", ROUTER_HINT):
        return
    takes_set = look.findings.is_io and "set" in look.value
    if takes_set:
        tasks.assignments(look.at("set"), texts.CONTROL)
    look.closed(("step", "when", "args", "spec", *(["set"] if takes_set else ())), "PBK-028", "an arc", legacy.ARC)
    if "step" not in look.value:
        look.problem("PBK-028", "an arc lacks 'step'")
    elif look.value["step"] not in names:
        target = look.value["step"]
        near = guess(target, names) if isinstance(target, str) else ""
        look.at("step").problem("PBK-028", f"there is no step {target!r}{near}", hint="Names are case-sensitive.")
    if "when" in look.value:
        texts.guard(look.at("when"), texts.CONTROL)
    if "args" in look.value and look.at("args").has("a map", "PBK-028"):
        texts.data(look.at("args"), texts.CONTROL)
    if "spec" in look.value and look.at("spec").has("a map", "PBK-028"):
        refuse_directives(look.at("spec"))
