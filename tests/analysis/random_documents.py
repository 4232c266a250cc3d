"""Random documents of each language, with every kind of step, for what analysis says of them (`plays.py`).

They begin with those that test the languages themselves, and add what decides findings: conditions that are constant,
negated or about counters, gates and waits without a limit, failures with literal codes, arcs that lead back.
"""

from random import Random
from typing import Any

from perdure.kernel.json_values import jsontext
from tests.dialects.flow.documents import call, cleanup, flow, inner, middleware, mock, retry, task, timeout
from tests.dialects.playbook.test_properties import NAMES
from tests.dialects.playbook.test_properties import document as any_playbook
from tests.dialects.story.test_random import document as any_story

Json = Any


# Playbooks.

_ARCS = (
    *("true", "false", "not ctx.x", "ctx.x == 1", "ctx.x != 1", "workload.w", "not workload.w", "workload.w == 1"),
    *("event.status == 'ok'", "event.status != 'ok'", "event.status == 'error'", "event.error is none"),
    *("event.name == 'step.done'", "event.name == 'loop.done'", "event.name == 'step.failed'", "event.name != 'x'"),
    *("event.status == 'ok' and ctx.x", "event.status == 'ok' or ctx.x", "not (event.status == 'ok')", "1 == 2"),
)
_GATES = (
    *("true", "false", "ctx.x", "ctx.y == 1", "not ctx.x", "workload.w", "not workload.w", "args.n == 1"),
    *("steps.a.runs == 1", "steps.b.status == 'ok'", "steps.a.status == 'failed'", "ctx.x and steps.a.runs == 1"),
    *("ctx.nothing.deep", "steps.c.runs > 0", "event.name == 'workflow.started'", "event.step == 'a'"),
)
_RULES = (
    *("outcome.status == 'ok'", "outcome.status == 'error'", "outcome.status != 'ok'", "true", "false"),
    *("_attempt == 1", "_attempt < 3", "outcome.error is none", "outcome.error.kind == 'unknown'", "iter.n == 1"),
    *("outcome.error.retryable", "outcome.status == 'ok' and ctx.x", "not (outcome.status == 'ok')", "workload.w"),
)


def playbook(random: Random) -> bytes:
    document = jsontext.decode(any_playbook(random))
    spec = document["executor"]["spec"]
    if random.random() < 0.6:
        spec["policy"]["completion"] = {
            name: value for name, value in spec["policy"]["completion"].items() if random.random() < 0.5
        }
    for step in document["workflow"]:
        _decide_arcs(random, step)
        if random.random() < 0.4:
            step["spec"]["policy"]["admit"] = _admission(random)
        for tool in step.get("tool", ()):
            ((label, work),) = tool.items()
            tool[label] = _task(random, work, len(step["tool"]), "loop" in step)
        if "in" in step.get("loop", ()) and random.random() < 0.5:
            step["loop"]["in"] = random.choice([[], [1], [1, 2], "{{ workload.none }}", "{{ [1] }}", "{{ 5 }}"])
        if "loop" in step and random.random() < 0.3:
            step["loop"]["spec"]["max_in_flight"] = random.choice([1, "{{ ctx.x }}", "{{ 2 }}"])
        if step["spec"].get("loop_mode") == "fanout" and random.random() < 0.7:
            step["spec"]["fanout"] = {
                "fail_fast": random.random() < 0.5,
                "allow_partial": random.random() < 0.5,
                **random.choice([{}, {"max_shards": 2}]),
            }
        may_wait = "admit" in step["spec"]["policy"] or "join" in step["spec"]
        if random.random() < (0.4 if may_wait else 0.1):
            step["spec"]["policy"]["lifecycle"] = {"deadline_s": random.choice([1, 5])}
    if random.random() < 0.2:
        spec["entry_step"] = random.choice(NAMES)
    if random.random() < 0.2:
        _write_io(random, document)
    return jsontext.encode(document)


