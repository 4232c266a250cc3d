"""Invariant 34: every run belongs to one namespace for its whole life, and everything derived from it does too."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.random_ids import run_id_for_token
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import BadRequest, Conflict, InvalidDocument, RunNotFound, StartRefused
from perdure.kernel.json_values import jsontext
from perdure.providers.policy import NamespacePolicy, Policy, use_policy
from perdure.stores.protocol import RunFilter
from perdure.wiring import Engine
from tests.dialects.story import world

ECHO = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "say",
    "steps": {
        "say": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/echo/v1"}, "next": "done"},
        "done": {"action": "Return"},
    },
}
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: {name}, path: etl/{name}}}
workflow:
- step: start
  tool: {tool}
"""
CALLS = PLAYBOOK.format(name="calls", tool="{kind: playbook, path: etl/below}")
BELOW = PLAYBOOK.format(name="below", tool="{kind: python, code: 'result = 7'}")


def flow(**members: Any) -> AppliedDocument:
    return AppliedDocument("echo.json", jsontext.encode({**ECHO, **members}).decode())


def opened(folder: Path) -> Engine:
    return perdure.Engine(f"sqlite:///{folder}/runs.db")


def story(spec: str, name: str = "test", **metadata: str) -> dict[str, Any]:
    named = world.story(spec, name)
    return {**named, "metadata": {"name": name, **metadata}}


async def test_a_token_is_one_run_in_each_namespace(tmp_path: Path) -> None:
    """SRV-009: in `default` with the id that it always had."""
    async with opened(tmp_path) as engine:
        default = await engine.start(ECHO, "a", token="t", name="echo")
        shop = await engine.start(ECHO, "b", token="t", name="echo", namespace="shop")
        assert default.id == run_id_for_token("flow", "echo", "t") == "echo-t-d925617f1e79a080"
        assert shop.id != default.id
        assert (await engine.start(ECHO, "b", token="t", name="echo", namespace="shop")).id == shop.id
        with pytest.raises(Conflict):
            await engine.start(ECHO, "a", token="t", name="echo", namespace="shop")
        assert await shop.result() == "b"
        rows = {row.id: row.namespace for row in await engine.search(RunFilter())}
        assert rows == {default.id: "default", shop.id: "shop"}
        assert (await engine.execution(shop.id)).state.started_by == ("", "store")


async def test_children_of_every_language_and_forks_stay_in_the_namespace(tmp_path: Path) -> None:
    """SRV-009: what a run calls is looked for in its namespace only."""
    async with opened(tmp_path) as engine:
        await engine.apply([AppliedDocument("below.yaml", BELOW), AppliedDocument("calls.yaml", CALLS)], "shop")
        run = await engine.start(CALLS.encode(), namespace="shop")
        await run.result()
        (child,) = await engine.search(RunFilter(parent=run.id))
        assert child.namespace == "shop"
        elsewhere = await engine.start(CALLS.encode())
        with pytest.raises(perdure.RunFailed, match="etl/below"):
            await elsewhere.result()
        fork = await engine.fork(run.id, 1)
        assert (await engine.find(fork.id)).namespace == "shop"
        await fork.result()


async def test_a_story_names_its_namespace_or_takes_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """STY-001: a document that names another namespace than was asked for is not started."""
    async with opened(tmp_path) as engine:
        quick = story("steps: [{name: c, type: condition}]", "quick")
        taken = await engine.start(quick, namespace="ops")
        assert (await engine.show(taken.id))["metadata"]["namespace"] == "ops"
        named = story("steps: [{name: c, type: condition}]", "quick", namespace="shop")
        assert (await engine.find((await engine.start(named)).id)).namespace == "shop"
        with pytest.raises(StartRefused, match="is in namespace 'shop', not in 'ops' as asked"):
            await engine.start(named, namespace="ops")
        with pytest.raises(StartRefused, match="'Shop' is not a namespace"):
            await engine.start(quick, namespace="Shop")
        with pytest.raises(StartRefused, match=r"'perdure\.dev/impulse' is reserved"):
            await engine.start(quick, labels={"perdure.dev/impulse": "default/x"})


async def test_entries_of_every_language_have_a_namespace(tmp_path: Path) -> None:
    """SRV-009: the same name in two namespaces is two entries, and a name in a start is looked for in its own."""
    async with opened(tmp_path) as engine:
        await engine.apply([flow()])
        await engine.apply([flow(comment="of the shop")], "shop")
        flows = await engine.catalog.search(engine.catalog.kind("flow"))
        assert [resource["metadata"]["namespace"] for _, resource in flows] == ["default", "shop"]
        here, there = await engine.catalog.find("echo"), await engine.catalog.find("echo", "shop")
        assert here is not None and there is not None
        assert (here.key.namespace, b"of the shop" in here.text) == ("default", False)
        assert (there.key.namespace, b"of the shop" in there.text) == ("shop", True)
        assert await engine.catalog.find("echo", "ops") is None
        await engine.apply(
            [AppliedDocument("s.json", jsontext.encode(story("steps: [{name: c, type: condition}]", "s")).decode())],
            "shop",
        )
        assert (await engine.catalog.find("shop/s")) is not None
        assert await engine.catalog.find("shop/s", "default") is None


async def test_a_beginning_of_an_id_is_resolved_among_what_is_seen(tmp_path: Path) -> None:
    """SRV-009"""
    async with opened(tmp_path) as engine:
        named = await engine.start(ECHO, 1, token="x", name="same")
        two = await engine.start(ECHO, 2, token="x", name="same", namespace="shop")
        with pytest.raises(RunNotFound, match="the beginning of several"):
            await engine.resolve("same-x")
        assert await engine.resolve("same-x", ["shop"]) == two.id
        assert await engine.resolve("@latest", ["default"]) == named.id
        for name in (two.id, two.id[:8]):
            with pytest.raises(RunNotFound, match="there is no run"):
                await engine.resolve(name, ["ops"])


async def test_a_blank_name_is_not_the_beginning_of_the_only_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        await engine.start(ECHO, 1)
        for name in ("", " ", "\t\n", "…"):
            with pytest.raises(BadRequest, match="names no run"):
                await engine.resolve(name)


async def test_the_policy_of_the_run_s_namespace_counts(tmp_path: Path) -> None:
    """SRV-023: for Flows and Playbooks too, when the document is checked and when a task begins."""
    async with opened(tmp_path) as engine:
        use_policy(Policy(namespaces={"shop": NamespacePolicy(providers=["http"])}))
        try:
            with pytest.raises(InvalidDocument, match=r"policy\.namespaces\.shop"):
                await engine.start(ECHO, namespace="shop")
            assert await (await engine.start(ECHO, "here")).result() == "here"
            use_policy(Policy())
            gated = "steps: [{name: ok, type: gate}, {name: work, ref: {name: echo}, needs: [ok]}]"
            run = await engine.start(story(gated), namespace="shop")  # loaded Engrams are in every namespace
            use_policy(Policy(namespaces={"shop": NamespacePolicy(providers=["http"])}))
            await run.approve("ok")
            with pytest.raises(perdure.RunFailed, match="work"):
                await run.result()
            assert "policy.namespaces.shop" in jsontext.encode(await run.show()).decode()
        finally:
            use_policy(None)
