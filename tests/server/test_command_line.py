"""The command line through a server: the same output, exit codes and JSON as on the store (SRV-050)."""

import json
import re
import shlex
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine, Done
from tests.server.serving import WAITS, Server

ROOT = Path(__file__).parents[2]

SLEEPS = """{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "nap", "steps": {
  "nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": {"action": "Return", "value": 1}}}"""
RAISES = """{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "no", "steps": {
  "no": {"action": "Raise", "result": {"code": "Custom.No", "message": "on purpose"}}}}"""
GIVES = """{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "done", "steps": {
  "done": {"action": "Return", "value": {"given": "{{ frame.input }}"}}}}"""
GATED = """{"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": "gated"},
  "spec": {"steps": [{"name": "ok", "type": "gate"}]}}"""


NIGHTLY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: nightly-check}
spec: {steps: [{name: ok, type: gate}]}
---
apiVersion: bubustack.io/v1alpha1
kind: Impulse
metadata: {name: nightly}
spec:
  templateRef: {name: cron}
  storyRef: {name: nightly-check}
  with: {timezone: Europe/Oslo, schedules: [{name: night, cron: "0 3 * * *"}]}
"""


CALLS = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {{name: calls}}
spec: {{steps: [{{name: a, type: executeStory, with: {{storyRef: {{name: {name}}}}}}}{more}]}}
"""
ENDLESS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: endless, path: endless}
workflow:
  - {step: start, tool: {kind: noop}, next: {arcs: [{step: again}]}}
  - {step: again, tool: {kind: noop}, next: {arcs: [{step: start}]}}
