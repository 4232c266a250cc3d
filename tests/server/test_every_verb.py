"""Every verb of the command line goes through a server as it goes to the store, or says that it does not (SRV-050)."""

import json
import re
from collections.abc import Iterator

import pytest

from perdure.cli.server_choice import STORE_VERBS
from perdure.cli.verbs import UNLISTED, VERBS
from tests.cli.commandline import Done
from tests.server.serving import Server
from tests.server.test_command_line import GATED, GIVES, NIGHTLY, SLEEPS, Scene, _ageless
from tests.server.test_noetl import playbook

SCENARIO = "document: gives.json\nscenarios:\n  - name: gives\n    input: {n: 1}\n    expect: {status: succeeded}\n"
GATE = json.dumps({"status": {"gates": {"ok": {"state": "Approved", "message": "fine"}}}})

LOOKS: dict[str, list[str]] = {
    "ps": ["ps --all", "ps --json"],
    "show": ["show %waiting", "show %ended --json"],
    "status": ["status %waiting"],
    "wait": ["wait %ended"],
    "why": ["why %waiting"],
    "evaluate": ["evaluate %ended done frame.input"],
    "history": ["history %ended"],
    "timeline": ["timeline %ended --json"],
    "diff": ["diff %ended %ended"],
    "replay": ["replay --with gives.json %ended", "replay --with gives.json --name gives --json"],
    "impact": ["impact sleeps.json --name flow --json", "impact sleeps.json %asleep"],
    "migrate": ["migrate --undo %asleep --dry-run", "migrate --undo %ended --dry-run --json"],
    "forecast": ["forecast %ended --json"],
    "logs": ["logs %ended"],
    "effects": ["effects %waiting"],
    "result": ["result get noetl://execution/1/result/a/b"],
    "schedule": ["schedule list"],
    "get": ["get stories", "get storyruns -o name"],
    "describe": ["describe story nightly-check"],
    "check": ["check gives.json"],
    "graph": ["graph gives.json --text", "graph %ended --text"],
    "providers": ["providers"],
    "audit": ["audit verify --json"],
    "token": ["token list --json"],
    "top": ["top --once"],
    "sim": ["sim gives.json --runs 3 --seed 1"],
    "test": ["test gives.test.yaml"],
}
"""What only looks: the same output and exit code both ways."""

ACTS: dict[str, list[str]] = {
    "run": ["run gives.json --input 1 --json"],
    "signal": ["signal %fresh note --json"],
    "approve": ["approve %fresh ok --json"],
    "reject": ["reject %fresh ok --json"],
    "patch": [
        'patch %held --ctx {"go":true} --json',
        f"patch storyrun %fresh --subresource status -p {GATE.replace(' ', '')}",
        'patch storyrun %fresh -p {"spec":{"cancelRequested":true}}',
        'patch storyrun %fresh -p {"spec":{"storyRef":1}}',
        'patch storyrun %fresh -p {"status":{}}',
        'patch storyrun %ended -p {"spec":{"cancelRequested":true}}',
    ],
    "settle": ["settle %fresh mail --not-done"],
    "cancel": ["cancel %fresh --json"],
    "pause": ["pause %fresh --json"],
    "unpause": ["unpause %fresh --json"],
    "redrive": ["redrive %fresh"],
    "fork": ["fork %ended --at 1 --json"],
    "trigger": ["trigger nightly-check --json"],
    "apply": ["apply -f applied.yaml"],
    "delete": ["delete story applied-WAY"],
    "export": ["export %ended --file copy-WAY --json"],
}
"""What changes something: each way on its own run, with the same output and exit code."""

REFUSED: dict[str, str] = {
    "resume": "resume",
    "prune": "prune --older-than 1d",
    "backup": "backup copy.db",
    "restore": "restore copy.db",
    "secrets": "secrets rekey",
    "db": "db status",
}
"""What works on a store only, and says so."""

ELSEWHERE = {"lsp": "../cli/test_language_server.py", "mcp": "test_mcp.py"}
"""Programs of their own, which have tests of their own."""


def test_every_verb_is_in_one_of_the_tables() -> None:
    listed = [*LOOKS, *ACTS, *REFUSED, *ELSEWHERE, *STORE_VERBS]

    assert sorted(listed) == sorted({*VERBS, *UNLISTED}), "a new verb needs a line here"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    running = Server.start(tmp_path_factory.mktemp("verbs"))
    try:
        scene = Scene(running)
        files = {"gives.json": GIVES, "sleeps.json": SLEEPS, "gives.test.yaml": SCENARIO, "nightly.yaml": NIGHTLY}
        for name, text in files.items():
            scene.file(name, text)
        scene.remote("apply", "-f", "nightly.yaml")
        yield scene
        running.stop()
    finally:
        running.commands.end_all()


def _words(scene: Scene, line: str, way: str) -> list[str]:
    fresh = {"%fresh": GATED, "%held": playbook("held", gate=True)}
    return [
        scene.server.admin.start(fresh[word]) if word in fresh
        else scene.runs[word[1:]] if word.startswith("%")
        else word.replace("WAY", way)
        for word in line.split()
    ]  # fmt: skip


@pytest.mark.parametrize("line", [line for lines in LOOKS.values() for line in lines])
def test_what_only_looks_says_the_same(scene: Scene, line: str) -> None:
    words = _words(scene, line, "")
    code = scene.commands.here(*words, code=None).code
    assert code is not None

    scene.both(*words, code=code)


@pytest.mark.parametrize("line", [line for lines in ACTS.values() for line in lines])
def test_what_changes_something_says_the_same(scene: Scene, line: str) -> None:
    texts = []
    for way in ("qqa", "qqb"):
        story = GATED.replace('"gated"', f'"applied-{way}"')
        scene.file("applied.yaml", story)
        words = _words(scene, line, way)
        if words[0] == "unpause":
            scene.remote("pause", words[1])
        if words[0] == "delete":
            scene.remote("apply", "-f", "applied.yaml")
        done: Done = (scene.remote if way == "qqb" else scene.commands.here)(*words, code=None)
        text = f"{done.code}\n{done.out}\n{done.err}".replace(f" --server {scene.server.url}", "")
        texts.append(_ageless(_same_names(text, words, way)))

    assert texts[0] == texts[1]
    assert not texts[0].startswith("1\n"), "an error of the engine is no result"


def _same_names(text: str, words: list[str], way: str) -> str:
    for word in words:
        if re.fullmatch(r"[0-9a-z]{26}", word):
            text = text.replace(word, "RUN")
    text = re.sub(r"\b[0-9a-z]{26}\b", "RUN", text.replace(way, "WAY"))
    text = re.sub(r"\b[0-9a-f]{16,64}\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[a-z0-9]{20,30}\b", "RUN", text)
    text = re.sub(r"nightly-check-[\w-]+", "NAME", text)
    text = re.sub(r'"resourceVersion":"\d+"', "", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)


@pytest.mark.parametrize("line", REFUSED.values())
def test_what_works_on_a_store_only_says_so(scene: Scene, line: str) -> None:
    refused = scene.remote(*line.split(), code=2)

    assert "works on a store, not through a server" in refused.err and "hint: " in refused.err
