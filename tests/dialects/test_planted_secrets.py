"""Random secrets, planted through the paths of every language: afterwards they are nowhere to be found.

Tasks, processes and a server say again what they were given: in results, headers, redirects, failures, log lines,
effects and signals, as it is and as JSON, URLs, Base64, hexadecimal digits and Python write it.
"""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.planting import ASCII, Echoes, everything_said, found_in, secret_of
from tests.dialects.playbook.world import playbook

# Says what it was given in several forms, and fails when it is asked to.
SPEAKER = """
import base64, json, os, sys
given = sys.stdin.read()
for name in ("S", "T"):
    s = os.environ.get(name, "")
    print(s, json.dumps(s), json.dumps({"in": json.dumps(s)}), base64.b64encode(s.encode()).decode())
    print("failed with", repr(s), "password=" + s, file=sys.stderr)
print(given)
sys.exit(int(os.environ.get("CODE", "0")))
"""

# Functions of a user: each uses all that a context offers to say something.
TASKS = """
import base64, json, urllib.request
import perdure

def said(s):
    return [s, json.dumps({"in": json.dumps(s)}), "password=" + s, base64.b64encode(("x" + s).encode()).decode()]

def tell(context, name, s):
    for text in said(s):
        context.log(text, password=text, other={"deep": text})
    context.log("x" * (4096 - len(s) // 2) + s, field="y" * (1024 - len(s) // 2) + s)
    context.heartbeat({"at": said(s)})
    done = context.effect_once(name, lambda: said(s))
    assert done[0] == s, "whoever performs it has it as it is"
    try:
        context.effect_once("key of " + s, lambda: 1)
    except perdure.ProviderFailure as failure:
        assert failure.code == "Platform.EffectKeyHoldsSecret", failure
    else:
        raise AssertionError("a key with a secret was taken")

def end(s, code):
    if code == "0":
        return {"said": said(s), s: 1}
    if code == "1":
        raise ValueError("it was " + s)
    raise perdure.ProviderFailure("Refused", "\\n".join(said(s)), details={"sent": said(s), s: s})

@perdure.provider("plain")
def plain(token: str, code: str, context: perdure.TaskContext):
    tell(context, "plain", token)
    tell(context, "asked", context.secrets["TWO"])
    return end(token + context.secrets["TWO"], code)

@perdure.provider("apart", isolated=True)
def apart(token: str, code: str, context: perdure.TaskContext):
    print("printed", token, json.dumps(token))
    tell(context, "apart", token)
    return end(token, code)

@perdure.provider("coroutine")
async def coroutine(token: str, code: str, context: perdure.TaskContext):
    context.log("password=" + token)
    await context.effect_once("coroutine", lambda: said(token))
    await context.emit_signal("said " + token, said(token))
    return end(token, code)

def engram(name, isolated):
    @perdure.engram(name, isolated=isolated, secrets={"mine": {}, "theirs": {}})
    def work(inputs, context):
        keys = [context.secrets["mine"]["k"], context.secrets["theirs"]["k"]]
        for number, s in enumerate([*keys, inputs["own"]]):
            tell(context, f"{name}-{number}", s)
            context.record_effect("list " + s, details=said(s))
            context.emit_signal("said", {"said": said(s)})
        stored = context.store("kept", said(keys[0]) + [inputs])
        return {**end("".join(keys), inputs.get("code", "0")), "stored": stored}

@perdure.engram("send", secrets={"mine": {}})
def send(inputs, context):
    sent = json.dumps({"a": context.secrets["mine"]["k"]}).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(inputs["url"], sent, headers)).read()

engram("work", False)
engram("work-apart", True)
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


@pytest.fixture
def echoes() -> Iterator[Echoes]:
    server = Echoes()
    yield server
    server.close()


def call(provider: str, following: str, **arguments: Any) -> dict[str, Any]:
    return {
        "action": "Call",
        "call": {"provider": f"mwl:provider.call/perdure/{provider}/v1", "with": arguments},
        "next": following,
    }


def caught(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "catch": [{"match": {"codes": ["*"]}, "next": step["next"]}]}


ONE, TWO, WORD = {"$secret": "ONE"}, {"$secret": "TWO"}, {"$secret": "WORD"}


def flow(code: str, echoes: Echoes) -> str:
    """WORD has only ASCII, as headers must; LINES cannot be sent in one."""
    env = {"S": ONE, "T": TWO, "CODE": code}
    inner = {"a": call("plain", "b", token=ONE, code="1"), "b": {"action": "Return"}}
    basic, bearer = {"type": "basic", "username": "u", "password": TWO}, {"type": "bearer", "token": WORD}
    steps: dict[str, Any] = {
        "shell": caught(call("shell", "echo", argv=[sys.executable, "-c", SPEAKER], env=env, stdin=ONE)),
        "echo": call(
            "http",
            "around",
            url=f"{echoes.address}/echo",
            method="POST",
            json={"a": ONE},
            headers={"X-Key": WORD},
            auth=bearer,
        ),
        "around": call("http", "stay", url=f"{echoes.address}/redirect", params={"q": TWO}, auth=basic),
        "stay": call(
            "http", "fail", url=f"{echoes.address}/redirect", follow_redirects=False, form={"f": ONE}, method="POST"
        ),
        "fail": caught(call("http", "broken", url=f"{echoes.address}/fail", headers={"X-Key": WORD})),
        "broken": caught(call("http", "lines", url=f"{echoes.address}/broken")),
        "lines": caught(call("http", "nowhere", url=f"{echoes.address}/echo", headers={"X-Key": {"$secret": "LINES"}})),
        "nowhere": caught(call("http", "later", url="http://127.0.0.1:1/", json={"deep": [ONE]}, method="POST")),
        "later": call("http", "plain", url=f"{echoes.address}/echo"),
        "plain": caught(call("plain", "apart", token=ONE, code=code)),
        "apart": caught(call("apart", "coroutine", token=ONE, code=code)),
        "coroutine": caught(call("coroutine", "child", token=ONE, code=code)),
        "child": caught(
            call("run", "last", document=json.dumps({**SCHEMA, "entrypoint": "a", "steps": inner}), language="flow")
        ),
        "last": call("plain", "end", token=ONE, code=code),
        "end": {"action": "Return"},
    }
    return json.dumps({**SCHEMA, "entrypoint": "shell", "steps": steps})


SCHEMA = {"$schema": "https://mwl.dev/v0.1/flow/schema.json"}


def resource(kind: str, name: str, spec: dict[str, Any], **notes: str) -> dict[str, Any]:
    group = "catalog.bubustack.io" if kind == "EngramTemplate" else "bubustack.io"
    meta = {"name": name, "annotations": {f"perdure/{note}": text for note, text in notes.items()}}
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def story(code: str, echoes: Echoes) -> str:
    first, second = {"$bubuSecretRef": "one:k"}, {"$bubuSecretRef": {"name": "two", "key": "k"}}
    env = json.dumps({"S": first, "T": second, "CODE": code})
    headers = json.dumps({"X-Key": {"$bubuSecretRef": "word:k"}})
    template = {"version": "1.0.0", "supportedModes": ["job"]}
    names = {"mine": "one", "theirs": "none"}
    steps: list[dict[str, Any]] = [
        {"name": "command", "ref": {"name": "command"}, "with": {"own": second}},
        {"name": "endpoint", "ref": {"name": "endpoint"}, "with": {"own": first}},
        *(
            {"name": name, "ref": {"name": name}, "with": {"own": second, "code": code}, "secrets": {"theirs": "two"}}
            for name in ("work", "work-apart")
        ),
        {"name": "child", "type": "executeStory", "with": {"storyRef": {"name": "inner"}}},
    ]
    policy = {"retries": {"continueOnStepFailure": True}}
    inner = [{"name": "a", "ref": {"name": "work"}, "with": {"own": second, "code": "1"}, "secrets": {"theirs": "two"}}]
    resources = [
        resource("EngramTemplate", "command", template, command=json.dumps([sys.executable, "-c", SPEAKER]), env=env),
        resource("EngramTemplate", "endpoint", template, url=f"{echoes.address}/echo", headers=headers),
        resource("Engram", "command", {"templateRef": {"name": "command"}, "with": {"base": first}}),
        resource("Engram", "endpoint", {"templateRef": {"name": "endpoint"}, "with": {"base": {"deep": [second]}}}),
        *(
            resource("Engram", name, {"templateRef": {"name": name}, "secrets": names})
            for name in ("work", "work-apart")
        ),
        resource("Story", "inner", {"steps": inner}),
        resource("Story", "s", {"steps": steps, "policy": policy}),
    ]
    return "---\n".join(json.dumps(resource) + "\n" for resource in resources)


def book(code: str, echoes: Echoes) -> str:
    speak = json.dumps([SPEAKER])
    return playbook(f"""