"""


class Scene:
    """A server, and commands that go to it or to its store."""

    def __init__(self, server: Server) -> None:
        self.server, self.commands = server, server.commands
        self.token = server.admin.token or ""
        self.runs = {
            "waiting": server.admin.start(GATED, labels={"team": "red"}),
            "ended": server.admin.start(GIVES, input={"n": 1}),
            "asleep": server.admin.start(SLEEPS),
            "failed": server.admin.start(RAISES),
        }
        for name in ("ended", "failed"):
            server.admin.result(self.runs[name])

    def remote(self, *words: str, code: int | None = 0, **env: str) -> Done:
        variables = {"PERDURE_SERVER": self.server.url, "PERDURE_TOKEN": self.token, **env}
        done = self.commands(*words, code=code, **variables)
        assert self.token not in done.out + done.err
        return done

    def both(self, *words: str, code: int = 0) -> Done:
        """The same command on the store and through the server; both say the same, apart from ages.

        The server works on its own between the two looks: what has changed meanwhile is looked at again.
        """
        token = str(self.commands.folder / "perdure.db-server" / "admin-token")
        to_server = ("--server", self.server.url, "--access-token", f"@{token}")
        for last in (False, False, False, True):
            alone = self.commands if words[0] == "providers" else self.commands.here  # other tests register some here
            here = alone(*words, code=code)
            there = self.commands.here(*words, *to_server, code=code)
            mine = _ageless(here.out), _ageless(here.err)
            theirs = tuple(
                _ageless(text.replace(f" --server {self.server.url}", "")) for text in (there.out, there.err)
            )
            if mine == theirs:
                break
            assert not last, f"{mine}\n{theirs}"
        return there

    def file(self, name: str, text: str) -> str:
        (self.commands.folder / name).write_text(text)
        return name


def _ageless(text: str) -> str:
    """Without what differs from one look to the next: ages, and the width of columns that hold them."""
    ageless = re.sub(r"due in [^,.;\n\"]*|\d+(\.\d+)? (ms|s|m|h|d)( \d+ (s|m|h))?", "AGE", text)
    return re.sub(" +", " ", ageless)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    running = Server.start(tmp_path_factory.mktemp("remote"))
    try:
        yield Scene(running)
        running.stop()
    finally:
        running.commands.end_all()


LOOKS = [
    *(("show", name) for name in ("%waiting", "%ended", "%asleep", "%failed")),
    *(("show", name, "--json") for name in ("%waiting", "%ended", "%failed")),
    ("show", "%ended", "-o", "yaml", "--checksum"),
    ("show", "%waiting", "--at", "1"),
    ("why", "%waiting"),
    ("why", "%failed", "--json"),
    ("history", "%failed"),
    ("history", "%asleep", "--raw", "--json"),
    ("history", "%ended", "--follow"),
    ("logs", "%ended"),
    ("status", "%asleep"),
    ("wait", "%ended"),
    ("effects", "%waiting", "--json"),
    ("timeline", "%failed"),
    ("timeline", "%asleep", "--json"),
    ("graph", "%failed", "--text"),
    ("graph", "%asleep", "--json"),
    ("ps",),
    ("ps", "--all", "--json"),
    ("ps", "--status", "waiting", "--label", "team=red", "--limit", "1"),
    ("ps", "-A"),
]


def test_a_look_through_the_server_is_the_look_at_the_store(scene: Scene) -> None:
    for words in LOOKS:
        seen = scene.both(*(scene.runs[word[1:]] if word.startswith("%") else word for word in words))
        assert seen.out or words[0] == "logs"


def test_what_is_wrong_is_told_alike(scene: Scene) -> None:
    scene.both("show", "nobody", code=8)
    scene.both("show", scene.runs["ended"], "--at", "999", code=8)
    scene.both("wait", scene.runs["failed"], "--for", "phase=waiting", code=9)
    scene.both("signal", scene.runs["ended"], "go", code=9)
    scene.both("run", scene.file("bad.json", '{"drill": 1, "steps": "none"}'), code=7)
    assert scene.remote("show", "nobody", "--json", code=8).error["code"] == "RUN-NOT-FOUND"


def test_a_run_is_started_followed_and_ends_with_its_value_and_exit_code(scene: Scene) -> None:
    document = scene.file("gives.json", GIVES)
    done = scene.remote("run", document, "--input", "[1, 9007199254740993]", "--label", "a=b")
    assert done.json == {"given": [1, 9007199254740993]}
    assert "succeeded in" in done.err and "(gives, flow)" in done.err
    failed = scene.remote("run", scene.file("raises.json", RAISES), code=3)
    assert "on purpose" in failed.err and "perdure show" in failed.err
    detached = scene.remote("run", document, "--detach", "--token", "once", "--json").json
    again = scene.remote("run", document, "--detach", "--token", "once", "--json").json
    assert detached["id"] == again["id"] and detached["resume"] is None


def test_runs_are_steered_one_by_one_and_by_filter(scene: Scene) -> None:
    admin = scene.server.admin
    run = admin.start(WAITS)
    assert "signal 'go' sent" in scene.remote("signal", run, "go", '{"n": 1}').err
    assert admin.result(run)["value"] == {"n": 1}
    several = [admin.start(WAITS, labels={"batch": "blue"}) for _ in range(3)]
    assert scene.remote("pause", several[0], "--json").json["decided"] is True
    assert scene.remote("unpause", several[0]).code == 0
    planned = scene.remote("cancel", "--label", "batch=blue", "--dry-run", "--json").json
    assert planned["count"] == 3 and set(planned["ids"]) == set(several)
    scene.remote("cancel", "--label", "batch=blue", code=2)  # nobody has agreed
    done = scene.remote("cancel", "--label", "batch=blue", "--yes", "--reason", "enough", "--wait")
    assert "3 runs: asked to stop" in done.err
    assert {admin.result(run)["status"] for run in several} == {"cancelled"}
    assert "deleted" in scene.remote("delete", "run", several[0]).err
    assert admin("GET", f"/api/v1/runs/{several[0]}").status == 404


def test_a_gate_is_approved_by_who_the_token_is(scene: Scene) -> None:
    applied = scene.server.admin("POST", "/api/v1/resources:apply", {"documents": [GATED]})
    assert applied.status == 200, applied.text
    run = scene.remote("run", "gated", "--detach").out.strip()
    scene.remote("approve", run, "ok", "--message", "fine", "--by", "somebody else")
    assert scene.server.admin.result(run)["status"] == "succeeded"
    gate = scene.remote("show", run, "--json").json["status"]["gates"]["ok"]
    assert gate["updatedBy"] == "admin"


def test_resources_schedules_and_requests_go_through_the_server(scene: Scene) -> None:
    file = scene.file("nightly.yaml", NIGHTLY)
    assert {row["result"] for row in scene.remote("apply", file, "--json").json} == {"created"}
    looks = [
        ("get", "stories"),
        ("get", "story", "nightly-check", "-o", "yaml"),
        ("get", "impulses,stories", "-A", "--json"),
        ("get", "nothing"),
        ("describe", "story", "nightly-check"),
        ("describe", "impulse", "nightly", "--json"),
        ("schedule", "list"),
        ("schedule", "next", "nightly", "3", "--json"),
        ("schedule", "backfill", "nightly", "--from", "2026-05-01", "--to", "2026-05-02", "--dry-run"),
        ("schedule", "backfill", "nightly", "--from", "2026-05-03", "--to", "2026-05-02"),
        ("providers", "echo"),
    ]
    for words in looks:
        code = 8 if "nothing" in words else 2 if "2026-05-03" in words else 0
        assert scene.both(*words, code=code).code == code
    good = scene.file("calls.yaml", CALLS.format(name="nightly-check", more=""))
    bad = scene.file("lost.yaml", CALLS.format(name="nowhere", more=", {name: a, type: sleep}"))
    assert scene.both("check", good).code == 0
    for words in (("check", bad, good), ("check", bad, "--json"), ("check", scene.file("loop.yaml", ENDLESS))):
        assert scene.both(*words, code=7).out
    assert {"echo", "http"} <= {provider["name"] for provider in scene.remote("providers", "--json").json}
    assert "paused" in scene.remote("schedule", "pause", "nightly", "--reason", "moving").err
    assert scene.remote("schedule", "list", "--json").json[0]["paused"]["by"] == "admin"
    scene.remote("schedule", "pause", "nightly", code=9)
    assert "next: " in scene.remote("schedule", "unpause", "nightly").err
    first = scene.remote("trigger", "nightly-check", "--token", "evt-1", "--json").json
    again = scene.remote("trigger", "nightly-check", "--token", "evt-1", "--json").json
    assert first["status"]["storyRunRef"] == again["status"]["storyRunRef"]
    run = first["status"]["storyRunRef"]["name"]
    forked = scene.remote("fork", run, "--at", "1", "--detach").out.strip()
    assert scene.remote("status", forked, "--json").json["forked_from"]
    bad = scene.file("bad.yaml", NIGHTLY.replace("cron:", "corn:"))
    assert scene.both("apply", bad, code=7).err.startswith("bad.yaml:")
    scene.remote("delete", "story", "nightly-check", "no-such-story", code=8)
    assert "nightly-check" in scene.remote("get", "stories").out
    assert len(scene.remote("delete", "-f", file, "--json").json) == 2


def test_tokens_audit_and_overview_go_through_the_server(scene: Scene) -> None:
    made = scene.remote("token", "create", "--name", "by-wire", "--role", "viewer", "--expires", "1d", "--json").json
    assert made["token"].startswith("pdr_") and made["expires_at"]
    assert scene.both("token", "list").code == 0
    assert scene.remote("top", "--once", PERDURE_TOKEN=made["token"]).out.startswith("store")
    assert scene.remote("token", "revoke", "by-wire", "--json").json["valid"] is False
    scene.remote("token", "revoke", "nobody", code=8)
    frame = scene.remote("top", "--json").json
    assert frame["runs"]["failed"] >= 1 and frame["rates"] is None
    assert scene.remote("audit", "verify", "--json").json["problems"] == []
    assert scene.remote("audit", "head").out.strip()[0].isdigit()
    assert len(scene.remote("audit", "list", "--limit", "2", "--json").json) == 2


def test_settings_are_shown_with_their_origin_and_without_secrets(scene: Scene, tmp_path: Path) -> None:
    """SRV-005."""
    file = tmp_path / "server.toml"
    file.write_text('[limits]\nrate = 7\n[policy]\nproxy = "http://user:hidden@proxy:3128"\n')
    words = ("config", "view", "--show-origin", "--json", "--config", str(file), "--db", "postgresql://me:hidden@h/db")
    shown = scene.commands(*words, PERDURE_TOKEN="hidden", PERDURE_NAMESPACE="shop")
    assert "hidden" not in shown.out + shown.err
    settings = {setting["name"]: (setting["value"], setting["origin"]) for setting in shown.json}
    assert settings["limits.rate"] == (7, str(file)) and settings["limits.body"][1] == "default"
    assert settings["access_token"] == ("***", "PERDURE_TOKEN")
    assert settings["namespace"] == ("shop", "PERDURE_NAMESPACE")
    assert settings["db"][1] == "--db" and settings["config"] == (str(file), "--config")
    assert settings["server"] == (None, "default")
    by_environment = scene.remote("config", "view", "--show-origin")
    assert re.search(rf"^server +{scene.server.url} +PERDURE_SERVER$", by_environment.out, re.MULTILINE)


def test_a_token_comes_from_flag_environment_or_context_and_is_told_nowhere(scene: Scene, tmp_path: Path) -> None:
    commands, url = scene.commands, scene.server.url
    kept = tmp_path / "token"
    kept.write_text(scene.token + "\n")
    words = ("ps", "--json", "--server", url, "--access-token", f"@{kept}")
    assert commands(*words).json and commands(*words[-4:], "ps", "--json").json
    config = str(tmp_path / "config")

    def context(*words: str, code: int = 0) -> Done:
        done = commands(*words, code=code, XDG_CONFIG_HOME=config)
        assert scene.token not in done.out + done.err
        return done

    context("context", "add", "here", "--server", url, "--access-token", f"@{kept}", "-n", "default")
    file = tmp_path / "config" / "perdure" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert scene.runs["ended"] in context("ps").out
    (listed,) = context("context", "list", "--json").json
    assert (listed["name"], listed["server"], listed["current"], listed["token"]) == ("here", url, True, "kept")
    named = ("context", "add", "by-file", "--server", url, "--access-token-file", str(kept))
    kept.chmod(0o644)
    assert f"others can read the token in {kept}" in context(*named).err
    kept.chmod(0o600)
    assert "others can read" not in context(*named).err
    context("context", "remove", "by-file")
    context("context", "use", "--none")
    assert "there is no context 'nowhere'" in context("context", "use", "nowhere", code=8).err
    file.chmod(0o644)
    assert "chmod 600" in context("context", "use", "here", code=2).err


def test_a_context_that_is_still_in_use_is_named_where_it_surprises(tmp_path: Path) -> None:
    commands, config = CommandLine(tmp_path), str(tmp_path / "config")
    commands("context", "add", "old", "--server", "http://127.0.0.1:1", "--access-token", "x", XDG_CONFIG_HOME=config)
    (tmp_path / "hello.json").write_text(GIVES)
    (tmp_path / "tasks.py").write_text("")
    leave = "The context 'old' is in use; `perdure context use --none` leaves it"
    assert leave in commands("ps", code=1, XDG_CONFIG_HOME=config).err
    for verb in ("check", "run"):
        refused = commands(verb, "hello.json", "--load", "tasks.py", code=2, XDG_CONFIG_HOME=config).err
        assert leave in refused and "perdure serve --load" in refused
    assert "context" not in commands("ps", "--server", "http://127.0.0.1:1", code=1, XDG_CONFIG_HOME=config).err


def test_the_commands_of_the_guide_work_in_their_order(scene: Scene, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guide" / "remote.md").read_text("utf-8")
    commands = CommandLine(tmp_path)
    (tmp_path / "token").write_text(scene.token)
    (tmp_path / "hello.json").write_text(GIVES)
    blocks = re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    done = {}
    for line in "".join(blocks).splitlines():
        _, *words = shlex.split(line.replace("https://perdure.example.org", scene.server.url))
        done[" ".join(words[:2])] = commands(*words, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done["run hello.json"].json == {"given": "Ada"}
    assert "hello (flow)" in done["show @latest"].out
    assert scene.token not in "".join(done_by_role.out + done_by_role.err for done_by_role in done.values())


def test_who_may_not_is_told_what_to_do(scene: Scene) -> None:
    viewer = scene.server.role("viewer").token
    assert "PERDURE_TOKEN" in scene.remote("ps", code=10, PERDURE_TOKEN="wrong").err
    denied = scene.remote("cancel", scene.runs["waiting"], code=10, PERDURE_TOKEN=viewer or "")
    assert "role operator" in denied.err
    assert "not through a server" in scene.remote("backup", "x.bak", code=2).err
    assert "not both" in scene.commands("ps", "--db", "sqlite:///x.db", "--server", "http://127.0.0.1:1", code=2).err
    gone = scene.commands("ps", "--server", "http://127.0.0.1:1", "--json", code=1)
    assert gone.error["code"] == "SERVER-UNREACHABLE" and "http://127.0.0.1:1" in gone.err
    for url in ("ftp://x", "http://user:secret@127.0.0.1", "127.0.0.1:8420"):
        refused = scene.commands("ps", "--server", url, code=2)
        assert "secret" not in refused.err + refused.out


class Stranger(BaseHTTPRequestHandler):
    """A server that knows none of our requests."""

    theirs = ""

    def do_GET(self) -> None:
        body = json.dumps({"code": "ROUTE-NOT-FOUND", "detail": "there is nothing here", "hint": ""}).encode()
        self.send_response(404)
        if self.theirs:
            self.send_header("Perdure-Version", self.theirs)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize(
    ("theirs", "message"), [("9.9.9", "is Perdure 9.9.9, this is"), ("", "is not a Perdure server")]
)
def test_a_server_of_another_release_or_of_something_else_is_named(tmp_path: Path, theirs: str, message: str) -> None:
    """SRV-081."""
    with HTTPServer(("127.0.0.1", 0), type("Answers", (Stranger,), {"theirs": theirs})) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{stranger.server_port}"
        done = CommandLine(tmp_path).here("ps", "--server", url, code=8 if theirs else 1)
        stranger.shutdown()
        thread.join()
    assert message in done.err and url in done.err


def test_a_followed_run_survives_a_restart_of_its_server(tmp_path: Path) -> None:
    """Its start is not doubled, its events are not told twice, and its end is told."""
    server = Server.start(tmp_path)
    try:
        (tmp_path / "waits.json").write_text(
            '{"drill": 1, "name": "waits", "steps": [{"signal": "go"}, {"return": 5}]}'
        )
        token = server.admin.token or ""
        following = server.commands.start("run", "waits.json", PERDURE_SERVER=server.url, PERDURE_TOKEN=token)
        run = following.run
        following.hear("waits for")
        server.process.kill()
        following.hear("is lost")
        port = server.url.rpartition(":")[2]
        again = server.commands.start("serve", "--listen", f"127.0.0.1:{port}")
        again.hear("listening on ")
        following.hear("answers again")
        sent = server.commands("signal", run, "go", PERDURE_SERVER=server.url, PERDURE_TOKEN=token)
        assert sent.code == 0
        done = following.end()
        assert (done.code, done.json) == (0, 5), done
        assert done.err.count("signal 'go' received") == 1
        assert [row["id"] for row in server.commands("ps", "--json").json] == [run]
        again.send(signal.SIGTERM)
        assert again.end().code == 0
    finally:
        server.commands.end_all()


def test_verbs_of_a_store_refuse_a_server(tmp_path: Path) -> None:
    """Nobody restores or looks at a file here who meant the store of a server."""
    perdure = CommandLine(tmp_path)
    for words in (("restore", "copy.db"), ("db", "status"), ("backup", "copy.db"), ("prune", "--older-than", "1d")):
        done = perdure.here(*words, "--server", "http://127.0.0.1:9", code=2)
        assert "works on a store, not through a server" in done.err
