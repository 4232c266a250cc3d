"""A run starts documents of other languages: by name, to any depth that is allowed, with results and failures."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import InvalidDocument
from perdure.kernel.outcomes import Status
from perdure.stores.protocol import RunFilter
from tests.dialects.playbook.world import playbook

RUN = "mwl:provider.call/perdure/run/v1"
MOCK = "mwl:provider.call/mwl/mock/v1"


def flow(call: Mapping[str, Any], **members: Any) -> str:
    """A Flow of one call, which returns what the call gives."""
    steps = {"work": {"action": "Call", "call": call, "next": "done"}, "done": {"action": "Return"}}
    return json.dumps(
        {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "work", "steps": steps, **members}
    )


def calling(path: str, **arguments: Any) -> str:
    return flow({"provider": RUN, "with": {"path": path, **arguments}})


ECHO = flow({"provider": MOCK})
KID = playbook("""
workload: {n: 1}
workflow:
  - step: twice
    tool: {kind: noop, result: "{{ workload.n * 2 }}"}
    next: {arcs: [{step: last, args: {n: "{{ event.result }}"}}]}
  - {step: last, tool: {kind: noop, result: "{{ args.n + 1 }}"}}
""").replace("tests/test", "kids/one")
DRILL = '{"drill": 1, "name": "d", "steps": [{"return": {"from": "drill"}}]}'


def parent(task: str) -> str:
    return playbook("workflow: [{step: a, tool: {kind: playbook, " + task + "}}]")


async def play(folder: Path, text: str, inputs: Any = None, **applied: str) -> dict[str, Any]:
    """What `run --json` would print."""
    files = [AppliedDocument(f"folder/{name}.json", kid) for name, kid in applied.items()]
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        handle = await engine.start(text.encode(), inputs, applied=files)
        async with asyncio.timeout(60):
            await engine.wait(handle.id)
        shown = await handle.show()
        assert isinstance(shown, dict)
        return shown


async def test_a_playbook_calls_a_flow_by_its_file_s_name(tmp_path: Path) -> None:
    """PBK-200 PBK-202: the same envelope as a playbook's."""
    shown = await play(tmp_path, parent("path: echo, args: {n: 5}"), echo=ECHO)

    result = shown["result"]
    assert {name: result[name] for name in ("status", "result", "ctx")} == {
        "status": "success",
        "result": {"n": 5},
        "ctx": {},
    }
    assert result["execution_id"].startswith(shown["execution_id"])


async def test_a_playbook_tells_a_flow_its_arguments(tmp_path: Path) -> None:
    parameters = {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}}
    child = flow({"provider": MOCK, "with": {"value": "{{ vars.who }}"}}, parameters=parameters)

    shown = await play(tmp_path, parent("path: told, arguments: {who: Ada}"), told=child)

    assert shown["result"]["result"] == "Ada"


async def test_a_playbook_calls_a_document_of_any_language(tmp_path: Path) -> None:
    shown = await play(tmp_path, parent("path: d"), d=DRILL)

    assert shown["result"]["result"] == {"from": "drill"}


async def test_a_flow_calls_a_playbook_by_its_path_or_name(tmp_path: Path) -> None:
    by_path = await play(tmp_path, calling("kids/one"), {"n": 4}, kid=KID)
    by_name = await play(tmp_path, calling("test"), {"n": 5}, kid=KID)

    assert by_path["type"] == "success" and by_path["value"]["result"] == 9
    assert by_name["value"]["status"] == "success" and by_name["value"]["result"] == 11


async def test_a_caller_may_want_another_step_s_result(tmp_path: Path) -> None:
    """PBK-200."""
    shown = await play(tmp_path, parent("path: kids/one, args: {n: 7}, return_step: twice"), kid=KID)
    wrong = await play(tmp_path, parent("path: kids/one, return_step: nowhere"), kid=KID)

    assert shown["result"]["result"] == 14
    assert wrong["failures"][0]["error"] == {
        "kind": "child_failed",
        "code": "UNKNOWN_STEP",
        "message": "there is no step 'nowhere' to return the result of",
    }