def _write_io(random: Random, document: Json) -> None:
    """The same in the words of the profile "io": `set`, `output` and bare names."""
    document["executor"]["spec"]["compat"] = "io"
    for step in document["workflow"]:
        for arc in step["next"]["arcs"]:
            if random.random() < 0.3:
                arc["set"] = {"ctx.x": random.choice([1, "{{ ctx.y }}", "{{ ctx.nothing.deep }}"])}
            if random.random() < 0.2:
                arc["when"] = f"{{{{ {random.choice(('x', 'not x', 'y == 1', 'a', 'true'))} }}}}"
        if random.random() < 0.4:
            step["set"] = {"ctx.x": random.choice([1, 0, "{{ output }}", "{{ ctx.nothing.deep }}"])}
        for tool in step.get("tool", ()):
            for work in tool.values():
                for rule in work.get("spec", {}).get("policy", {}).get("rules", ()):
                    _rewrite_rule(rule)


def _rewrite_rule(rule: Json) -> None:
    then = rule["then"] if "then" in rule else rule["else"]["then"]
    if "when" in rule:
        rule["when"] = rule["when"].replace("outcome.", "output.")
    assigned = {
        f"{scope}.{name}": value for scope in ("ctx", "iter") for name, value in then.pop(f"set_{scope}", {}).items()
    }
    if assigned:
        then["set"] = assigned


def _decide_arcs(random: Random, step: Json) -> None:
    for arc in step["next"]["arcs"]:
        if random.random() < 0.5:
            arc["when"] = f"{{{{ {random.choice(_ARCS)} }}}}"
        if random.random() < 0.3:
            arc["step"] = random.choice(NAMES)


def _admission(random: Random) -> Json:
    rules = [
        {"when": f"{{{{ {random.choice(_GATES)} }}}}", "then": {"allow": random.random() < 0.7}}
        for _ in range(random.randint(1, 2))
    ]
    if random.random() < 0.3:
        rules.append({"else": {"then": {"allow": random.random() < 0.5}}})
    return {"rules": rules, "on_deny": random.choice(["pending", "pending", "discard"])}


def _task(random: Random, work: Json, count: int, has_loop: bool) -> Json:
    work = {**work, **random.choice([{}, {}, {"kind": "noop"}, {"kind": "fail"}])}
    if work["kind"] == "noop":
        work = {name: value for name, value in work.items() if name in ("kind", "spec")}
    if work["kind"] in ("slow", "say") and random.random() < 0.3:
        work.setdefault("spec", {})["timeout"] = random.choice([1, 3])
    for rule in work.get("spec", {}).get("policy", {}).get("rules", ()):
        if random.random() < 0.5:
            rule["when"] = f"{{{{ {random.choice(_RULES)} }}}}"
        if random.random() < 0.2:
            rule["then"] = {"do": "jump", "to": f"t{random.randrange(count)}"}
        if has_loop and random.random() < 0.1:
            rule["then"]["set_iter"] = {"n": "{{ (iter.n | default(0)) + 1 }}"}
    policy = work.get("spec", {}).get("policy")
    if policy is not None and random.random() < 0.4:
        do = random.choice(["continue", "break", "fail", "retry"])
        policy["rules"].append({"else": {"then": {"do": do, **({"attempts": 2} if do == "retry" else {})}}})
    elif policy is not None and random.random() < 0.3:
        policy["on_unmatched"] = "fail"
    return work


# Stories.

_IFS = (
    *("true", "false", "{{ true }}", "{{ false }}", "{{ not true }}", "{{ inputs.go }}", "{{ not inputs.go }}"),
    *("{{ eq 1 2 }}", "{{ eq inputs.n 1 }}", "maybe", "{{ eq (index inputs.list 9) 1 }}", "{{ gt (len steps) 0 }}"),
)
_UNTIL = (
    *("{{ true }}", "{{ false }}", "{{ inputs.go }}", "never", "{{ eq inputs.n 1 }}", "true"),
    *("{{ gt (len steps) 2 }}", "{{ and inputs.go false }}", "{{ or inputs.go true }}"),
)


