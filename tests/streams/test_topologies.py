"""Streaming Stories on the real engine, with real workers: what is delivered, dropped, joined, and how they end."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.streams.topologies import SEEN, delivery_of, played, states, story, stream_of, transport

REPLAYS = ("none", "memory", "durable", "nats none", "nats memory", "nats")
LINE = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 40}}
  - {name: plus, ref: {name: add}, with: {by: 100}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: NAME}, needs: [plus]}
"""


@pytest.fixture(autouse=True)
def forget() -> None:
    SEEN.clear()


def numbers(name: str) -> list[int]:
    return [payload["n"] for _, payload, *_ in SEEN[name]]


@pytest.mark.parametrize("replay", REPLAYS)
async def test_packets_flow_in_order_and_the_run_ends_when_its_sources_have(tmp_path: Path, replay: str) -> None:
    """STR-007 STR-020 STR-021 STR-024 STR-027 STR-031 STR-032 STR-033 STR-047 STR-063 STR-091
    STR-100 STR-111 STR-129.
    """
    extra = (
        transport(replay)
        + "\n  finally: [{name: tidy, ref: {name: echo}}]\n  output: {last: '{{ steps.plus.output.n }}'}"
    )
    async with played(tmp_path, story(LINE, extra)) as run:
        shown = await run.end()

    assert numbers("NAME") == list(range(100, 140))
    assert shown["status"]["phase"] == "Succeeded" and shown["status"]["output"] == {"last": 139}
    assert states(shown) == dict.fromkeys(("source", "plus", "sink", "tidy"), "Succeeded")
    sink = stream_of(shown, "sink")
    assert (sink["state"], sink["received"], sink["delivered"], sink["dropped"]) == ("closed", 40, 40, {})
    assert sink["acked"] == (0 if "none" in replay else 40)
    assert shown["stepRuns"]["sink"]["status"]["stream"] == sink
    assert shown["status"]["attempts"] == 1
    binding = next(candidate for candidate in shown["transportBindings"] if candidate["spec"]["stepName"] == "plus")
    assert (binding["spec"]["driver"], binding["spec"]["engramName"]) == (
        "nats" if "nats" in replay else "local",
        "add",
    )


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_a_step_that_is_ready_says_so_and_a_cancel_drains_what_is_there(tmp_path: Path, replay: str) -> None:
    """STR-023 STR-034 STR-101 STR-128: open steps are Finished, compensations do not run, finally does."""
    steps = LINE.replace("count: 40", "count: 40, stays: true")
    extra = (
        transport(replay)
        + """
  compensations: [{name: undo, ref: {name: echo}}]
  finally: [{name: tidy, ref: {name: echo}}]"""
    )
    async with played(tmp_path, story(steps, extra)) as run:
        ready = await run.until(lambda shown: len(SEEN["NAME"]) == 40 and states(shown).get("sink") == "Running")
        await run.engine.cancel(run.id)
        shown = await run.end()

    assert ready["status"]["stepStates"]["sink"]["message"] == "Realtime runtime is ready"
    assert (shown["status"]["phase"], states(shown)["tidy"]) == ("Finished", "Succeeded")
    assert {states(shown)[name] for name in ("source", "plus", "sink")} == {"Finished"}
    assert states(shown)["undo"] == "Skipped"
    assert numbers("NAME") == list(range(100, 140))


@pytest.mark.parametrize("replay", ["none", "nats none"])
@pytest.mark.parametrize(("policy", "expected"), [("drop_newest", range(5)), ("drop_oldest", range(35, 40))])
async def test_a_dead_consumer_leaves_exactly_what_fits(
    tmp_path: Path, policy: str, expected: range, replay: str
) -> None:
    """STR-060 STR-070 STR-071 STR-110 STR-133, the second thing: the right ones are kept, counters add up."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 40}}
  - {name: held, ref: {name: never-reads}, with: {into: held}, needs: [source]}
"""
    import perdure
    from perdure.services.story.engrams.registry import shared_engrams

    if "engram:never-reads@1.0.0" not in shared_engrams.streaming:

        @perdure.streaming_engram("never-reads")
        async def never_reads(config: Any, messages: Any, context: Any) -> None:
            while len(SEEN["go"]) == 0:
                await asyncio.sleep(0.01)
            async for message in messages:
                SEEN[config["into"]].append((message.kind, message.payload, None, None))

    buffer = f"backpressure: {{buffer: {{maxMessages: 5, dropPolicy: {policy}}}}}"
    async with played(tmp_path, story(steps, transport(replay, buffer))) as run:
        shown = await run.until(lambda shown: states(shown).get("source") == "Succeeded")
        await run.until(lambda shown: stream_of(shown, "held")["received"] == 40)
        waiting = stream_of(await run.show(), "held")
        SEEN["go"].append(True)
        shown = await run.end()

    assert waiting["buffered"]["messages"] == 5 and waiting["dropped"] == {"buffer_full": 35}
    assert numbers("held") == list(expected)
    held = stream_of(shown, "held")
    assert held["received"] == 40 == held["delivered"] + held["buffered"]["messages"] + sum(held["dropped"].values())
    assert stream_of(shown, "source")["published"] == 40


