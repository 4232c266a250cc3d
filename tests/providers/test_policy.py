"""The operator's policy: its settings, where it is read, and where it applies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine
from tests.workers.scene import failure_of, on_loop, outcome_of

from perdure.kernel.outcomes import Succeeded
from perdure.providers.policy import SERVER, BadPolicy, NamespacePolicy, Policy, read_keychain, read_policy, use_policy

SHELL_FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "a",
    "steps": {
        "a": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/shell/v1", "with": {"argv": ["true"]}},
            "next": "b",
        },
        "b": {"action": "Return"},
    },
}
SHELL_PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: p, path: p}
workflow: [{step: s, tool: {kind: shell, cmds: "true"}}]
"""
COMMAND_STORY = """
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: cmd, annotations: {perdure/command: '["true"]'}}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: cmd}
spec: {templateRef: {name: cmd}}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec: {steps: [{name: a, ref: {name: cmd}}]}
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


@pytest.fixture(autouse=True)
def no_policy_is_left() -> Iterator[None]:
    yield
    use_policy(None)


def test_a_policy_is_read_from_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text('[policy]\ncode = "deny"\naddresses = ["10.0.0.0/8"]\n[keychain]\nenv = ["A_*"]\n[other]\nx = 1\n')
    there = {"PERDURE_CONFIG": str(file)}

    assert read_policy({}) == Policy()
    assert read_policy(there) == Policy(code="deny", addresses=["10.0.0.0/8"])
    assert read_policy({**there, "PERDURE_POLICY": '{"code": "allow"}'}) == Policy(addresses=["10.0.0.0/8"])
    assert read_policy(there, SERVER).network == "closed"
    assert read_keychain(there).env == ["A_*"]
    assert read_keychain({**there, "PERDURE_KEYCHAIN_ENV": "B, C"}).env == ["B", "C"]


@pytest.mark.parametrize(
    "text",
    [
        '{"cod": "deny"}',
        '{"code": "maybe"}',
        '{"addresses": ["10.0.0.0/99"]}',
        "nonsense",
        '{"denied_addresses": ["*.internal"]}',
        '{"denied_addresses": ["https://example.org"]}',
        '{"namespaces": {"a": {"x": 1}}}',
    ],
)
def test_a_policy_that_cannot_be_understood_stops_everything(text: str, perdure: CommandLine) -> None:
    with pytest.raises(BadPolicy):
        read_policy({"PERDURE_POLICY": text})
    (perdure.folder / "flow.json").write_text(json.dumps(SHELL_FLOW))

    done = perdure("run", "flow.json", code=1, PERDURE_POLICY=text)

    assert "polic" in done.err.lower() and "docs/security.md" in done.err
    assert not (perdure.folder / "perdure.db").exists()


@pytest.mark.parametrize("table", ["Policy", "polcy", "policies", "key-chain", "sever", "limit", "OIDC"])
def test_a_misspelt_table_of_the_settings_file_opens_nothing(table: str, tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text(f'[{table}]\ncode = "deny"\n')

    with pytest.raises(BadPolicy, match=f"{table}.*is .* meant"):
        read_policy({"PERDURE_CONFIG": str(file)})


@pytest.mark.parametrize("listed", [["*"], ["engram*", "shell"], ["shell"]])
def test_a_list_of_providers_does_not_open_code_that_is_denied(listed: list[str]) -> None:
    policy = Policy(code="deny", providers=listed, namespaces={"a": NamespacePolicy(providers=listed)})

    for namespace in ("default", "a"):
        for provider in ("shell", "engram.command"):
            assert "policy.code is 'deny'" in str(policy.refusal(provider, namespace))


def test_namespaces_have_lists_of_their_own() -> None:
    policy = Policy(
        code="deny",
        namespaces={"a": NamespacePolicy(providers=["http", "engram:*"]), "b": NamespacePolicy(code="allow")},
    )

    assert policy.refusal("shell") and "policy.code" in str(policy.refusal("shell"))
    assert policy.refusal("http") is None
    assert policy.refusal("engram:say@1.0.0", "a") is None
    assert "policy.namespaces.a.providers" in str(policy.refusal("echo", "a"))
    assert policy.refusal("shell", "b") is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("flow.json", json.dumps(SHELL_FLOW), "'shell'"),
        ("book.yaml", SHELL_PLAYBOOK, "'shell'"),
        ("story.yaml", COMMAND_STORY, "'engram.command'"),
    ],
)
def test_a_document_that_uses_what_is_not_allowed_is_refused(
    name: str, text: str, message: str, perdure: CommandLine
) -> None:
    """By `check` and at the start, which stores nothing; the message names the rule."""
    (perdure.folder / name).write_text(text)
    policy = json.dumps({"code": "deny"})

    assert perdure("check", name, code=0).code == 0
    for verb in ("check", "run"):
        done = perdure(verb, name, code=7, PERDURE_POLICY=policy)
        assert message in done.out + done.err and "policy.code" in done.out + done.err
    assert not (perdure.folder / "perdure.db").exists()


def test_a_task_is_refused_at_the_worker_when_the_policy_came_later() -> None:
    @on_loop
    async def attempt() -> None:
        use_policy(Policy(providers=["echo"]))
        assert failure_of(await outcome_of("shell", {"argv": ["true"]})) == ("Platform.NotAllowed", False)

    attempt()


def _with_code_for_others_only(folder: Path) -> dict[str, Any]:
    (folder / "perdure.toml").write_text('[policy]\ncode = "deny"\n[policy.namespaces.ops]\ncode = "allow"\n')
    return {"PERDURE_CONFIG": str(folder / "perdure.toml")}


def test_a_step_that_waited_for_its_engram_is_held_to_the_policy_of_its_namespace(perdure: CommandLine) -> None:
    """What a Story is judged among may come later: the worker asks again, for the namespace of the run."""
    policy = _with_code_for_others_only(perdure.folder)
    *engram, story = COMMAND_STORY.replace('["true"]', '["touch", "reached"]').split("---")
    (perdure.folder / "story.yaml").write_text(story)
    (perdure.folder / "engram.yaml").write_text("---".join(engram))
    waiting = perdure.start("run", "story.yaml", **policy)
    waiting.hear("waits for Engram")

    assert "policy.code is 'deny'" in perdure("apply", "-f", "engram.yaml", code=7, **policy).err
    perdure("apply", "-f", "engram.yaml")  # by somebody whose policy is another
    done = waiting.end()

    assert "Platform.NotAllowed" in done.err and "policy.code is 'deny'" in done.err
    assert not (perdure.folder / "reached").exists()


def test_a_document_that_was_stored_before_the_policy_does_nothing_that_only_others_may(perdure: CommandLine) -> None:
    policy = _with_code_for_others_only(perdure.folder)
    kid = SHELL_PLAYBOOK.replace('"true"', '"touch reached"').replace("path: p", "path: kid")
    (perdure.folder / "kid.yaml").write_text(kid)
    (perdure.folder / "book.yaml").write_text(
        SHELL_PLAYBOOK.replace('kind: shell, cmds: "true"', "kind: playbook, path: kid")
    )
    perdure("apply", "-f", "kid.yaml")

    done = perdure("run", "book.yaml", code=None, **policy)

    assert "policy.code is 'deny'" in done.err
    assert not (perdure.folder / "reached").exists()


def test_commands_do_not_see_what_the_operator_keeps(perdure: CommandLine) -> None:
    """Listed for the keychain, the store's address, stored secrets: none of it is in a command's environment."""
    (perdure.folder / "book.yaml").write_text(SHELL_PLAYBOOK.replace('"true"', "env"))
    secrets: dict[str, Any] = {
        "BILLING_KEY": "planted-1",
        "PERDURE_KEYCHAIN_ENV": "BILLING_*",
        "PERDURE_SECRET_X": "planted-2",
        "PERDURE_CREDENTIAL_X": "planted-3",
        "PERDURE_DB": "sqlite:///planted-4.db",
    }

    done = perdure("run", "book.yaml", "--json", **secrets)

    assert "PATH=" in done.out
    assert "planted" not in done.out


MAPPING_STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: many}
spec: {templateRef: {name: map-reduce-adapter}}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - {name: a, ref: {name: many}, with: WITH}
"""