def story(random: Random) -> Json:
    document = any_story(random)
    spec = document["spec"]
    if random.random() < 0.7:
        spec["policy"].pop("timeouts", None)
    names: list[str] = []
    for block in ("steps", "compensations", "finally"):
        for step in spec[block]:
            names.append(step["name"])
            _decide_step(random, step, names)
    return document


def _decide_step(random: Random, step: Json, names: list[str]) -> None:
    if random.random() < 0.25:
        step["if"] = random.choice(_IFS)
    with_block = step.get("with", {})
    match step.get("type"):
        case "gate" | "wait" as kind:
            if random.random() < 0.6:
                del with_block["timeout"]
            if kind == "wait" and random.random() < 0.6:
                other = random.choice(names)
                phase = random.choice(["Succeeded", "Failed", "Skipped"])
                about_steps = f'{{{{ {random.choice(["eq", "ne"])} steps.{other}.phase "{phase}" }}}}'
                with_block["until"] = random.choice([*_UNTIL, about_steps, about_steps])
        case "sleep" if random.random() < 0.3:
            with_block["duration"] = random.choice(["{{ inputs.span }}", "1s", "{{ inputs.absent }}"])
        case "parallel":
            for branch in with_block["steps"]:
                branch.update(random.choice([{}, {"allowFailure": True}, {"if": random.choice(_IFS)}]))
        case "executeStory" if random.random() < 0.5:
            with_block["storyRef"] = {"name": "failing"}
        case "stop" if random.random() < 0.3:
            with_block.clear()
            with_block.update(
                random.choice([{"message": "{{ inputs.mode }}"}, {"phase": "Canceled"}, {"phase": "Finished"}])
            )
        case None if random.random() < 0.3:
            step.update(
                random.choice(
                    [
                        {"ref": {"name": "map-reduce-adapter"}, "with": _map(random)},
                        {"with": {"result": "{{ inputs.absent.deep }}"}},
                        {"with": {"result": "{{ inputs.n }}"}},
                        {"execution": {"retry": {"maxRetries": 2, "delay": "1s"}, "timeout": "2s"}},
                        {"sideEffects": True, "execution": {"retry": {}}},
                        {"sideEffects": True, "execution": {"retry": {"maxRetries": 1}}, "idempotencyKeyTemplate": "k"},
                        {"requires": [f"steps.{name}.output.n" for name in step["needs"]]},
                        {"postExecution": {"condition": "{{ eq inputs.n 1 }}", "failureMessage": "no"}},
                    ]
                )
            )


def _map(random: Random) -> Json:
    items = random.choice([[], [1, 2], "{{ inputs.list }}", "{{ inputs.n }}"])
    return {"items": items, "map": {"storyRef": {"name": "child"}}}


# Flows.

_CODES = ("F", "G", "System.Timeout")
_BROKEN = "{{ vars.none }}"  # there is no such variable
_OUTPUTS: tuple[Json, ...] = (
    {},
    {},
    {},
    {"output": 1},
    {"output": _BROKEN},
    {"assign": {"x": 1}},
    {"assign": {"x": _BROKEN}},
)


