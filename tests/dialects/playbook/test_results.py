"""Results by reference (section 12): what a reference contains, where bodies are, and missing bodies."""

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.playbook import Playbook
from perdure.dialects.playbook.values.jsonpath import BadPath, JsonPath
from perdure.dialects.playbook.values.references import preview
from perdure.engine.runs import run_views
from perdure.kernel import events as e
from perdure.kernel.errors import ReferenceNotAvailable
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Ref
from perdure.testing.world import World as EngineWorld
from tests.dialects.playbook.world import Answer, World, playbook

SAY: Any = {"say": lambda arguments: arguments.get("value"), "slow": lambda _: Answer(after=SECOND)}
BIG = {"rows": list(range(30_000))}

GET = """
workflow:
  - step: a
    tool: {kind: say, value: "{{ workload.big }}"}
    next: {arcs: [{step: b, args: {ref: "{{ event.result }}"}}]}
  - step: b
    tool:
      - {name: wait, kind: slow}
      - {name: get, kind: artifact, action: get, result_ref: "{{ args.ref }}"}
      - {name: count, kind: noop, result: "{{ _prev.rows | length }}"}
"""


def test_a_reference_says_everything_but_the_body_and_no_credential() -> None:
    """PBK-172 PBK-178 PBK-168: the log holds the reference; the body stands beside it, once."""
    text = playbook('workflow: [{step: a, tool: {kind: say, value: "{{ workload.big }}"}}]')
    world = World(text, {"big": BIG}, work=SAY, crash=True)

    view = world.run()

    body = jsontext.encode(BIG)
    reference = view["result"]
    sample = reference["preview"].pop("sample")
    assert reference == {
        "kind": "result_ref",
        "ref": "noetl://execution/run/step/a/task/a_task/run/r1%2F1/attempt/1",
        "store": "kv",
        "scope": "execution",
        "expires_at": None,
        "meta": {
            "content_type": "application/json",
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "compression": "none",
        },
        "extracted": {},
        "preview": {"truncated": True, "bytes": reference["preview"]["bytes"]},
    }
    assert sample["rows"][:3] == [0, 1, 2] and 900 < reference["preview"]["bytes"] <= 1024
    ended = [event for event in world.events if isinstance(event, e.TaskEnded)]
    assert [type(event.outcome.value) for event in ended] == [Ref]  # type: ignore[union-attr]
    assert max(len(row) for row in world.rows) < 8_192
    assert list(world.values.values()).count(body) == 1


@pytest.mark.parametrize(
    ("size", "inline", "store"),
    [(70_000, 0, "kv"), (65_534, None, None), (65_535, None, "kv"), (1_100_000, None, "disk")],
)
def test_the_store_follows_the_size(size: int, inline: int | None, store: str | None) -> None:
    """PBK-170 PBK-171: at most 65,536 bytes of JSON are inline, the quotes of a text included."""
    knob = "" if inline is None else f"spec: {{result: {{inline_max_bytes: {inline}}}}}, "
    text = playbook(f"workflow: [{{step: a, tool: {{{knob}kind: say}}}}]")

    view = World(text, work={"say": lambda _: "x" * size}).run()

    assert (view["result"] if store is None else view["result"]["store"]) == ("x" * size if store is None else store)


@pytest.mark.parametrize("kind", ["memory", "kv", "disk", "object", "postgres", "db", "eventlog"])
def test_every_local_store_keeps_what_it_is_given(kind: str) -> None:
    """PBK-171: all of them are beside the log; the reference says what was asked for."""
    chosen = f"spec: {{result: {{store: {{kind: {kind}}}}}}}, kind: say, value"
    text = playbook(GET.replace("kind: say, value", chosen))
    world = World(text, {"big": BIG}, work=SAY, crash=True)

    assert world.run()["result"] == 30_000
    assert world.execution.body.tallies["a"].result.read(lambda _: b"")["store"] == kind


