"""Random secrets, planted through the paths of every language: afterwards they are nowhere to be found.

Tasks echo what they were given in results, errors, logs and failures, as they are and as JSON and Base64 write it.
"""

import base64
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

SEEDS = range(3)
LETTERS = "abcXYZ019 \"'\\/+=&%$#<>:é߀漢😀"

# Says what it was given in several forms, and fails when it is asked to.
SPEAKER = """
import base64, json, os, sys
given = sys.stdin.read()
for name in ("S", "T"):
    s = os.environ.get(name, "")
    print(s, json.dumps(s), json.dumps({"in": json.dumps(s)}), base64.b64encode(s.encode()).decode())
    print("failed with", repr(s), file=sys.stderr)
print(given)
sys.exit(int(os.environ.get("CODE", "0")))
"""


def secret_of(seed: int, which: str) -> str:
    draw = random.Random(f"{seed}{which}")
    return which + "".join(draw.choice(LETTERS) for _ in range(14)) + "z"


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def flow(code: str) -> str:
    speaker: dict[str, Any] = {
        "action": "Call",
        "call": {
            "provider": "mwl:provider.call/perdure/shell/v1",
            "with": {
                "argv": [sys.executable, "-c", SPEAKER],
                "env": {"S": {"$secret": "ONE"}, "T": {"$secret": "TWO"}, "CODE": code},
                "stdin": {"$secret": "ONE"},
            },
        },
        "next": "b",
    }
    sent = {
        "action": "Call",
        "call": {
            "provider": "mwl:provider.call/perdure/http/v1",
            "with": {
                "url": "http://127.0.0.1:1/",
                "method": "POST",
                "json": {"deep": [{"$secret": "ONE"}]},
                "auth": {"type": "basic", "username": "u", "password": {"$secret": "TWO"}},
            },
        },
        "next": "c",
    }
    steps = {"a": speaker, "b": sent, "c": {"action": "Return"}}
    return json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps})


def story(code: str) -> str:
    env = {"S": {"$bubuSecretRef": "one:k"}, "T": {"$bubuSecretRef": {"name": "two", "key": "k"}}, "CODE": code}
    notes = {"perdure/command": json.dumps([sys.executable, "-c", SPEAKER]), "perdure/env": json.dumps(env)}
    template = {
        "apiVersion": "catalog.bubustack.io/v1alpha1",
        "kind": "EngramTemplate",
        "metadata": {"name": "tell", "annotations": notes},
        "spec": {"version": "1.0.0", "supportedModes": ["job"]},
    }
    engram = {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Engram",
        "metadata": {"name": "tell"},
        "spec": {"templateRef": {"name": "tell"}, "with": {"base": {"$bubuSecretRef": "one:k"}}},
    }
    steps = [{"name": "a", "ref": {"name": "tell"}, "with": {"own": {"$bubuSecretRef": "two:k"}}}]
    told = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": "s"}, "spec": {"steps": steps}}
    return "---\n".join(json.dumps(one) + "\n" for one in (template, engram, told))


def book(code: str) -> str:
    speak = json.dumps([SPEAKER])
    return playbook(f"""
keychain:
  - {{name: one, kind: secret_manager, provider: env, map: {{k: ONE}}}}
  - {{name: two, kind: basic, username: ada, password: "{{{{ keychain.one.k }}}}"}}
  - {{name: three, kind: bearer, token: "{{{{ keychain.two.password }}}}"}}
workflow:
  - step: a
    tool:
      - read: {{kind: secrets, key: TWO}}
      - speak:
          kind: python
          args: {{s: "{{{{ keychain.three.token }}}}", t: "{{{{ results.read }}}}", text: {speak}, code: "{code}"}}
          code: |
            import subprocess, sys, os
            env = dict(os.environ, S=s, T=t, CODE=code)
            done = subprocess.run([sys.executable, "-c", text[0]], input=s, env=env, capture_output=True, text=True)
            print(done.stdout, done.stderr)
            if code != "0": raise ValueError(done.stdout + done.stderr)
            result = {{"out": done.stdout, s: [t, {{"deep": s + t}}]}}
      - shown: {{kind: shell, cmds: "cat <<'EOF'\\n{{{{ keychain.one.k }}}}\\nEOF\\nexit {code}"}}
""")


@pytest.mark.parametrize("code", ["0", "4"])
@pytest.mark.parametrize(("language", "write"), [("flow", flow), ("story", story), ("playbook", book)])
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_secrets_are_nowhere_afterwards(
    perdure: CommandLine, language: str, write: Any, code: str, seed: int
) -> None:
    one, two = secret_of(seed, "q1"), secret_of(seed, "q2")
    secrets: dict[str, Any] = {
        "PERDURE_SECRET_ONE": one,
        "PERDURE_SECRET_TWO": two,
        "PERDURE_SECRET_one_k": one,
        "PERDURE_SECRET_two_k": two,
    }
    name = "doc.json" if language == "flow" else "doc.yaml"
    (perdure.folder / name).write_text(write(code), "utf-8")
    expected = 3 if code != "0" or language == "flow" else 0
    done = perdure("run", name, "--json", "-vv", code=expected, **secrets)

    (run, *_) = [row["id"] for row in perdure.here("ps", "--json", "--all").json]
    perdure("backup", "copy.db")
    views = [("show", run, "--json"), ("show", run), ("history", run, "--full"), ("history", run, "--raw", "--json")]
    texts = {"out": done.out.encode(), "err": done.err.encode()}
    texts |= {" ".join(view): perdure.here(*view).out.encode() for view in [*views, ("ps", "--all", "--json")]}
    texts |= {path.name: path.read_bytes() for path in perdure.folder.iterdir() if path.is_file() and path.name != name}
    assert b"[redacted]" in texts[f"history {run} --raw --json"], "it was said"
    for secret in (one, two):
        forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
        forms |= {base64.b64encode(secret.encode()).decode(), json.dumps(json.dumps(secret)[1:-1])[1:-1]}
        found = [(where, form) for where, text in texts.items() for form in forms if form.encode() in text]
        assert found == [], f"seed {seed}"