keychain:
  - {{name: one, kind: secret_manager, provider: env, map: {{k: ONE}}}}
  - {{name: file, kind: secret_manager, provider: file, map: {{k: two}}}}
  - {{name: two, kind: basic, username: ada, password: "{{{{ keychain.one.k }}}}"}}
  - {{name: three, kind: bearer, token: "{{{{ keychain.two.password }}}}"}}
  - {{name: key, kind: api_key, value: "{{{{ keychain.one.k }}}}", in: query, param: q}}
  - name: token
    kind: oauth2
    scope: shared
    endpoint: "{echoes.address}/token"
    data: {{grant_type: client_credentials, client_secret: "{{{{ keychain.file.k }}}}"}}
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
            print("password=" + s, file=sys.stderr)
            if code != "0": raise ValueError(done.stdout + done.stderr)
            result = {{"out": done.stdout, s: [t, {{"deep": s + t}}]}}
          spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_ctx: {{seen: "{{{{ outcome }}}}"}}}}}}}}]}}}}
      - shown:
          kind: shell
          cmds: "cat <<'EOF'\\n{{{{ keychain.one.k }}}}\\nEOF\\nexit {code}"
          spec: {{policy: {{rules: [{{else: {{then: {{do: continue}}}}}}]}}}}
      - echo: {{kind: http, url: "{echoes.address}/echo", auth: two}}
      - around: {{kind: http, url: "{echoes.address}/redirect", auth: token}}
      - asked: {{kind: http, url: "{echoes.address}/redirect", auth: key}}
      - sent: {{kind: http, method: POST, url: "{echoes.address}/echo", payload: {{k: "{{{{ keychain.file.k }}}}"}}}}
      - fails:
          kind: http
          url: "{echoes.address}/fail"
          auth: two
          spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_ctx: {{failed: "{{{{ outcome }}}}"}}}}}}}}]}}}}
      - plain:
          kind: plain
          args: {{token: "{{{{ keychain.one.k }}}}", code: "{code}"}}
          spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_ctx: {{told: "{{{{ outcome }}}}"}}}}}}}}]}}}}
      - later: {{kind: http, url: "{echoes.address}/echo"}}
    next: {{arcs: [{{step: child}}]}}
  - step: child
    tool: {{kind: playbook, path: kid}}
