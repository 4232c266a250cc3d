"""Engrams as the steps of Stories call them: real workers, in threads, on the loop and in subprocesses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, on_loop, outcome_of, task, value_of

from perdure import EngramContext, EngramError
from perdure.kernel.outcomes import Failed
from perdure.providers.registry import DuplicateProvider, Registry
from perdure.services.story.engrams.registry import Engrams


@pytest.fixture
def engrams() -> Iterator[tuple[Engrams, Registry]]:
    registry = Registry()
    yield Engrams(registry), registry


def a_task(**more: Any) -> dict[str, Any]:
    return {
        "inputs": {"name": "Ada"},
        "secrets": {},
        "step": {"id": "greet", "run": "hello-greet", "uid": "u1"},
        "story": {"name": "hello", "namespace": "default"},
        "storyRun": {"name": "hello-1", "namespace": "default", "uid": "u0"},
        "engram": {"name": "greeter", "namespace": "default", "version": "1.0.0"},
        "template": {"name": "greeter", "version": "1.0.0"},
        "idempotencyKey": "ns/default/storyrun/hello-1/step/greet",
        **more,
    }


@on_loop
async def test_a_plain_function_and_a_coroutine_get_inputs_and_context() -> None:
    registry = Registry()
    engrams = Engrams(registry)

    @engrams.engram("greeter")
    def greet(inputs: dict[str, Any], context: EngramContext) -> dict[str, Any]:
        return {"text": f"Hello, {inputs['name']}", "key": context.idempotency_key, "step": context.step}

    @engrams.engram("later", version="2.0.0")
    async def later(inputs: dict[str, Any], context: EngramContext) -> dict[str, Any]:
        return {"run": context.story_run, "story": context.story, "attempt": context.attempt}

    @engrams.engram("short")
    def short(inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    async with at_work(registry) as worker:
        greeted = await worker.run(task("engram:greeter@1.0.0", a_task()), Ledger())
        waited = await worker.run(task("engram:later@2.0.0", a_task()), Ledger())
        value = await worker.run(task("engram:short@1.0.0", a_task()), Ledger())
    key = "ns/default/storyrun/hello-1/step/greet"
    assert value_of(greeted) == {"text": "Hello, Ada", "key": key, "step": "greet"}
    assert value_of(waited) == {"run": "hello-1", "story": "hello", "attempt": 1}
    assert value_of(value) == {"name": "Ada"}


def test_an_engram_stands_in_the_catalog(engrams: tuple[Engrams, Registry]) -> None:
    """STY-009: code has a template of its name, and an Engram in every namespace."""
    known, _ = engrams

    @known.engram("greeter", version="1.2.0", input_schema={"type": "object"}, retry={"recommendedMaxRetries": 2})
    def greet(inputs: dict[str, Any]) -> None:
        """Greets."""

    template = known.find("EngramTemplate", "", "greeter")
    assert template is not None
    assert template["spec"]["version"] == "1.2.0"
    assert template["spec"]["description"] == "Greets."
    assert template["spec"]["execution"] == {"retry": {"recommendedMaxRetries": 2}}
    engram = known.find("Engram", "default", "greeter")
    assert engram is not None
    assert engram["spec"]["templateRef"] == {"name": "greeter", "version": "1.2.0"}
    elsewhere = known.find("Engram", "elsewhere", "greeter")
    assert elsewhere is not None and elsewhere["metadata"]["namespace"] == "elsewhere"
    assert known.find("Engram", "default", "unknown") is None
    assert known.find("EngramTemplate", "", "http-request") is not None


def test_two_functions_cannot_be_one_engram(engrams: tuple[Engrams, Registry]) -> None:
    known, _ = engrams
    known.engram("greeter")(lambda inputs: inputs)
    with pytest.raises(DuplicateProvider, match=rf"defined at {__file__}.* and again at {__file__}"):
        known.engram("greeter")(lambda inputs: inputs)
    known.engram("greeter", version="2.0.0")(lambda inputs: inputs)


def test_a_shipped_engram_gives_way_to_a_users_but_not_the_engines_own(engrams: tuple[Engrams, Registry]) -> None:
    known, registry = engrams
    assert registry.find("engram:echo@1.0.0") is not None  # also when ours has been used already
    known.engram("echo")(lambda inputs: {"mine": True})
    known.engram("http-request")(lambda inputs: {"mine": True})
    provider = registry.find("engram:echo@1.0.0")
    assert provider is not None
    assert provider.source != "perdure.services.story.engrams.shipped.echo"
    with pytest.raises(DuplicateProvider):
        known.engram("echo")(lambda inputs: inputs)
    with pytest.raises(DuplicateProvider):
        known.engram("materialize")(lambda inputs: inputs)


def test_a_function_that_wants_more_is_refused(engrams: tuple[Engrams, Registry]) -> None:
    known, _ = engrams
    with pytest.raises(TypeError, match=r"must take \(inputs, context\)"):
        known.engram("greedy")(lambda inputs, context, more: inputs)


@on_loop
async def test_a_structured_failure_keeps_every_member() -> None:
    """STY-124, 256."""
    registry = Registry()

    @Engrams(registry).engram("failing")
    def fail(inputs: dict[str, Any]) -> None:
        raise EngramError("too many", type="execution_error", exit_code=75, exit_class="rateLimited", details={"n": 1})

    outcome = await outcome_of("engram:failing@1.0.0", a_task(), registry=registry)
    assert isinstance(outcome, Failed)
    assert outcome.message == "too many"
    expected = {"type": "execution_error", "exitCode": 75, "exitClass": "rateLimited", "details": {"n": 1}}
    assert details_of(outcome) == expected


@on_loop
async def test_effects_signals_and_replay_reach_the_run() -> None:
    """STY-164, 167, 173, 178."""
    registry = Registry()
    engrams = Engrams(registry)
    performed: list[int] = []

    def charge(number: int) -> dict[str, int]:
        performed.append(number)
        return {"id": number}

    @engrams.engram("plain")
    def plain(inputs: dict[str, Any], context: EngramContext) -> dict[str, Any]:
        first = context.effect_once("charge", lambda: charge(7))
        again = context.effect_once("charge", lambda: charge(8))
        context.emit_signal("progress", {"done": 1})
        recorded = context.record_effect("mail", "succeeded", {"to": "ada"})
        return {"first": first, "again": again, "recorded": recorded, "replay": context.replay_signals(3)}

    @engrams.engram("async")
    async def coroutine(inputs: dict[str, Any], context: EngramContext) -> Any:
        return await context.effect_once("charge", lambda: {"id": 9})

    ledger = Ledger()
    async with at_work(registry) as worker:
        outcome = value_of(await worker.run(task("engram:plain@1.0.0", a_task()), ledger))
        waited = value_of(await worker.run(task("engram:async@1.0.0", a_task()), Ledger()))
    assert performed == [7]
    assert outcome["first"] == outcome["again"] == {"id": 7}
    assert outcome["recorded"] == {"effect": {"key": "mail", "status": "succeeded", "details": {"to": "ada"}}}
    assert outcome["replay"] == {"replaySignals": {"step": "greet", "sinceSeq": 3}}
    assert ledger.signals == [("progress", b'{"done":1}')]
    assert waited == {"id": 9}


@on_loop
async def test_secrets_come_by_logical_name_and_are_never_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STY-220, 259: from the environment or from files; gone from outputs, failures, logs and signals."""
    (tmp_path / "my-api").mkdir()
    (tmp_path / "my-api" / "token").write_text("s3cret-token\n")
    monkeypatch.setenv("PERDURE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("PERDURE_SECRET_my_api_user", "user-name")
    registry = Registry()
    engrams = Engrams(registry)

    @engrams.engram("leaky")
    def leaky(inputs: dict[str, Any], context: EngramContext) -> dict[str, Any]:
        token, user = context.secrets["api"]["token"], context.secrets["api"]["user"]
        context.log(f"using {token}", user=user)
        context.emit_signal("seen", {"token": token})
        if inputs.get("fail"):
            raise EngramError(f"{user} was refused", details={"token": token})
        return {"token": token, "length": len(token), "given": inputs["given"]}

    ledger = Ledger()
    inputs = {"given": {"$bubuSecretRef": "my-api:token"}}
    async with at_work(registry) as worker:
        payload = a_task(references=[["given"]], inputs=inputs, secrets={"api": "my-api"})
        good = await worker.run(task("engram:leaky@1.0.0", payload), ledger)
        payload = a_task(inputs={"fail": True}, secrets={"api": "my-api"})
        bad = await worker.run(task("engram:leaky@1.0.0", payload), ledger)
    assert value_of(good) == {"token": "[redacted]", "length": 12, "given": "[redacted]"}
    output = repr((bad, ledger.signals, ledger.lines))
    assert "s3cret-token" not in output
    assert "user-name" not in output


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("app:name", "perdure"),
        ("default/app:name", "perdure"),
        ({"name": "app", "key": "limits", "format": "auto"}, {"n": 3}),
        ({"name": "app", "key": "limits", "format": "raw"}, '{"n": 3}'),
    ],
)
def test_config_maps_are_files(reference: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STY-220."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "name").write_text("perdure")
    (tmp_path / "app" / "limits").write_text('{"n": 3}')
    monkeypatch.setenv("PERDURE_CONFIG_DIR", str(tmp_path))

    @on_loop
    async def run() -> None:
        payload = a_task(inputs={"deep": [{"$bubuConfigMapRef": reference}]}, references=[["deep", 0]])
        assert value_of(await outcome_of("engram:echo@1.0.0", payload)) == {"deep": [expected]}

    run()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("other/app:name", "another namespace"),
        ("app", "needs a name and a key"),
        ("../app:name", "another namespace"),
        ({"name": "..", "key": "name"}, "is not the name of a config map"),
        ({"name": "app", "key": "missing"}, "no readable key"),
        ({"name": "app", "key": "name", "format": "yaml"}, "auto, json or raw"),
        ({"name": "app", "key": "name", "format": "json"}, "is not JSON"),
    ],
)
def test_bad_references_fail_the_step(
    reference: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "name").write_text("perdure")
    monkeypatch.setenv("PERDURE_CONFIG_DIR", str(tmp_path))

    @on_loop
    async def run() -> None:
        payload = a_task(inputs={"x": {"$bubuConfigMapRef": reference}}, references=[["x"]])
        outcome = await outcome_of("engram:echo@1.0.0", payload)
        assert isinstance(outcome, Failed)
        assert message in outcome.message

    run()


@on_loop
async def test_a_missing_secret_says_where_it_could_be() -> None:
    payload = a_task(inputs={"x": {"$bubuSecretRef": "api:token"}}, references=[["x"]])
    outcome = await outcome_of("engram:echo@1.0.0", payload)
    assert isinstance(outcome, Failed)
    assert "PERDURE_SECRET_api_token" in outcome.message
    assert failure_of(outcome)[1] is False