async def test_failures_come_with_those_behind_them(tmp_path: Path) -> None:
    """PBK-202: flow ─▶ playbook ─▶ flow, and the innermost failure is still told."""
    failing = flow({"provider": MOCK, "with": {"failure": {"code": "Shop.SoldOut", "message": "none left"}}})
    middle = parent("path: failing").replace("tests/test", "middle")

    shown = await play(tmp_path, calling("middle"), failing=failing, middle=middle)

    assert shown["type"] == "error" and shown["code"] == "child_failed"
    assert shown["previous"]["code"] == "Shop.SoldOut" and shown["previous"]["message"] == "none left"
    assert shown["previous"]["details"]["kind"] == "child_failed"


async def test_a_playbook_hears_the_chain_of_a_flow_s_failure(tmp_path: Path) -> None:
    chained = {"code": "Outer", "previous": {"type": "error", "code": "Inner"}}
    failing = flow({"provider": MOCK, "with": {"failure": chained}})
    text = playbook(
        "workflow: [{step: a, tool: {kind: playbook, path: failing, spec: {policy: {rules: "
        '[{else: {then: {do: continue, set_ctx: {seen: "{{ outcome.error }}"}}}}]}}}}]'
    )

    shown = await play(tmp_path, text, failing=failing)

    seen = shown["ctx"]["seen"]
    assert (seen["kind"], seen["code"], seen["details"]["previous"]["code"]) == ("child_failed", "Outer", "Inner")


async def test_what_nobody_knows_is_a_failure_of_the_call(tmp_path: Path) -> None:
    """PBK-200."""
    in_flow = await play(tmp_path, calling("nobody"))
    in_playbook = await play(tmp_path, parent("path: nobody, version: 3"))

    assert in_flow["code"] == "Provider.Call.Run.NotFound" and "nobody" in in_flow["message"]
    assert in_playbook["failures"][0]["error"]["code"] == "PLAYBOOK_NOT_FOUND"


async def test_the_depth_is_counted_over_languages(tmp_path: Path) -> None:
    """PBK-204: a playbook and a flow that call each other for ever."""
    ping = parent("path: pong").replace("tests/test", "ping")

    shown = await play(tmp_path, ping, ping=ping, pong=calling("ping"))

    code = ""
    failure = shown["failures"][0]["error"]
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        rows = await engine.search(RunFilter())
        deepest = max(rows, key=lambda row: len(row.id))
        code = str(await engine.show(deepest.id))
    assert failure["kind"] == "child_failed"
    assert len(rows) == 17 and "PLAYBOOK_DEPTH" in code


async def test_cancelling_reaches_children_of_every_language(tmp_path: Path) -> None:
    """PBK-204 PBK-190: playbook ─▶ flow ─▶ playbook."""
    waiting = playbook(
        'workflow: [{step: g, spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}},'
        " tool: {kind: noop}}]"
    ).replace("tests/test", "waiting")
    files = [AppliedDocument("middle.json", calling("waiting")), AppliedDocument("waiting.yaml", waiting)]
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(parent("path: middle").encode(), applied=files)
        async with asyncio.timeout(60):
            while len(rows := await engine.search(RunFilter())) < 3 or rows[0].status is Status.RUNNING:
                await asyncio.sleep(0.02)
            await handle.cancel("enough")
            for row in rows:
                await engine.wait(row.id)
        statuses = {row.status for row in await engine.search(RunFilter())}

    assert statuses == {Status.CANCELLED}


async def test_a_document_that_is_not_in_order_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        with pytest.raises(InvalidDocument, match=r"kid\.yaml:.*no member 'tol'"):
            await engine.start(ECHO.encode(), applied=[AppliedDocument("kid.yaml", KID.replace("tool:", "tol:"))])
        assert await engine.search(RunFilter()) == []


async def test_the_catalog_has_what_was_not_applied_in_every_version(tmp_path: Path) -> None:
    """PBK-200 PBK-210: without a version the latest counts at the time of the call."""
    newer = KID.replace("args.n + 1", "args.n + 100")
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        await engine.apply([AppliedDocument("kid.yaml", KID), AppliedDocument("echo.json", ECHO)])
        await engine.apply([AppliedDocument("kid.yaml", newer)])

    latest = await play(tmp_path, calling("kids/one"), {"n": 1})
    first = await play(tmp_path, parent("path: kids/one, version: 1"))
    none = await play(tmp_path, parent("path: kids/one, version: 3"))
    a_flow = await play(tmp_path, parent("path: echo, args: {x: 1}"))

    assert latest["value"]["result"] == 102
    assert first["result"]["result"] == 3
    assert none["failures"][0]["error"]["code"] == "PLAYBOOK_NOT_FOUND"
    assert a_flow["result"]["result"] == {"x": 1}
