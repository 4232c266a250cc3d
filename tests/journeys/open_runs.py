"""Open runs of every language in every sort of waiting, and what is done to them afterwards."""

from dataclasses import dataclass, field
from typing import Any

from perdure.engine.client import Client
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Succeeded
from perdure.services.story.triggers.requests import Requests
from perdure.stores.commit_types import Message
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.protocol import RunFilter
from perdure.testing.world import World
from perdure.wiring import Engine, languages
from tests.dialects.playbook.world import playbook
from tests.dialects.story.world import engram, story, template
from tests.services.story_engine import impulse, impulse_template, texts

MOCK = "mwl:provider.call/mwl/mock/v1"
ECHO = "engram:echo@1.0.0"
LARGE = "x" * 100_000  # too large for the log

KID = {"drill": 1, "name": "kid", "steps": [{"sleep": "40s"}, {"return": "$input"}]}
DRILLS: dict[str, list[dict[str, Any]]] = {
    "sleeping": [{"sleep": "1h"}, {"return": "awake"}],
    "told": [{"signal": "go", "save": "said"}, {"return": "$said"}],
    "large": [{"call": "big", "save": "text"}, {"sleep": "30s"}, {"return": "$text"}],
    "retrying": [{"call": "shaky", "retry": {"attempts": 3, "delay": "50s"}, "save": "x"}, {"return": "$x"}],
    "at work": [{"call": "slow", "save": "x"}, {"return": "$x"}],
    "family": [{"all": [[{"child": KID, "input": 1, "save": "a"}], [{"child": KID, "input": 2}]]}, {"return": "grown"}],
    "first at the door": [{"permit": "door", "limit": 1, "do": [{"sleep": "20s"}]}, {"return": "through"}],
    "second at the door": [{"permit": "door", "limit": 1, "do": [{"sleep": "20s"}]}, {"return": "through too"}],
    "offered": [{"call": "remote", "pool": "far", "save": "x"}, {"return": "$x"}],
    "stuck": [{"call": "echo"}, {"trip": "wire"}, {"return": "repaired"}],
    "needing": [{"resource": "Engram/default/late"}, {"return": "found"}],
    "over": [{"remember": "answer", "value": 42}, {"return": "long ago"}],
    "recalling": [{"sleep": "5s"}, {"recall": "answer", "save": "x"}, {"return": "$x"}],
}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "nap",
    "steps": {
        "nap": {"action": "Sleep", "for": "PT1M", "next": "call"},
        "call": {"action": "Call", "call": {"provider": MOCK, "with": {"value": {"slept": True}}}, "next": "done"},
        "done": {"action": "Return"},
    },
}
RETRIES = "{when: '{{ _attempt < 3 }}', then: {do: retry, delay: 60}}, {else: {then: {do: break}}}"
PLAYBOOK = playbook(f"""
workflow:
  - step: fork
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: again}}, {{step: each}}]}}
  - step: again
    tool: {{kind: fails, spec: {{policy: {{rules: [{RETRIES}]}}}}}}
  - step: each
    loop: {{in: [1, 2, 3], iterator: n, spec: {{mode: parallel, max_in_flight: 2}}}}
    tool: {{kind: noop, result: "{{{{ iter.n }}}}"}}
    next: {{arcs: [{{step: gate}}]}}
  - step: gate
    spec: {{policy: {{admit: {{rules: [{{when: "{{{{ ctx.go }}}}", then: {{allow: true}}}}]}}}}}}
    tool: {{kind: noop, result: "{{{{ ctx.go }}}}"}}
""")
CHILD = story("steps: [{name: nap, type: sleep, with: {duration: 20s}}]\noutput: {n: '{{ inputs.n }}'}", "child")
MAIN = story(
    """
policy: {timeouts: {story: 10h}}
steps:
- {name: first, ref: {name: echo}, with: {n: 1}}
- name: call
  type: executeStory
  needs: [first]
  with: {storyRef: {name: child}, with: {n: "{{ steps.first.output.n }}"}}
- {name: ask, type: gate, needs: [first]}
- {name: last, ref: {name: echo}, needs: [ask, call], with: {sum: "{{ steps.call.output.n }}"}}
output: {sum: "{{ steps.last.output.sum }}"}
""",
    "orders",
)
STORIES = [MAIN, CHILD, engram("echo"), template("echo"), impulse_template()]
STORIES += [
    impulse(throttle={"ratePerSecond": 1, "burst": 1, "maxInFlight": 5}, deliveryPolicy={"dedupe": {"mode": "token"}})
]