@pytest.mark.parametrize("replay", ["none", "memory", "durable", "nats"])
async def test_conditions_rules_and_runtime_decide_for_every_packet(tmp_path: Path, replay: str) -> None:
    """STR-022 STR-044 STR-048 STR-050 STR-052, the fourth thing: one branch is skipped, others go on."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 10}, transport: rules}
  - {name: even, ref: {name: collect}, with: {into: even}, needs: [source], transport: plain,
     if: '{{ eq (mod (int packet.payload.n) 2) 0 }}'}
  - {name: small, ref: {name: collect}, with: {into: small}, needs: [source], transport: plain,
     runtime: {double: '{{ mul 2 (int steps.source.n) }}', of: '{{ inputs.who }}'}}
  - {name: never, ref: {name: collect}, with: {into: never}, needs: [source], transport: plain}
  - {name: broken, ref: {name: collect}, with: {into: broken}, needs: [source], transport: plain,
     if: '{{ packet.payload.n }}'}
  transports:
  - name: rules
    transportRef: local
    streaming:
      DELIVERY
      routing:
        rules:
        - {name: small, action: allow, target: {steps: [small]}, when: '{{ lt (int packet.payload.n) 3 }}'}
        - {name: others, action: allow, target: {steps: [even, never, broken]}}
        - {name: not-never, action: deny, target: {steps: [never]}}
  - {name: plain, transportRef: local, streaming: {DELIVERY}}
"""
    driver, delivery = delivery_of(replay)
    steps = steps.replace("transportRef: local", f"transportRef: {driver}").replace("DELIVERY", delivery)
    async with played(tmp_path, story(steps), {"who": "ada"}) as run:
        shown = await run.end()
        history = await run.history()

    assert numbers("even") == [0, 2, 4, 6, 8]
    assert [inputs for _, _, inputs, _ in SEEN["small"]] == [{"double": n, "of": "ada"} for n in ("0", "2", "4")]
    assert numbers("never") == []
    assert stream_of(shown, "broken")["dropped"]["expression_error"] >= 8
    errors = [
        event for event in history if event.get("reason") == "ExpressionFailed" or "ExpressionFailed" in str(event)
    ]
    assert 1 <= len(errors) <= 10, "an error is told once for each text, not for each packet"


@pytest.mark.parametrize("replay", REPLAYS)
async def test_two_sources_are_joined_by_their_key(tmp_path: Path, replay: str) -> None:
    """STR-054 STR-138: all, and what stays incomplete is counted at the end."""
    steps = """
  steps:
  - {name: left, ref: {name: numbers}, with: {count: 6, joins: true}}
  - {name: right, ref: {name: numbers}, with: {count: 4, joins: true}}
  - {name: both, ref: {name: collect}, with: {into: both}, needs: [left, right]}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end()

    assert [payload for _, payload, *_ in SEEN["both"]] == [
        {"left": {"n": n, "k": n % 3}, "right": {"n": n, "k": n % 3}} for n in range(4)
    ]
    both = stream_of(shown, "both")
    assert both["dropped"] == {"join_closed": 2}
    assert both["received"] == both["delivered"] + 2 == 6


@pytest.mark.parametrize("replay", ["none", "memory", "durable", "nats"])
@pytest.mark.parametrize(("join", "count"), [("mode: any", 6), ("mode: quorum, quorum: 2", 4)])
async def test_a_join_may_need_only_some(tmp_path: Path, join: str, count: int, replay: str) -> None:
    """STR-054 STR-110."""
    steps = """
  steps:
  - {name: left, ref: {name: numbers}, with: {count: 6, joins: true}}
  - {name: right, ref: {name: numbers}, with: {count: 4, joins: true}}
  - {name: both, ref: {name: collect}, with: {into: both}, needs: [left, right]}