def problems(body: str) -> list[str]:
    problems = Playbook(SAY.__contains__, lambda: tuple(SAY)).parse(playbook(body).encode()).problems
    return [f"{problem.message} {problem.hint}" for problem in problems]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{store: {kind: gcs}}", "there is no driver for the result store 'gcs'"),
        ("{store: {kind: tape}}", "must be one of auto"),
        ("{store: {scope: galaxy}}", "must be one of step, execution, workflow, permanent"),
        ("{store: {ttl: soon}}", "30m, 2h, 1d or `forever`"),
        ("{store: {compression: gzip}}", "compression is not supported"),
        ("{inline_max_bytes: -1}", "0 or more"),
        ("{preview_max_bytes: big}", "a whole number"),
        ("{select: {path: $.a}}", "must be a list"),
        ("{select: [{path: $.a}]}", "lacks 'as'"),
        ('{select: [{path: "$.a[?(@.x)]", as: a}]}', "is not a JSON path"),
        ("{select: [{path: $.a, as: x}, {path: $.b, as: x}]}", "selected as 'x'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(spec: str, message: str) -> None:
    """PBK-171 PBK-173 PBK-177."""
    messages = problems(f"workflow: [{{step: a, tool: {{kind: say, spec: {{result: {spec}}}}}}}]")

    assert any(message in item for item in messages), messages


def test_an_action_that_does_not_exist_is_refused() -> None:
    """PBK-100."""
    (message,) = problems("workflow: [{step: a, tool: {kind: artifact, action: take, uri: x}}]")

    assert "'action' must be one of get, put, not 'take'" in message


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", {"a": [{"b": 1}, {"b": 2}], "c d": {"b": 3}}),
        ("$.a[0].b", 1),
        ("a[-1].b", 2),
        ("$['c d'].b", 3),
        ('$["c d"]["b"]', 3),
        ("$.a[*].b", [1, 2]),
        ("$.a[1:].b", [2]),
        ("$..b", [1, 2, 3]),
        ("$.*.b", [3]),
        ("$.a[7]", None),
        ("$.x.y", None),
        ("$.a.b", None),
    ],
)
def test_paths(path: str, expected: Any) -> None:
    """PBK-173."""
    assert JsonPath(path).read({"a": [{"b": 1}, {"b": 2}], "c d": {"b": 3}}) == expected


@pytest.mark.parametrize("path", ["$.", "$.a[", "$.a[x]", "$ .a", "$.a[?(@.b)]", "$.a.", "$a$b", "$.a...b"])
def test_texts_that_are_no_paths(path: str) -> None:
    """PBK-173."""
    with pytest.raises(BadPath):
        JsonPath(path)


def test_a_selected_value_must_be_small() -> None:
    """PBK-173: `select` copies small values; taking the whole body is a mistake, and said to be one."""
    tool = "{kind: say, spec: {result: {select: [{path: $.rows, as: rows}]}}}"
    world = World(playbook(f"workflow: [{{step: a, tool: {tool}}}]"), work={"say": lambda _: BIG})

    failed = world.run()["failures"][0]["error"]

    assert failed["code"] == "EXTRACT_TOO_LARGE" and "'rows'" in failed["message"]


@pytest.mark.parametrize("value", [["é" * 50] * 100, {"é" * 9: ["x" * 5_000, 1]}, "\n" * 5_000, [[["y" * 2_000]]]])
@pytest.mark.parametrize("limit", [0, 1, 10, 100, 1_024])
def test_a_preview_has_the_shape_of_its_value_and_a_bounded_size(value: Any, limit: int) -> None:
    """PBK-170."""
    size = len(jsontext.encode(value))
    seen = preview(value, size, limit)

    assert seen["truncated"] is (seen["bytes"] < size)
    assert seen["bytes"] <= max(limit, 4)
    assert limit < 100 or type(seen["sample"]) is type(value)


def waiting_to_get() -> World:
    world = World(playbook(GET), {"big": BIG}, work=SAY, crash=True)
    world.pass_time(0)
    assert world.show()["steps"]["b"]["task_attempts"] == {"wait": 1}
    return world


BODY = hashlib.sha256(jsontext.encode(BIG)).digest()


def test_a_body_that_is_gone_is_an_error_that_may_pass() -> None:
    """PBK-175: the producer can be run again."""
    world = waiting_to_get()
    del world.values[BODY]

    failed = world.run()["failures"][0]["error"]

    assert (failed["kind"], failed["code"]) == ("missing_reference", "REFERENCE_NOT_AVAILABLE")


def test_a_body_that_was_changed_is_never_given() -> None:
    """PBK-174: the digest is compared on every read."""
    world = waiting_to_get()
    world.values[BODY] = b'{"rows":[]}'

    failed = world.run()["failures"][0]["error"]

    assert (failed["kind"], failed["code"]) == ("storage_access", "DIGEST_MISMATCH")


def test_a_reference_to_another_body_of_that_name_is_not_taken_for_it() -> None:
    """PBK-174: what a reference says of its digest counts too."""
    text = playbook("""
workflow:
  - step: a
    tool:
      - {name: make, kind: noop, result: 1, spec: {result: {inline_max_bytes: 0}}}
      - {name: get, kind: artifact, result_ref: {kind: result_ref, ref: "{{ _prev.ref }}", meta: {sha256: "00"}}}
""")

    assert World(text).run()["failures"][0]["error"]["code"] == "DIGEST_MISMATCH"


