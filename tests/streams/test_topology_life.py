"""The life of a topology as its run decides it, without an engine: what it starts with, how long it lives, its end."""

from typing import Any

import pytest

from perdure.dialects.story.plan.compiler import load
from perdure.dialects.story.plan.retention import retention
from perdure.kernel import inputs as i
from perdure.kernel.json_values.values import SECOND
from tests.dialects.story.world import World, bundle, engram, story, template
from tests.dialects.universe import Answer

DAY = 24 * 3600
WORKERS = [
    engram("source", mode="deployment"),
    template("source", supportedModes=["deployment"]),
    engram("map-reduce-adapter"),
    template("map-reduce-adapter"),
]
LINE = """
pattern: streaming
steps:
- {name: listen, ref: {name: source}}
- {name: nap, type: sleep, needs: [listen], with: {duration: 1s}}
- {name: tell, ref: {name: source}, needs: [nap]}
finally: [{name: tidy, ref: {name: echo}}]
"""


def topology(spec: str, answer: Any = None, others: list[Any] | None = None, **options: Any) -> World:
    """A world in which the task that carries the topology answers so: by default after a year."""
    carried = Answer({"ended": []}, after=365 * DAY * SECOND) if answer is None else answer
    work = {"engram:source@1.0.0": lambda arguments: carried}
    return World(spec, others=[*WORKERS, *(others or [])], work=work, **options)


def test_built_in_steps_run_while_the_topology_lives() -> None:
    """STR-137: Running while it lives and Succeeded at its end, without a StepRun."""
    end: dict[str, Any] = {
        "step": "nap",
        "phase": "Succeeded",
        "message": "The topology has ended.",
        "stream": {},
        "output": None,
    }
    world = topology(LINE, Answer({"ended": [end]}, after=60 * SECOND))
    world.pass_time(30)

    assert world.phases["nap"] == "Running" and "nap" not in world.show()["stepRuns"]
    shown = world.run()
    assert shown["status"]["stepStates"]["nap"]["phase"] == "Succeeded"


def test_a_topology_has_no_timeout_unless_its_story_has_one() -> None:
    """STR-025: timeouts of steps are for batch steps; `timeouts.story` counts from the start."""
    settings = {"timeout.default-step": "1m"}
    world = topology(LINE + "policy: {timeouts: {step: 30s}}\n", settings=settings)
    world.pass_time(30 * DAY)
    assert (world.status["phase"], world.status["attempts"]) == ("Running", 1)
    assert "timeout" not in world.show()["stepRuns"]["listen"]["spec"]

    bounded = topology(LINE + "policy: {timeouts: {story: 1h}}\n", settings=settings)
    bounded.pass_time(3_599)
    assert bounded.status["phase"] == "Running"
    bounded.pass_time(60)
    shown = bounded.run()
    assert shown["status"]["phase"] == "Timeout"
    assert shown["status"]["stepStates"]["tidy"]["phase"] == "Succeeded"
    assert shown["status"]["stepStates"]["listen"]["phase"] == "Finished"


def test_cleanup_begins_when_the_topology_has_terminated() -> None:
    """STR-029: not when it is asked to stop, but when its task has ended and every main step is final."""
    world = topology(LINE, Answer({"ended": []}, after=365 * DAY * SECOND, stubborn=True))
    world.pass_time(10)
    world.tell(i.Cancel("enough"))
    world.pass_time(1)
    assert "tidy" not in world.phases, "it drains"

    shown = world.run()
    states = shown["status"]["stepStates"]
    assert {states[name]["phase"] for name in ("listen", "nap", "tell")} == {"Finished"}
    assert states["tidy"]["phase"] == "Succeeded"
    assert states["tidy"]["startedAt"] >= max(states[name]["finishedAt"] for name in ("listen", "nap", "tell"))


@pytest.mark.parametrize(
    ("policy", "settings", "expected"),
    [
        ("", {}, 0),
        ("", {"streaming.ttl-seconds-after-finished": 7}, 7 * SECOND),
        ("policy: {execution: {realtime: {ttlSecondsAfterFinished: 9}}}", {}, 9 * SECOND),
        ("policy: {execution: {job: {ttlSecondsAfterFinished: 9}}}", {}, 0),
    ],
)
def test_children_of_a_streaming_run_have_a_time_to_live_of_their_own(
    policy: str, settings: dict[str, Any], expected: int
) -> None:
    """STR-035: at once, unless the Story or the operator says otherwise."""
    program = load(bundle(story(f"{LINE}{policy}\n"), WORKERS, settings))

    assert retention(program).children == expected