@pytest.mark.parametrize(
    "value",
    ['{items: [1], map: {story: "{{ inputs.story }}"}}', '{items: [1], map: "{{ inputs.map }}"}'],
)
def test_a_story_that_data_bring_along_is_never_run(value: str, perdure: CommandLine) -> None:
    (perdure.folder / "story.yaml").write_text(MAPPING_STORY.replace("WITH", value))

    done = perdure("check", "story.yaml", code=7)

    assert "map.story must be written in the document" in done.out + done.err


SQL_FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "a",
    "steps": {
        "a": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/sqlite/v1", "with": {"script": "SCRIPT"}},
            "next": "b",
        },
        "b": {"action": "Return"},
    },
}


@pytest.mark.parametrize("script", [{"uri": "passwd", "folder": "/etc"}, "{{ call.input }}"])
def test_no_document_and_no_data_choose_the_folder_of_a_script(perdure: CommandLine, script: Any) -> None:
    text = json.dumps(SQL_FLOW).replace('"SCRIPT"', json.dumps(script))
    (perdure.folder / "flow.json").write_text(text)
    value = json.dumps({"uri": "passwd", "folder": "/etc"})

    done = perdure("run", "flow.json", "--input", value, code=None)

    assert done.code in (3, 7) and "folder" in done.out + done.err
    assert "root" not in done.out + done.err


@on_loop
async def test_scripts_lie_in_the_folders_that_the_operator_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server reads none of its working directory: there may be settings in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.sql").write_text("SELECT 1 AS a")
    call = {"script": {"uri": "one.sql"}}
    forbidden = ("Provider.Call.ScriptSource.Forbidden", False)

    assert isinstance(await outcome_of("sqlite", call), Succeeded)
    use_policy(SERVER)
    assert failure_of(await outcome_of("sqlite", call)) == forbidden
    use_policy(Policy(script_folders=[str(tmp_path / "sub")]))
    assert failure_of(await outcome_of("sqlite", {"script": {"uri": "../one.sql"}})) == forbidden
    use_policy(Policy(script_folders=[str(tmp_path / "sub"), str(tmp_path)]))
    assert isinstance(await outcome_of("sqlite", {"script": {"uri": "../one.sql"}}), Succeeded)