"""
    async with played(tmp_path, story(steps, transport(replay, f"fanIn: {{{join}}}"))) as run:
        shown = await run.end()

    assert len(SEEN["both"]) == count
    assert stream_of(shown, "both")["delivered"] == count


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_a_join_that_stays_incomplete_is_given_up_in_time(tmp_path: Path, replay: str) -> None:
    """STR-054 STR-133, the fourth thing: counted, and nothing of it is kept."""
    steps = """
  steps:
  - {name: left, ref: {name: numbers}, with: {count: 3, joins: true, stays: true}}
  - {name: right, ref: {name: numbers}, with: {count: 1, joins: true, stays: true}}
  - {name: both, ref: {name: collect}, with: {into: both}, needs: [left, right]}
"""
    async with played(tmp_path, story(steps, transport(replay, "fanIn: {mode: all, timeoutSeconds: 1}"))) as run:
        await run.until(lambda shown: stream_of(shown, "both")["dropped"].get("join_timeout") == 2)
        kept = await run.engine.store.stream_rows(run.id, b"p")
        await run.engine.cancel(run.id)
        shown = await run.end()

    assert len(SEEN["both"]) == 1 and kept == []
    assert stream_of(shown, "both")["received"] == 3


@pytest.mark.parametrize("replay", ["none", "durable"])
async def test_runtime_of_a_join_reads_all_that_was_joined(tmp_path: Path, replay: str) -> None:
    """STR-052 STR-054 STR-133: rendered for the whole, handed over as its inputs; one that fails is counted once."""
    steps = """
  steps:
  - {name: left, ref: {name: numbers}, with: {count: 2, joins: true}}
  - {name: right, ref: {name: numbers}, with: {count: 2, joins: true}}
  - name: both
    ref: {name: collect}
    with: {into: both}
    needs: [left, right]
    runtime: {sum: "{{ printf `%v+%v` steps.left.n steps.right.n }}", whole: "{{ packet.payload.left.n }}"}
  - name: wrong
    ref: {name: collect}
    with: {into: wrong}
    needs: [left, right]
    runtime: {none: "{{ packet.payload.middle.n }}"}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end()

    assert [inputs for _, _, inputs, _ in SEEN["both"]] == [{"sum": f"{n}+{n}", "whole": n} for n in range(2)]
    wrong = stream_of(shown, "wrong")
    assert (wrong["received"], wrong["dropped"], wrong["errors"]) == (2, {"expression_error": 2}, 2)


@pytest.mark.parametrize("phase", ["Finished", "Canceled"])
async def test_a_stop_that_is_no_failure_compensates_nothing(tmp_path: Path, phase: str) -> None:
    """STR-057 STY-086: the run ends in the phase and with the message of the stop."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 1, stays: true}}
  - name: enough
    type: stop
    needs: [source]
    with: {phase: PHASE}
    runtime: {message: "at {{ packet.payload.n }}"}
  compensations: [{name: undo, type: condition}]
"""
    async with played(tmp_path, story(steps.replace("PHASE", phase))) as run:
        shown = await run.end()

    status = shown["status"]
    assert (status["phase"], status["conditions"][0]["reason"], status["message"]) == (phase, "Canceled", "at 0")
    assert states(shown) == {"source": "Finished", "enough": phase, "undo": "Skipped"}


async def test_packets_without_a_key_pass_a_join_by_themselves(tmp_path: Path) -> None:
    """STR-054: ids that were made up for different sources are no keys; those of one journey are."""
    steps = """
  steps:
  - {name: left, ref: {name: numbers}, with: {count: 3}}
  - {name: right, ref: {name: numbers}, with: {count: 2}}
  - {name: both, ref: {name: collect}, with: {into: both}, needs: [left, right]}
  - {name: one, ref: {name: add}, needs: [left], with: {by: 1}}
  - {name: two, ref: {name: add}, needs: [left], with: {by: 2}}
  - {name: again, ref: {name: collect}, with: {into: again}, needs: [one, two]}
"""
    async with played(tmp_path, story(steps)) as run:
        await run.end()

    assert sorted(numbers("both")) == [0, 0, 1, 1, 2]
    assert [(payload["one"]["n"], payload["two"]["n"]) for _, payload, *_ in SEEN["again"]] == [(1, 2), (2, 3), (3, 4)]