class FlowAuthor:
    """Flows in which Steps lead back, failures have codes, and conditions are decided or not."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._named: list[str] = []  # Flows that can be called by name here

    def document(self) -> Json:
        random = self._random
        named = {name: self.flow(1) for name in random.choice([(), (), ("N",), ("N", "M")])}
        self._named = [*named]
        steps = {
            "c": call({"flow": self.flow(2)}, catch=self._catch("caught")),
            "done": self._end(),
            "caught": self._end(),
        }
        return flow(steps, **({"flows": named} if named else {}))

    def flow(self, depth: int) -> Json:
        names = [f"s{at}" for at in range(self._random.randint(1, 4))]
        steps = {name: self._step(depth, [*names, "done", "caught"], at, names) for at, name in enumerate(names)}
        return inner({**steps, "done": self._end(), "caught": self._end()}, middleware=self._stack(depth))

    def _end(self) -> Json:
        failure = {"result": {"code": self._random.choice(_CODES), "message": "m"}}
        other = {"result": {"code": "F", "type": self._random.choice(["timeout", "Odd"]), "retryable": True}}
        return self._random.choice(
            [
                {"action": "Return", "value": 1},
                {"action": "Return", "value": 1},
                {"action": "Return", "value": _BROKEN},
                {"action": "Raise", **failure},
                {"action": "Raise", **other},
                {"action": "Raise", "result": {"code": _BROKEN}},
                {"action": "Raise"},
            ]
        )

    def _step(self, depth: int, all_names: list[str], at: int, names: list[str]) -> Json:
        random = self._random
        following = names[at + 1] if at + 1 < len(names) and random.random() < 0.7 else random.choice(all_names)
        match random.randrange(8):
            case 0:
                return {
                    "action": "Pass",
                    "output": random.choice([1, _BROKEN, "{{ step.input }}"]),
                    **random.choice(({}, {}, {"assign": {"x": 1}}, {"assign": {"x": _BROKEN}})),
                    "next": following,
                }
            case 1:
                span = random.choice(
                    [
                        {"for": "PT0S"},
                        {"for": "PT2S"},
                        {"until": "2020-01-01T00:00:00Z"},
                        {"for": _BROKEN},
                        {"until": "{{ step.input }}"},
                    ]
                )
                return {"action": "Sleep", **span, "next": following}
            case 2 | 3:
                cases = [
                    {"when": self._condition(), **random.choice(_OUTPUTS), "next": random.choice(all_names)}
                    for _ in range(random.randint(0, 2))
                ]
                members = random.choice(({}, {}, {"input": 1}, {"input": _BROKEN}))
                default = {**random.choice(_OUTPUTS), "next": following}
                return {"action": "Match", **members, "cases": cases, "default": default}
            case 4 if depth > 0:
                return self._gather(following, depth - 1, all_names)
            case _:
                made = call(self._call(depth), following, middleware=self._stack(depth), **random.choice(_OUTPUTS))
                members = random.choice(({}, {}, {}, {"input": 1}, {"input": _BROKEN}))
                return {**made, **members, "catch": self._catch(random.choice(all_names))}

    def _condition(self) -> str:
        body = self._random.choice(
            [
                *("true", "false", "step.input == 1", "step.input != 1", "!(step.input == 1)", "has(vars.x)"),
                *("vars.none", "1 == 2", "step.input == 1 && false", "step.input == 1 || true", "!has(vars.x)"),
            ]
        )
        return f"{{{{ {body} }}}}"

    def _catch(self, to: str) -> Json:
        return [
            {"match": self._matcher(), **self._random.choice(_OUTPUTS), "next": to}
            for _ in range(self._random.choice([0, 1, 1, 2, 3]))
        ]

    def _matcher(self) -> Json:
        random = self._random
        codes = {"codes": [random.choice(["*", *_CODES, "System.*"])]}
        types = {"types": random.choice([["error"], ["timeout"], ["Odd", "error"], ["cancellation"]])}
        return random.choice([codes, codes, codes, types, {**codes, **types}, {"retryable": random.random() < 0.5}])

    def _gather(self, following: str, depth: int, names: list[str]) -> Json:
        random = self._random
        over: Json = {"calls": [self._call(depth) for _ in range(random.randint(1, 2))]}
        if random.random() < 0.4:
            over = {"over": random.choice([[], [1], [1, 2], "{{ step.input }}"]), "call": self._call(depth)}
        successes = random.choice([0, 1, 2, 3, _BROKEN, "{{ 1 }}"])
        completion = random.choice(
            [{}, {"completion": {"successes": successes, **random.choice([{}, {"wait": False}, {"wait": True}])}}]
        )
        width = random.choice([{}, {}, {"concurrency": 1}])
        return {
            "action": "Gather",
            **over,
            **completion,
            **width,
            **random.choice(_OUTPUTS),
            "catch": self._catch(random.choice(names)),
            "next": following,
        }

    def _call(self, depth: int) -> Json:
        random = self._random
        arms: Json = random.choice(
            [
                *({}, {}, {}, {}, {"input": _BROKEN}, {"onSuccess": {"value": 2}}, {"onSuccess": {"value": _BROKEN}}),
                *({"onFailure": {"assign": {"x": 1}}}, {"onFailure": {"assign": {"x": _BROKEN}}}),
            ]
        )
        return {**self._target(depth), **arms}

    def _target(self, depth: int) -> Json:
        random = self._random
        match random.randrange(9):
            case 0 if depth > 0:
                return {"flow": self.flow(depth - 1)}
            case 1 | 2:
                kind: Json = random.choice(({}, {}, {"type": "timeout"}, {"type": "Odd"}, {"retryable": True}))
                return mock(failure={"code": random.choice(_CODES), "message": "m", **kind})
            case 3:
                return mock(delay=random.choice(["PT0S", "PT2S", "soon", _BROKEN]))
            case 4:
                return mock(failure=random.choice([{"code": _BROKEN, "message": "m"}, {"message": "m"}, _BROKEN, None]))
            case 5:
                return task("work", fails=random.random() < 0.5)
            case 6 if self._named:
                return {"flow": random.choice(self._named)}
            case 7:
                return mock(**random.choice(({"nonsense": 1}, {"value": _BROKEN}, {"value": {"a": 1}, "metadata": 5})))
            case _:
                return mock()

    def _stack(self, depth: int) -> list[Json]:
        return [self._entry(depth) for _ in range(self._random.choice([0, 0, 0, 1, 2]))]

    def _entry(self, depth: int) -> Json:
        entry = self._plain_entry(depth)
        if self._random.random() < 0.2:
            made: tuple[str, Json] = self._random.choice(
                [
                    ("onFailure", {"code": "G"}),
                    ("onFailure", {"type": "Odd", "when": False}),
                    ("onFailure", {"message": _BROKEN}),
                    ("onFailure", {"retryable": True}),
                    ("onSuccess", {"value": 3}),
                    ("onSuccess", {"value": _BROKEN}),
                    ("onEntry", {"output": _BROKEN}),
                    ("onAlways", {"assign": {"x": 1}}),
                    ("onAlways", {"assign": {"x": _BROKEN}}),
                ]
            )
            phase, members = made
            entry = {**entry, phase: {**entry.get(phase, {}), **members}}
        return entry

    def _plain_entry(self, depth: int) -> Json:
        random = self._random
        when = random.choice([{}, {}, {"when": random.choice([True, False, "{{ step.input == 1 }}", _BROKEN])}])
        match random.randrange(6):
            case 0:
                entry = timeout(random.choice(["PT0S", "PT1S", "PT5S", "PT1H", "soon", _BROKEN]))
                entry["onEntry"].update(when)
                return entry
            case 1:
                entry = retry(random.randint(1, 3), random.choice(["*", *_CODES]))
                entry["onEntry"].update(when)
                return entry
            case 2:
                policies = [
                    {"match": self._matcher(), "attempts": random.randint(1, 2), **random.choice(({}, _BACKOFF))}
                    for _ in range(random.randint(0, 2))
                ]
                return middleware("retry", onEntry={"with": {"policies": policies}})
            case 3:
                counter = "middleware.metadata.iteration"
                body = random.choice(
                    [
                        *(f"{counter} < 2", f"{counter} < 0", f"{counter} >= 0", "has(vars.x)", "true", "false"),
                        *(f"{counter} < 2 && has(vars.x)", f"{counter} > 0 || true", "vars.none"),
                    ]
                )
                return middleware("loop", onSuccess={"when": f"{{{{ {body} }}}}"})
            case 4:
                return {"provider": "mwl:provider.middleware/perdure/hold-effects/v1"}
            case _:
                return cleanup(self._call(max(0, depth - 1)), *(self._stack(0) if depth else []), **when)


_BACKOFF = {"backoff": {"initial": "PT1S"}}