def test_a_map_needs_a_batch_story() -> None:
    """STR-037: a streaming Story is refused as the Story of items; executeStory takes it and waits."""
    text = "steps: [{name: m, ref: {name: map-reduce-adapter}, with: {items: [1], map: {storyRef: {name: inner}}}}]"
    shown = topology(text, others=[story(LINE, "inner")]).run()

    assert shown["status"]["phase"] == "Failed"
    assert "needs a batch Story" in shown["status"]["stepStates"]["m"]["message"]
    conditions = {
        condition["type"]: condition["reason"] for condition in shown["stepRuns"]["m"]["status"]["conditions"]
    }
    assert "InvalidConfiguration" in conditions.values()

    waits = "steps: [{name: m, type: executeStory, with: {storyRef: {name: inner}}}]"
    world = topology(waits, Answer({"ended": []}, after=60 * SECOND), others=[story(LINE, "inner")])
    world.pass_time(30)
    assert world.phases == {"m": "Running"}
    assert world.run()["status"]["phase"] == "Succeeded"


SCHEMA = {
    "type": "object",
    "properties": {"voice": {"type": "string"}, "speed": {"type": "integer", "default": 3}, "text": {"type": "string"}},
    "required": ["voice", "text"],
}


@pytest.mark.parametrize(
    ("blocks", "misfit"),
    [
        ("with: {voice: ada}, runtime: {text: '{{ packet.text }}'}", ""),
        (
            "with: {voice: '{{ inputs.voice }}'}, runtime: {text: '{{ packet.text }}', speed: '{{ packet.type }}'}",
            "",
        ),
        ("with: {voice: ada}", '"text" is a required property'),
        ("with: {voice: ada}, runtime: {text: 4}", '4 is not of type "string"'),
        ("with: {voice: '{{ inputs.number }}'}, runtime: {text: x}", '7 is not of type "string"'),
    ],
)
def test_with_and_runtime_are_judged_together(blocks: str, misfit: str) -> None:
    """STR-014 STR-024: what packets will bring counts as given; the worker's configuration is `with` with defaults."""
    speaker = [engram("speaker", mode="deployment"), template("speaker", supportedModes=["deployment"])]
    speaker[1]["spec"]["inputSchema"] = SCHEMA
    text = f"pattern: streaming\nsteps: [{{name: listen, ref: source}}, {{name: say, ref: speaker, {blocks}}}]"
    text = text.replace("ref: source", "ref: {name: source}").replace("ref: speaker", "ref: {name: speaker}")
    values: dict[str, Any] = {}

    def carry(arguments: dict[str, Any]) -> Answer:
        values.update(arguments["workers"]["say"]["task"]["inputs"])
        return Answer({"ended": []})

    inputs = {"voice": "eve", "number": 7}
    world = World(text, inputs, others=[*WORKERS, *speaker], work={"engram:source@1.0.0": carry})
    shown = world.run()

    if misfit:
        assert misfit in world.messages["say"] and shown["status"]["phase"] == "Failed"
    else:
        assert values == {"voice": "ada" if "ada" in blocks else "eve", "speed": 3}


def test_more_downstreams_than_allowed_do_not_start() -> None:
    """STR-051: the run ends as Failed, InvalidConfiguration, before anything happens."""
    below = "".join(f"- {{name: s{number}, ref: {{name: source}}, needs: [listen]}}\n" for number in range(5))
    text = "pattern: streaming\nsteps:\n- {name: listen, ref: {name: source}}\n" + below
    limited = "transports: [{name: t, transportRef: local, streaming: {routing: {maxDownstreams: LIMIT}}}]\n"

    refused = topology(text + limited.replace("LIMIT", "4")).run()["status"]
    assert (refused["phase"], refused["error"]["type"]) == ("Failed", "InvalidConfiguration")
    assert "'listen' has 5 downstream steps; the limit is 4" in refused["message"]
    allowed = topology(text + limited.replace("LIMIT", "5"))
    allowed.pass_time(1)
    assert allowed.status["phase"] == "Running"
    many = text + "".join(f"- {{name: t{number}, ref: {{name: source}}, needs: [listen]}}\n" for number in range(60))
    capped = topology(many + limited.replace("LIMIT", "1000")).run()["status"]
    assert "the limit is 64" in capped["message"]
