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
    "ctx.nothing.deep",
)
_RULES = (
    *("outcome.status == 'ok'", "outcome.status == 'error'", "outcome.status != 'ok'", "true", "false"),
    *("_attempt == 1", "_attempt < 3", "outcome.error is none", "outcome.error.kind == 'unknown'", "iter.n == 1"),
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
        if "loop" in step and random.random() < 0.5:
            step["loop"]["in"] = random.choice([[], [1], [1, 2], "{{ workload.none }}", "{{ [1] }}", "{{ 5 }}"])
        if random.random() < 0.1:
            step["spec"]["policy"]["lifecycle"] = {"deadline_s": random.choice([1, 5])}
    return jsontext.encode(document)


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
    return work


# Stories.

_IFS = (
    *("true", "false", "{{ true }}", "{{ false }}", "{{ not true }}", "{{ inputs.go }}", "{{ not inputs.go }}"),
    *("{{ eq 1 2 }}", "{{ eq inputs.n 1 }}", "maybe", "{{ eq (index inputs.list 9) 1 }}", "{{ gt (len steps) 0 }}"),
)
_UNTIL = ("{{ true }}", "{{ false }}", "{{ inputs.go }}", "never", "{{ eq inputs.n 1 }}")


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
                branch.update(random.choice([{}, {"allowFailure": True}, {"if": random.choice(_IFS[:7])}]))
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


class FlowAuthor:
    """Flows in which Steps lead back, failures have codes, and conditions are decided or not."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def document(self) -> Json:
        return flow(
            {"c": call({"flow": self.flow(2)}, catch=self._catch("caught")), "done": self._end(), "caught": self._end()}
        )

    def flow(self, depth: int) -> Json:
        names = [f"s{at}" for at in range(self._random.randint(1, 4))]
        steps = {name: self._step(depth, [*names, "done", "caught"], at, names) for at, name in enumerate(names)}
        return inner({**steps, "done": self._end(), "caught": self._end()}, middleware=self._stack(depth))

    def _end(self) -> Json:
        failure = {"result": {"code": self._random.choice(_CODES), "message": "m"}}
        return self._random.choice(
            [
                {"action": "Return", "value": 1},
                {"action": "Return", "value": "{{ vars.none }}"},
                {"action": "Raise", **failure},
            ]
        )

    def _step(self, depth: int, all_names: list[str], at: int, names: list[str]) -> Json:
        random = self._random
        following = names[at + 1] if at + 1 < len(names) and random.random() < 0.7 else random.choice(all_names)
        match random.randrange(8):
            case 0:
                return {
                    "action": "Pass",
                    "output": random.choice([1, "{{ vars.none }}", "{{ step.input }}"]),
                    "next": following,
                }
            case 1:
                span = random.choice(
                    [{"for": "PT0S"}, {"for": "PT2S"}, {"until": "2020-01-01T00:00:00Z"}, {"for": "{{ vars.none }}"}]
                )
                return {"action": "Sleep", **span, "next": following}
            case 2 | 3:
                cases = [
                    {"when": self._condition(), "next": random.choice(all_names)} for _ in range(random.randint(0, 2))
                ]
                return {"action": "Match", "cases": cases, "default": {"next": following}}
            case 4 if depth > 0:
                return self._gather(following, depth - 1, all_names)
            case _:
                made = call(self._call(depth), following, middleware=self._stack(depth))
                return {**made, "catch": self._catch(random.choice(all_names))}

    def _condition(self) -> str:
        body = self._random.choice(
            [
                "true",
                "false",
                "step.input == 1",
                "step.input != 1",
                "!(step.input == 1)",
                "has(vars.x)",
                "vars.none",
                "1 == 2",
            ]
        )
        return f"{{{{ {body} }}}}"

    def _catch(self, to: str) -> Json:
        codes = [[self._random.choice(["*", *_CODES, "System.*"])] for _ in range(self._random.choice([0, 1, 1, 2]))]
        return [{"match": {"codes": listed}, "next": to} for listed in codes]

    def _gather(self, following: str, depth: int, names: list[str]) -> Json:
        random = self._random
        over: Json = {"calls": [self._call(depth) for _ in range(random.randint(1, 2))]}
        if random.random() < 0.4:
            over = {"over": random.choice([[], [1], [1, 2], "{{ step.input }}"]), "call": self._call(depth)}
        completion = random.choice([{}, {"completion": {"successes": random.randint(0, 3)}}])
        return {"action": "Gather", **over, **completion, "catch": self._catch(random.choice(names)), "next": following}

    def _call(self, depth: int) -> Json:
        match self._random.randrange(7):
            case 0 if depth > 0:
                return {"flow": self.flow(depth - 1)}
            case 1 | 2:
                return mock(failure={"code": self._random.choice(_CODES), "message": "m"})
            case 3:
                return mock(delay=self._random.choice(["PT0S", "PT2S"]))
            case 4:
                return mock(failure={"code": "{{ vars.none }}", "message": "m"})
            case 5:
                return task("work", fails=self._random.random() < 0.5)
            case _:
                return mock()

    def _stack(self, depth: int) -> list[Json]:
        return [self._entry(depth) for _ in range(self._random.choice([0, 0, 0, 1, 2]))]

    def _entry(self, depth: int) -> Json:
        random = self._random
        when = random.choice([{}, {}, {"when": random.choice([True, False, "{{ step.input == 1 }}"])}])
        match random.randrange(5):
            case 0:
                entry = timeout(random.choice(["PT0S", "PT1S", "PT5S"]))
                entry["onEntry"].update(when)
                return entry
            case 1:
                return retry(random.randint(1, 3), random.choice(["*", *_CODES]))
            case 2:
                counter = "middleware.metadata.iteration"
                body = random.choice(
                    [f"{counter} < 2", f"{counter} < 0", f"{counter} >= 0", "has(vars.x)", "true", "false"]
                )
                return middleware("loop", onSuccess={"when": f"{{{{ {body} }}}}"})
            case 3:
                return {"provider": "mwl:provider.middleware/perdure/hold-effects/v1"}
            case _:
                return cleanup(self._call(max(0, depth - 1)), **when)