""")


def kid(echoes: Echoes) -> str:
    return playbook(f"""
keychain: [{{name: mine, kind: secret_manager, map: {{a: ONE}}}}]
workflow:
  - step: c
    tool:
      - {{kind: http, url: "{echoes.address}/echo", auth: token}}
      - {{kind: python, args: {{x: "{{{{ keychain.mine.a }}}}"}}, code: "raise KeyError(x + '{{' + x)"}}
""").replace("tests/test", "kid")


def planted(perdure: CommandLine, echoes: Echoes, seed: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Secrets by their names, and the environment that has them."""
    first, second, word = secret_of(seed, "q1"), secret_of(seed, "q2"), secret_of(seed, "q3", ASCII.replace(" ", ""))
    lines = f"{secret_of(seed, 'q4')}\n{secret_of(seed, 'q5')}"
    echoes.token = secret_of(seed, "q6", "abcXYZ019-._~+/")
    named = {"ONE": first, "TWO": second, "WORD": word, "LINES": lines, "one_k": first, "two_k": second, "word_k": word}
    env: dict[str, Any] = {f"PERDURE_SECRET_{name}": value for name, value in named.items()}
    folder = perdure.folder / "secrets"
    folder.mkdir()
    (folder / "two").write_text(second + "\n")
    (perdure.folder / "tasks.py").write_text(TASKS)
    return named, {**env, "PERDURE_SECRETS_DIR": str(folder), "PERDURE_STORAGE_DIR": str(perdure.folder / "storage")}