class Shaky:
    """Fails twice in each world."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, arguments: Any, input: Any) -> Any:
        self.calls += 1
        if self.calls < 3:
            raise OSError("not yet")
        return "third time"


def fails(arguments: Any, input: Any) -> Any:
    raise RuntimeError("not today")


def functions() -> dict[str, Any]:
    return {
        "big": lambda arguments, input: LARGE,
        "shaky": Shaky(),
        "fails": fails,
        ECHO: lambda arguments, input: arguments["inputs"],
    }


@dataclass
class Cast:
    """Who was started, by scene."""

    runs: dict[str, RunId] = field(default_factory=dict)


def engine_of(world: World) -> Engine:
    assert world.engine is not None
    return world.engine


async def begin(world: World) -> Cast:
    """Everything is under way, nothing that has to wait has ended."""
    engine, cast = engine_of(world), Cast()
    world.drill.trips["wire"] = RuntimeError("a wire")
    await engine.store.set_limit("door", 1)
    await engine.apply(texts(*STORIES))
    for name, steps in DRILLS.items():
        document = {"drill": 1, "name": name, "steps": steps}
        cast.runs[name] = (await engine.start(document, token=name, seed=7, labels={"scene": name})).id
    cast.runs["flow"] = (await engine.start(jsontext.encode(FLOW), name="flow", token="flow", seed=7)).id
    cast.runs["playbook"] = (await engine.start(PLAYBOOK.encode(), token="playbook", seed=7)).id
    for token, hears in (("one", "hook"), ("two", None)):
        answer = await engine.trigger(None if hears else "orders", {"n": 5}, impulse=hears, token=token)
        cast.runs[f"story {token}"] = await engine.resolve(answer["status"]["storyRunRef"]["name"])
    await world.settle()
    return cast


async def leave(world: World, cast: Cast) -> None:
    """The engine dies; what somebody says afterwards waits."""
    await world.crash()
    store, now = world.open_store(), world.clock.now()
    for word, key in (("first", "a"), ("second", "b")):  # one counts: that which came first
        signal = i.Signal("go", jsontext.encode(word), key)
        assert await store.send(Message(cast.runs["told"], now, i.encode(signal))) is not None
    client = Client(store, languages(lambda provider: True), world.clock, None)
    answer = await Requests(client).trigger("orders", {"n": 6}, token="three")
    assert answer.get("status", {}).get("decision", "Pending") == "Pending"
    await store.close()


async def finish(world: World, cast: Cast) -> None:
    """All that they wait for comes."""
    engine = engine_of(world)
    (third,) = [
        row.id for row in await engine.search(RunFilter()) if row.id not in cast.runs.values() and row.parent is None
    ]
    cast.runs["story three"] = third
    world.drill.trips.clear()
    await engine.resume([cast.runs["stuck"]])
    await engine.apply(texts(engram("late", template="echo")))
    await engine.steer(cast.runs["playbook"], "patch", {"ctx": {"go": "now"}})
    for token in ("one", "two", "three"):
        await engine.steer(cast.runs[f"story {token}"], "gate", {"step": "ask", "state": "Approved"}, by="me")
    for lease in await engine.store.lease(LeaseRequest(["far"], "worker", 10, world.clock.now() + 10**9)):
        result = i.TaskResult(lease.task, 1, lease.delivery, Succeeded(b'"from afar"'))
        assert await engine.store.report(lease.lease, Message(lease.run, world.clock.now(), i.encode(result)))
    await engine.runtime.read_inbox()
    await world.settle()
    while world.hands.waiting:
        world.hands.release(Succeeded(b'"done"'))
        await world.settle()
    await world.advance(7_200)
