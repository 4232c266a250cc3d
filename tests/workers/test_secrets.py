"""Secrets are filled in at the last moment and are nowhere to be read afterwards."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, on_loop, outcome_of, task, value_of

from perdure.kernel.secrets.sealed_arguments import read_secret_places, seal_by_place
from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import Registry
from perdure.services.playbook.keychain import HostKeychain, HostSecrets
from perdure.workers.secrets import Secrets, from_environment, secret_values

TOKEN = 'hun"ter2\n'


def test_the_environment_comes_before_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "TOKEN").write_text("from the file\n")
    (tmp_path.parent / "OUTSIDE").write_text("must not be read")
    monkeypatch.setenv("PERDURE_SECRETS_DIR", str(tmp_path))
    assert from_environment("TOKEN") == "from the file"
    assert from_environment("../OUTSIDE") is None
    assert from_environment("ABSENT") is None
    assert from_environment("") is None

    monkeypatch.setenv("PERDURE_SECRET_TOKEN", "from the environment")
    assert from_environment("TOKEN") == "from the environment"


def with_secret(provider: str, arguments: dict[str, Any], *path: str | int, name: str = "TOKEN", **facts: Any) -> Any:
    """A task whose document names a secret at this place."""
    assignment = task(provider, None, **facts)
    return msgspec.structs.replace(assignment, arguments=seal_by_place(arguments, [(path, name)]), sealed=True)


def test_secrets_are_put_where_the_document_has_them() -> None:
    sealed = read_secret_places(seal_by_place({"a": "", "list": ["", 1]}, [(("a",), "A"), (("list", 0), "B")]))

    assert sealed is not None
    assert sealed.fill({"A": "1", "B": "2"}.__getitem__) == {"a": "1", "list": ["2", 1]}


@on_loop
async def test_data_that_look_like_a_secret_stay_data() -> None:
    """An input, an answer or a signal cannot name a secret."""
    looks = {"$secret": "TOKEN"}
    plain = await outcome_of("echo", {"value": looks}, resolve_secret={"TOKEN": TOKEN}.get)
    async with at_work(resolve_secret={"TOKEN": TOKEN}.get) as worker:
        beside = await worker.run(with_secret("echo", {"value": {"a": "", "b": looks}}, "value", "a"), Ledger())

    assert value_of(plain) == looks
    assert value_of(beside) == {"a": "[redacted]", "b": looks}


def test_a_secret_within_another_disappears_with_it() -> None:
    secrets = Secrets({"SHORT": "abcd", "LONG": "abcdefgh"}.get)
    assert [secrets["SHORT"], secrets["LONG"]] == ["abcd", "abcdefgh"]

    assert secrets.redact("x abcdefgh abcd") == "x [redacted] [redacted]"


@on_loop
async def test_a_function_gets_the_value_and_failures_do_not_tell_it() -> None:
    registry = Registry()

    @registry.provider("tell")
    def tell(token: str, context: BlockingContext) -> Any:
        context.log(f"token {token}", token=token, nested=[token])
        context.heartbeat({"token": token})
        raise ProviderFailure("Refused", f"token {token} refused", details={"sent": {"token": token}})

    ledger = Ledger()
    async with at_work(registry, resolve_secret={"TOKEN": TOKEN}.get) as worker:
        outcome = await worker.run(with_secret("tell", {"token": ""}, "token"), ledger)

    assert "token [redacted] refused" in str(outcome)
    assert details_of(outcome) == {"sent": {"token": "[redacted]"}}
    assert ledger.lines == [("info", "token [redacted]", {"token": "[redacted]", "nested": ["[redacted]"]})]
    assert ledger.heartbeats == [b'{"token":"[redacted]"}']


@on_loop
async def test_a_secret_asked_for_in_the_function_is_kept_as_well() -> None:
    registry = Registry()

    @registry.provider("tell", inline=True)
    def tell(context: BlockingContext) -> None:
        raise ValueError(context.secrets["TOKEN"])

    outcome = await outcome_of("tell", registry=registry, resolve_secret={"TOKEN": TOKEN}.get)

    assert "hun" not in str(outcome)


@on_loop
async def test_a_missing_secret_is_a_failure_before_the_call() -> None:
    registry = Registry()

    @registry.provider("ask")
    def ask(context: BlockingContext) -> None:
        context.secrets["ABSENT"]

    async with at_work(resolve_secret=lambda name: None) as worker:
        filled = await worker.run(with_secret("echo", {"value": ""}, "value", name="ABSENT"), Ledger())
    asked = await outcome_of("ask", registry=registry, resolve_secret=lambda name: None)

    assert failure_of(filled) == failure_of(asked) == ("Platform.SecretMissing", False)
    assert details_of(filled) == {"secret": "ABSENT"}


@on_loop
async def test_a_result_does_not_tell_it_either() -> None:
    arguments = {"value": {"token": "", "length": len(TOKEN)}}
    async with at_work(resolve_secret={"TOKEN": TOKEN}.get) as worker:
        outcome = await worker.run(with_secret("echo", arguments, "value", "token"), Ledger())

    assert value_of(outcome) == {"token": "[redacted]", "length": len(TOKEN)}


@on_loop
async def test_what_the_run_records_of_a_task_does_not_tell_it() -> None:
    """Effects and signals go into the history like results do."""
    registry = Registry()

    @registry.provider("tell")
    def tell(token: str, context: BlockingContext) -> Any:
        context.emit_signal("said", {"token": token})
        return context.effect_once("sent", lambda: f"sent {token}") == f"sent {token}"

    ledger = Ledger()
    async with at_work(registry, resolve_secret={"TOKEN": TOKEN}.get) as worker:
        outcome = await worker.run(with_secret("tell", {"token": ""}, "token"), ledger)

    assert value_of(outcome) is True
    assert ledger.signals == [("said", b'{"token":"[redacted]"}')]
    assert ledger.completed == {"sent": b'"sent [redacted]"'}


@on_loop
async def test_a_secret_is_no_key_of_an_effect() -> None:
    """Masked keys could not be told apart, and an effect would be taken for another one that was performed."""
    registry = Registry()
    performed: list[str] = []

    @registry.provider("tell")
    def tell(token: str, context: BlockingContext) -> Any:
        return context.effect_once(f"pay {token}", lambda: performed.append(token))

    ledger = Ledger()
    async with at_work(registry, resolve_secret={"TOKEN": TOKEN}.get) as worker:
        outcome = await worker.run(with_secret("tell", {"token": ""}, "token"), ledger)

    assert failure_of(outcome) == ("Platform.EffectKeyHoldsSecret", False)
    assert (performed, ledger.completed) == ([], {}) and "hun" not in str(outcome)


@on_loop
async def test_the_name_of_a_signal_does_not_tell_it() -> None:
    registry = Registry()

    @registry.provider("tell")
    async def tell(token: str, context: TaskContext) -> None:
        await context.emit_signal(f"said {token}")

    ledger = Ledger()
    async with at_work(registry, resolve_secret={"TOKEN": TOKEN}.get) as worker:
        await worker.run(with_secret("tell", {"token": ""}, "token"), ledger)

    assert ledger.signals == [("said [redacted]", b"null")]


@on_loop
async def test_other_runs_of_the_family_do_not_tell_it_either() -> None:
    """What a parent has sent may come back to its child."""
    async with at_work(resolve_secret={"TOKEN": TOKEN}.get) as worker:
        await worker.run(with_secret("echo", {"value": ""}, "value"), Ledger())
        child = await worker.run(task("echo", {"value": f"found {TOKEN}"}, run="r1.3"), Ledger())

    assert value_of(child) == "found [redacted]"


def test_all_keys_of_a_secret_are_found_to_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which keys an Engram has asked for is not in the document."""
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "token").write_text("from a file\n")
    monkeypatch.setenv("PERDURE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("PERDURE_SECRET_api_key", "from a variable")
    monkeypatch.setenv("PERDURE_SECRET_apiary", "of another")

    assert sorted(secret_values("api/*", from_environment)) == ["from a file", "from a variable"]


def test_what_a_keychain_reads_is_found_to_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the operator lets it read."""
    (tmp_path / "key").write_text("from a file\n")
    monkeypatch.setenv("PERDURE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("PERDURE_KEYCHAIN_ENV", "LISTED")
    monkeypatch.setenv("LISTED", "from a variable")
    monkeypatch.setenv("UNLISTED", "of another")
    monkeypatch.setenv("PERDURE_CREDENTIAL_SHOP", '{"type": "basic", "username": "ada", "password": "stored away"}')
    names = ["file:key", "env:LISTED", "env:UNLISTED", "file:/etc/passwd", "credential:shop", "credential:none"]

    keychain = HostKeychain(HostSecrets(from_environment))

    values = [value for name in names for value in secret_values(name, from_environment, keychain)]

    assert values == ["from a file", "from a variable", "stored away"]


@on_loop
async def test_a_later_task_of_the_run_does_not_tell_it_either() -> None:
    async with at_work(resolve_secret={"TOKEN": TOKEN}.get) as worker:
        await worker.run(with_secret("echo", {"value": ""}, "value"), Ledger())
        later = await worker.run(task("echo", {"value": f"found {TOKEN}"}, task=2), Ledger())
        other = await worker.run(task("echo", {"value": f"found {TOKEN}"}, run="r2"), Ledger())

    assert value_of(later) == "found [redacted]"
    assert value_of(other) == f"found {TOKEN}"