WRITTEN = frozenset({"doc.json", "doc.yaml", "kid.yaml", "tasks.py", "two"})
WRITERS: dict[str, Callable[[str, Echoes], str]] = {"flow": flow, "story": story, "playbook": book}


def write(perdure: CommandLine, language: str, text: str) -> str:
    name = "doc.json" if language == "flow" else "doc.yaml"
    (perdure.folder / name).write_text(text, "utf-8")
    return name


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("seed", "code"), [(0, "0"), (1, "1"), (2, "4")])
@pytest.mark.parametrize("language", WRITERS)
def test_planted_secrets_are_nowhere_afterwards(
    perdure: CommandLine, echoes: Echoes, language: str, code: str, seed: int
) -> None:
    named, env = planted(perdure, echoes, seed)
    name = write(perdure, language, WRITERS[language](code, echoes))
    if language == "playbook":
        (perdure.folder / "kid.yaml").write_text(kid(echoes), "utf-8")
        perdure.here("apply", "-f", "kid.yaml")
    succeeds = code == "0" and language == "flow"  # the others have a child that fails
    done = perdure("run", name, "--load", "tasks.py", "--json", "-vv", code=0 if succeeds else 3, **env)
    run = next(row["id"] for row in perdure.here("ps", "--json", "--all").json if "." not in row["id"])
    refused = perdure("fork", run, code=9).err.partition("\nsee:")[0]
    before_its_end = refused.split()[-1]
    perdure("fork", run, "--at", before_its_end, "--detach", "--load", "tasks.py")

    texts = everything_said(perdure, done, written=WRITTEN)
    output = b"".join(texts.values())
    assert b"[redacted]" in texts[f"history {run} --raw --json"] and b"x[redacted]" in output, (
        "it was said, and cut behind"
    )
    assert b"AssertionError" not in output
    assert {named["ONE"], named["TWO"]} <= set(echoes.heard)
    assert found_in(texts, *named.values(), echoes.token) == [], f"seed {seed}"


def test_a_server_of_tokens_that_repeats_what_it_refuses_tells_nobody(perdure: CommandLine, echoes: Echoes) -> None:
    """PBK-180 PBK-185: its answer is in the message, cut in the middle of the client's secret."""
    named, env = planted(perdure, echoes, 7)
    secret = '"{{ keychain.one.k }}"'
    entries = f"""
keychain:
  - {{name: one, kind: secret_manager, map: {{k: ONE}}}}
  - {{name: t, kind: oauth2, endpoint: "{echoes.address}/refuse", data: {{client_secret: {secret}}}}}
workflow: [{{step: s, tool: {{kind: noop}}}}]
"""
    write(perdure, "playbook", playbook(entries))
    done = perdure("run", "doc.yaml", "--json", "-vv", code=3, **env)

    assert "xxx[redacted]" in done.out
    assert echoes.heard == {named["ONE"]: None}
    assert found_in(everything_said(perdure, done, written=WRITTEN), named["ONE"]) == []


# A process is killed behind the use of a secret; the next one knows it again from the document alone.


def flow_of_two_lives(echoes: Echoes) -> str:
    word = {"type": "bearer", "token": WORD}
    steps = {
        "use": call("http", "block", url=f"{echoes.address}/echo", method="POST", json={"a": ONE, "b": TWO}, auth=word),
        "block": call("http", "later", url=f"{echoes.address}/block"),
        "later": call("http", "end", url=f"{echoes.address}/echo"),
        "end": {"action": "Return"},
    }
    return json.dumps({**SCHEMA, "entrypoint": "use", "steps": steps})