async def test_partitions_are_the_hash_of_a_key(tmp_path: Path) -> None:
    """STR-055 STR-062: numbered per partition, from 1."""
    settings = "partitioning: {mode: hash, key: payload.k, partitions: 8}"
    replay = "delivery: {ordering: per_partition, replay: {mode: memory}}"
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 12}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
"""
    extra = f"  transports: [{{name: t, transportRef: local, streaming: {{{settings}, {replay}}}}}]"
    async with played(tmp_path, story(steps, extra)) as run:
        shown = await run.end()

    from hashlib import sha256

    for _, payload, _, envelope in SEEN["sink"]:
        digest = sha256(str(payload["k"]).encode()).digest()
        assert envelope["partition"] == str(int.from_bytes(digest[:8]) % 8)
    by_partition: dict[str, list[int]] = {}
    for *_, envelope in SEEN["sink"]:
        by_partition.setdefault(envelope["partition"], []).append(envelope["sequence"])
    assert all(sequences == list(range(1, len(sequences) + 1)) for sequences in by_partition.values())
    assert stream_of(shown, "sink")["lastAck"] == {name: len(seen) for name, seen in by_partition.items()}


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_a_worker_that_raises_is_started_again_and_gets_its_packets_again(tmp_path: Path, replay: str) -> None:
    """STR-064 STR-084 STR-136: nothing is lost, and the order stays."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 20}}
  - {name: shaky, ref: {name: fragile}, with: {into: shaky}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [shaky]}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end()

    assert numbers("sink") == list(range(20))
    assert shown["status"]["phase"] == "Succeeded"
    assert SEEN["shaky-attempts"].count(5) == 2 and SEEN["shaky-attempts"].count(6) == 1
    assert stream_of(shown, "shaky")["delivered"] == 20, "replays are not counted"


@pytest.mark.parametrize("replay", ["none", "memory", "durable", "nats"])
async def test_a_failure_ends_the_topology_and_compensations_run(tmp_path: Path, replay: str) -> None:
    """STR-027 STR-028 STR-031 STR-128: the failed step is Failed, the others Finished."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 8, stays: true}}
  - {name: shaky, ref: {name: fragile}, with: {into: bad, times: 99, retryable: false, at: 5}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [shaky]}
  compensations: [{name: undo, ref: {name: echo}}]
  finally: [{name: tidy, ref: {name: echo}}]
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end()

    assert shown["status"]["phase"] == "Compensated"
    expected = {"source": "Finished", "shaky": "Failed", "sink": "Finished", "undo": "Succeeded", "tidy": "Succeeded"}
    assert states(shown) == expected
    error = shown["stepRuns"]["shaky"]["status"]["error"]
    assert (error["version"], error["message"]) == ("v1", "cannot do 0 yet")


@pytest.mark.parametrize("how", ["allowFailure: true", "continue"])
async def test_a_failure_may_leave_the_rest_alive(tmp_path: Path, how: str) -> None:
    """STR-028 STR-128: its branch goes silent; steps below it get the end of their input."""
    allowed = ", allowFailure: true" if how != "continue" else ""
    steps = f"""
  steps:
  - {{name: source, ref: {{name: numbers}}, with: {{count: 8}}}}
  - {{name: shaky, ref: {{name: fragile}}, with: {{into: bad, times: 99, retryable: false}}, needs: [source]{allowed}}}
  - {{name: below, ref: {{name: collect}}, with: {{into: below}}, needs: [shaky]}}
  - {{name: beside, ref: {{name: collect}}, with: {{into: beside}}, needs: [source]}}