@pytest.mark.parametrize(
    ("reference", "kind", "code"),
    [
        ("s3://bucket/x", "storage_access", "STORE_NOT_AVAILABLE"),
        ("noetl://execution/other/step/a/task/t/run/r1/attempt/1", "missing_reference", "REFERENCE_NOT_AVAILABLE"),
        ("{{ 7 }}", "schema", None),
        ("{{ {'kind': 'else', 'ref': 'noetl://x'} }}", "schema", None),
        ("{{ {'kind': 'manifest', 'strategy': 'merge', 'parts': [{'ref': none}]} }}", "schema", None),
    ],
)
def test_what_is_no_reference_of_this_execution(reference: str, kind: str, code: str | None) -> None:
    """PBK-174 PBK-175."""
    text = playbook(f'workflow: [{{step: a, tool: {{kind: artifact, action: get, result_ref: "{reference}"}}}}]')

    failed = World(text, crash=True).run()["failures"][0]["error"]

    assert (failed["kind"], failed["code"]) == (kind, code)


def test_a_wide_loop_of_large_results_stays_linear() -> None:
    """PBK-176: moves, events and the size of the state per iteration are the same at any width; no body is in it."""
    text = playbook("""
workflow:
  - step: s
    loop: {in: "{{ range(workload.n) }}", iterator: i, spec: {mode: parallel, max_in_flight: 20}}
    tool: {kind: say, value: "{{ 'x' * 500 }}{{ iter.i }}", spec: {result: {inline_max_bytes: 100, preview_max_bytes: 0}}}
    next: {arcs: [{step: b, when: "{{ event.result.stats.total == workload.n and event.result.results.kind == 'manifest' }}"}]}
  - {step: b, tool: {kind: noop, result: done}}
""")  # noqa: E501
    cost = {}
    for count in (200, 2_000):
        world = World(text, {"n": count}, work=SAY)
        view = world.run()
        assert view["result"] == "done"
        cost[count] = (
            world.moves / count,
            len(world.events) / count,
            len(world.dialect.freeze(world.execution.body)) / count,
        )

    assert all(large < small * 1.2 for small, large in zip(cost[200], cost[2_000], strict=True)), cost


async def test_bodies_on_a_real_store(tmp_path: Path) -> None:
    """PBK-171 PBK-175: written with the commit that refers to them, found after a crash, missed when they are gone."""
    text = playbook(
        """
workflow:
  - step: a
    tool: {kind: echo, value: "{{ 'x' * 100000 }}"}
    next: {arcs: [{step: b, args: {ref: "{{ event.result }}"}}]}
  - step: b
    tool:
      - {name: wait, kind: noop, spec: {policy: {rules: [{when: "{{ _attempt == 1 }}", then: {do: retry, delay: 60}}, {else: {then: {do: continue}}}]}}}
      - {name: get, kind: artifact, result_ref: "{{ args.ref }}", spec: {policy: {rules: [{when: "{{ _attempt == 1 and workload.twice }}", then: {do: retry, delay: 60}}, {when: "{{ outcome.status == 'error' }}", then: {do: fail}}, {else: {then: {do: continue}}}]}}}
      - {name: count, kind: noop, result: "{{ _prev.value | length }}"}
"""  # noqa: E501
    )
    async with EngineWorld(tmp_path, functions={"echo": lambda arguments, _: arguments}) as world:
        assert world.engine is not None
        handle = await world.engine.start(text.encode(), {"twice": True})
        await world.settle()
        await world.crash()
        await world.boot()
        await world.advance(61)
        assert (await world.engine.show(handle.id))["steps"]["b"]["task_attempts"] == {"wait": 2, "get": 1}
        with sqlite3.connect(world.path) as other:
            other.execute("DELETE FROM large_values")
        await world.advance(61)
        view = await world.engine.show(handle.id)

    assert view["failures"][0]["error"]["code"] == "REFERENCE_NOT_AVAILABLE"
    assert view["steps"]["b"]["task_attempts"] == {"wait": 2, "get": 2}


async def test_an_expired_body_is_readable_until_the_run_has_ended(tmp_path: Path) -> None:
    """PBK-177: nothing takes away what a live execution refers to; afterwards the time counts."""
    text = playbook("""
workflow:
  - step: a
    tool: {kind: echo, args: {x: 1}, spec: {result: {inline_max_bytes: 0, store: {ttl: 10s}}}}
    next: {arcs: [{step: gate}]}
  - step: gate
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: noop}
""")
    async with EngineWorld(tmp_path, functions={"echo": lambda arguments, _: arguments}) as world:
        assert world.engine is not None
        handle = await world.engine.start(text.encode())
        await world.settle()
        execution = await run_views.load(world.engine.store, world.engine.languages, await world.engine.find(handle.id))
        ref = execution.body.tallies["a"].uri

        async def body() -> Any:
            assert world.engine is not None
            row = await world.engine.find(handle.id)
            loaded = await run_views.load(world.engine.store, world.engine.languages, row)
            return await run_views.body_of(world.engine.store, loaded, ref, world.clock.now())

        await world.advance(60)
        assert await body() == {"x": 1}
        await world.engine.steer(handle.id, "patch", {"ctx": {"go": True}})
        await world.settle()
        assert (await handle.show())["status"] == "success"
        with pytest.raises(ReferenceNotAvailable):
            await body()