def story_of_two_lives(echoes: Echoes) -> str:
    """In `with`, in what a template's annotation says, and in the secrets that an Engram is given."""
    headers = json.dumps({"X-Key": {"$bubuSecretRef": "word:k"}})
    plain = {"version": "1.0.0", "supportedModes": ["job"]}
    engrams: dict[str, dict[str, Any]] = {
        "use": {"with": {"own": {"$bubuSecretRef": "one:k"}}},
        "send": {"secrets": {"mine": "two"}},
        "block": {},
        "later": {},
    }
    ways = {"use": "echo", "block": "block", "later": "echo"}
    resources = [
        *(
            resource(
                "EngramTemplate",
                name,
                plain,
                url=f"{echoes.address}/{way}",
                **({"headers": headers} if name == "use" else {}),
            )
            for name, way in ways.items()
        ),
        *(resource("Engram", name, {"templateRef": {"name": name}, **spec}) for name, spec in engrams.items()),
        resource(
            "Story",
            "s",
            {"steps": [*stages({"use": {}, "send": {"with": {"url": echoes.address}}, "block": {}, "later": {}})]},
        ),
    ]
    return "---\n".join(json.dumps(resource) + "\n" for resource in resources)


def stages(steps: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One after the other."""
    before: list[str] = []
    for name, more in steps.items():
        yield {"name": name, "ref": {"name": name}, "needs": before, **more}
        before = [name]


def book_of_two_lives(echoes: Echoes) -> str:
    """From a variable, from a file, from a stored credential, and read by a task."""
    return playbook(f"""
keychain:
  - {{name: one, kind: secret_manager, map: {{k: ONE}}}}
  - {{name: two, kind: secret_manager, provider: file, map: {{k: two}}}}
  - {{name: stored, kind: credential_ref, ref: shop}}
workflow:
  - step: a
    tool:
      - read: {{kind: secrets, key: WORD}}
      - use:
          kind: http
          method: POST
          url: "{echoes.address}/echo"
          payload: {{a: "{{{{ keychain.one.k }}}}", b: "{{{{ keychain.two.k }}}}", c: "{{{{ results.read }}}}"}}
      - stored: {{kind: http, url: "{echoes.address}/echo", auth: stored}}
      - block: {{kind: http, url: "{echoes.address}/block"}}
      - later: {{kind: http, url: "{echoes.address}/echo"}}
""")


LIVES = {"flow": flow_of_two_lives, "story": story_of_two_lives, "playbook": book_of_two_lives}


@pytest.mark.parametrize("language", LIVES)
def test_a_killed_process_takes_no_mask_with_it(perdure: CommandLine, echoes: Echoes, language: str) -> None:
    """Invariant 28: `later` names no secret; the server tells it everything that an earlier process has sent."""
    named, env = planted(perdure, echoes, 11)
    env["PERDURE_CREDENTIAL_shop"] = json.dumps({"type": "bearer", "token": echoes.token})
    name = write(perdure, language, LIVES[language](echoes))
    going = perdure.start("run", name, "--load", "tasks.py", "--json", "-vv", **env)
    assert echoes.is_blocked.wait(30), going.end().err
    going.send(signal.SIGKILL)
    killed = going.end()
    echoes.may_pass.set()

    resumed = perdure("resume", "--load", "tasks.py", "-vv", **env)

    texts = everything_said(perdure, killed, resumed, written=WRITTEN)
    secrets = [named["ONE"], named["TWO"], named["WORD"], *([echoes.token] if language == "playbook" else [])]
    assert set(secrets) <= set(echoes.heard) and echoes.paths[-2:] == ["/block", "/echo"]
    (run,) = [row["id"] for row in perdure.here("ps", "--json", "--all").json]
    assert texts[f"history {run} --raw --json"].count(b"[redacted]") > 20, "the last answer was recorded"
    assert found_in(texts, *secrets) == []