"""
    extra = "" if allowed else "  policy: {retries: {continueOnStepFailure: true}}"
    async with played(tmp_path, story(steps, extra)) as run:
        shown = await run.end()

    assert states(shown) == {"source": "Succeeded", "shaky": "Failed", "below": "Succeeded", "beside": "Succeeded"}
    assert numbers("beside") == list(range(8)) and numbers("below") == []
    assert shown["status"]["phase"] == ("Succeeded" if allowed else "Failed")


@pytest.mark.parametrize("replay", REPLAYS)
async def test_built_in_steps_work_on_every_packet(tmp_path: Path, replay: str) -> None:
    """STR-057: condition, parallel, sleep, and stop that ends the topology with its phase."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 6, stays: true}}
  - {name: odd, type: condition, needs: [source], if: '{{ eq (mod (int packet.payload.n) 2) 1 }}'}
  - {name: nap, type: sleep, needs: [odd], with: {duration: 20ms}}
  - {name: both, type: parallel, needs: [nap], with: {steps: [
      {name: one, ref: {name: add}, with: {by: 10}},
      {name: two, ref: {name: add}, with: {by: 20}}]}}
  - {name: sink, ref: {name: collect}, with: {into: sink, answers: true}, needs: [both]}
  - {name: enough, type: stop, needs: [sink], if: '{{ eq (int packet.payload.got.one.n) 15 }}',
     with: {mode: success, message: done with it}}
  finally: [{name: tidy, ref: {name: echo}}]
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end()

    assert [(payload["one"]["n"], payload["two"]["n"]) for _, payload, *_ in SEEN["sink"]] == [
        (11, 21), (13, 23), (15, 25)
    ]  # fmt: skip
    assert (shown["status"]["phase"], shown["status"]["message"]) == ("Succeeded", "done with it")
    built_in = {name: states(shown)[name] for name in ("odd", "nap", "both", "enough", "tidy")}
    assert built_in == dict.fromkeys(built_in, "Succeeded")
    assert states(shown)["source"] == "Finished"


@pytest.mark.parametrize("replay", ["none", "memory", "durable", "nats"])
async def test_hooks_are_sent_once_to_steps_that_name_them(tmp_path: Path, replay: str) -> None:
    """STR-059 STR-079 STR-080 STR-081, the fifth thing: the greet-once Story."""
    steps = """
  steps:
  - {name: listen, ref: {name: numbers}, with: {count: 3, stays: true}}
  - {name: greet, ref: {name: collect}, with: {into: greet},
     if: '{{ and (eq packet.kind "hook") (eq packet.type "storyrun.ready") }}'}
  - {name: plain, ref: {name: collect}, with: {into: plain}, needs: [listen]}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        await run.until(lambda shown: len(SEEN["greet"]) == 1 and len(SEEN["plain"]) == 3)
        await asyncio.sleep(0.1)
        await run.engine.cancel(run.id)
        await run.end()

    (kind, payload, _, _), = SEEN["greet"]  # fmt: skip
    assert kind == "hook" and payload["type"] == "storyrun.ready"
    assert payload["hook"]["event"] == "storyrun.ready" and payload["hook"]["source"] == "hub"
    assert payload["hook"]["data"]["storyRun"]["namespace"] == "default"
    assert [kind for kind, *_ in SEEN["plain"]] == ["data"] * 3, "a step without `if` never sees hooks"


@pytest.mark.parametrize("replay", REPLAYS)
async def test_packets_from_outside_reach_any_step(tmp_path: Path, replay: str) -> None:
    """STR-092 STR-121 STR-131: from Python and by a signal, once for each chosen id."""
    steps = """
  steps:
  - {name: source, ref: {name: add}, with: {by: 1}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        await run.until(lambda shown: states(shown).get("sink") == "Running")
        await run.engine.publish(run.id, "source", {"n": 1}, message_id="a")
        await run.engine.publish(run.id, "source", {"n": 1}, message_id="a")
        await run.engine.signal(run.id, "source.packet", {"payload": {"n": 5}})
        await run.engine.publish(run.id, "sink", {"n": 9})
        await run.until(lambda shown: len(SEEN["sink"]) == 3)
        await run.engine.cancel(run.id)
        shown = await run.end()

    assert sorted(numbers("sink")) == [2, 6, 9]
    assert shown["status"]["phase"] == "Finished"


async def test_a_packet_that_is_no_message_is_refused(tmp_path: Path) -> None:
    """STR-039 STR-121: bad input changes nothing."""
    from perdure.kernel.errors import Conflict, UnfitInput

    steps = """
  steps:
  - {name: source, ref: {name: add}}
  - {name: choose, type: condition, needs: [source], with: {when: 'true'}}
"""
    async with played(tmp_path, story(steps)) as run:
        await run.until(lambda shown: states(shown).get("source") == "Running")
        with pytest.raises(UnfitInput, match="'choose' has no Engram"):
            await run.engine.signal(run.id, "choose.packet", {"payload": 1})
        with pytest.raises(UnfitInput, match="needs at least one of"):
            await run.engine.signal(run.id, "source.packet", {"metadata": {"a": "b"}})
        with pytest.raises(UnfitInput, match="is an object"):
            await run.engine.signal(run.id, "source.packet", "text")
        with pytest.raises(UnfitInput, match="needs at least one of"):
            await run.engine.publish(run.id, "source")
        await run.engine.cancel(run.id)
        await run.end()
        with pytest.raises(Conflict):
            await run.engine.signal(run.id, "source.packet", {"payload": 1})


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_the_history_does_not_grow_with_the_packets(tmp_path: Path, replay: str) -> None:
    """STR-102 STR-130, and the tenth thing: neither do the rows that are kept, once everything is acknowledged.

    The buffer holds all packets, so nobody is asked to pause. How many reports there are is a matter of time: of all
    events together there are fewer than packets.
    """
    reports = {"TaskReported", "StreamReported", "StreamChanged"}
    roomy = transport(replay, "backpressure: {buffer: {maxMessages: 1000}}")
    kinds = []
    for count in (10, 300):
        folder = tmp_path / str(count)
        folder.mkdir()
        async with played(folder, story(LINE.replace("count: 40", f"count: {count}"), roomy)) as run:
            await run.end()
            history = await run.engine.history(run.id, raw=True)
            kinds.append(Counter(event["event"] for event in history if event["event"] not in reports))
            assert len(await run.engine.store.stream_rows(run.id)) == 1

    assert kinds[0] == kinds[1]
    assert len(history) < 300


async def test_a_lost_topology_is_degraded(tmp_path: Path) -> None:
    """STR-030 STR-101: open steps of a hub that failed are Failed, and the run says why."""
    from perdure.services.story.streams.live_topology import TOPOLOGIES

    async with played(tmp_path, story(LINE.replace("count: 40", "count: 1, stays: true"))) as run:
        await run.until(lambda shown: len(SEEN["NAME"]) == 1)
        TOPOLOGIES[run.id].fail(RuntimeError("the hub broke"))
        shown = await run.end()

    assert shown["status"]["phase"] == "Failed" and set(states(shown).values()) == {"Failed"}
    assert shown["status"]["stepStates"]["sink"]["message"].startswith("realtime topology terminated")
    degraded = [condition for condition in shown["status"]["conditions"] if condition["type"] == "Degraded"]
    assert [condition["reason"] for condition in degraded] == ["TopologyTerminated"]


@pytest.mark.parametrize("replay", ["durable", "nats"])
async def test_a_redrive_begins_a_new_topology(tmp_path: Path, replay: str) -> None:
    """STR-036 STR-080: streams begin anew; a main step is no place to go back to."""
    from perdure.kernel.errors import Conflict

    async with played(tmp_path, story(LINE, transport(replay))) as run:
        await run.end()
        with pytest.raises(Conflict, match="no point to go back to"):
            await run.engine.redrive(run.id, {"step": "plus", "token": "x"})
        await run.engine.redrive(run.id, {"token": "again"})
        shown = await run.until(lambda shown: len(SEEN["NAME"]) == 80 and "finishedAt" in shown["status"])

    assert numbers("NAME") == list(range(100, 140)) * 2
    assert (shown["status"]["phase"], shown["status"]["attempts"]) == ("Succeeded", 2)
    assert stream_of(shown, "sink")["received"] == 40


async def test_a_transport_with_an_unknown_driver_is_refused_at_the_start(tmp_path: Path) -> None:
    """STR-006."""
    from perdure.kernel.documents.validation import AppliedDocument

    resource = """
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {name: far}
spec: {provider: x, driver: bobravoz, supportedBinary: [application/json]}
"""
    steps = LINE + "  transports: [{name: t, transportRef: far}]"
    async with played(tmp_path, story(LINE, "")) as run:
        await run.engine.apply([AppliedDocument("t.yaml", resource)])
        handle = await run.engine.start(story(steps, name="other"), None)
        run.id = handle.id
        shown = await run.end()

    status = shown["status"]
    assert status["phase"] == "Failed" and status["error"]["type"] == "TransportReferenceInvalid"
    assert "there is: local, nats" in status["message"]
