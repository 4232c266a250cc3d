"""Every command of every page is run by a test: here those of pages that no other test follows, on real processes."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine, Done, Running
from tests.docs.commands import FOLLOWED, NOT_RUN, ROOT, command_lines, is_run_elsewhere
from tests.postgres import as_url

HELLO = (ROOT / "examples" / "hello.json").read_text(encoding="utf-8")
STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: orders}
spec:
  steps:
  - {name: number, type: sleep, with: {duration: 1ms}}
"""
GATED = STORY.replace("type: sleep, with: {duration: 1ms}", "type: gate")
PLAYBOOK = (ROOT / "examples" / "playbooks" / "hello.yaml").read_text(encoding="utf-8")
PAY = """
import os, signal
from pathlib import Path
import perdure

def charge():
    if not Path("safe").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": 7}

@perdure.provider("pay")
def pay(context: perdure.TaskContext):
    return context.effect_once("charge", charge)
"""
HELD = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "middleware": [{"provider": "mwl:provider.middleware/perdure/hold-effects/v1"}],
    "entrypoint": "pay",
    "steps": {
        "pay": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/pay/v1"}, "next": "done"},
        "done": {"action": "Return"},
    },
}


class Reader:
    """Types the commands of pages as they are written. What a page cannot know, such as ids, is replaced."""

    def __init__(self, folder: Path) -> None:
        self.line = CommandLine(folder)
        self.servers: list[Running] = []
        self.typed = 0

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.line.folder / name.replace("__", ".")).write_text(text, encoding="utf-8")

    def type(self, command: str, **replaced: str) -> Done:
        for written, meant in replaced.items():
            command = command.replace(written, meant)
        self.typed += 1
        program, *words = shlex.split(command.replace('"$(cat head)"', "@@head"))
        assert program == "perdure"
        words, _, file = (words[: words.index(">")], ">", words[-1]) if ">" in words else (words, "", "")
        head = self.line.folder / "head"
        words = [head.read_text().strip() if word == "@@head" else word for word in words]
        done = self.line(*words)
        if file:
            (self.line.folder / Path(file).name).write_text(done.out)
        return done

    def serve(self, command: str, ready: str = "listening on", **replaced: str) -> Running:
        for written, meant in replaced.items():
            command = command.replace(written, meant)
        self.typed += 1
        server = self.line.start(*shlex.split(command)[1:])
        self.servers.append(server)
        server.hear(ready)
        return server

    def stop(self) -> None:
        for server in self.servers:
            server.send(signal.SIGINT)
            assert server.end().code == 0
        self.servers.clear()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.line.end_all()


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def page_of(name: str, begin: str = "perdure ") -> list[str]:
    """The commands of a page that nothing else runs, in its order."""
    return [
        command
        for page, command in command_lines()
        if page == name and command.startswith(begin) and not is_run_elsewhere(page, command)
    ]


def test_every_command_of_every_page_is_run_by_a_test() -> None:
    typed = {page for page, command in command_lines() if not is_run_elsewhere(page, command)}

    assert typed == set(TYPED), "a page with commands that nothing runs: follow it here, or say why not"
    for page, test in FOLLOWED.items():
        assert (ROOT / page).exists() and (ROOT / test).exists()
    for begin in NOT_RUN:
        assert any(command.startswith(begin) for _, command in command_lines()), f"no page says {begin!r} any more"
    assert len(list(command_lines())) > 250


def follow_the_readme(reader: Reader, address: str) -> None:
    """Its second list of commands; the first is followed by `tests/docs/test_path.py`."""
    meant = {"RUN": "@latest", "FILE": "workflow.json", "DIR": "."}
    created, *commands = page_of("README.md")
    reader.type(created)
    reader.line.folder /= "shop"
    for command in commands:
        loaded = " --load ./tasks.py" if command.split()[1] in ("check", "sim", "graph") else ""
        if command == "perdure show RUN":
            reader.line("run", "workflow.json", "--load", "./tasks.py", "--input", '{"item": "pen"}')
        reader.type(command + loaded, **meant)


def follow_looking_at_runs(reader: Reader, address: str) -> None:
    show, diff, why = page_of("docs/guide/looking.md")
    document = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "first",
        "steps": {
            "first": {
                "action": "Call",
                "call": {
                    "provider": "mwl:provider.call/perdure/shell/v1",
                    "with": {
                        "argv": ["true"],
                        "env": {"WHO": "{{ call.input.flag ? call.input.a : call.input.b }}"},
                    },
                },
                "next": "done",
            },
            "done": {"action": "Return"},
        },
    }
    reader.write(branching__json=json.dumps(document))
    for flag in ("true", "false"):
        reader.line("run", "branching.json", "--set", f"flag={flag}", "--set", "a=A", "--set", "b=B")
    newest, older = [row["id"] for row in reader.line("ps", "--json").json]
    assert newest in reader.type(show.replace("01m7md8dz4", newest[:14] if newest[:14] != older[:14] else newest)).out
    assert "input.flag" in reader.type(diff, **{"01m7p457a": newest, "01m7p456j": older}).out
    assert "false" in reader.type(why, **{"01m7pefpx": newest, "with.who": "with.env"}).out


def follow_moving(reader: Reader, address: str) -> None:
    impact, dry, move = page_of("docs/guide/moving.md")
    reader.write(orders__yaml=GATED)
    reader.line("run", "orders.yaml", "--detach")
    longer = GATED + "  - {name: after, type: gate, needs: [number]}\n"
    reader.write(orders__yaml=longer)
    assert "1 safe" in reader.type(impact, **{"orders.json": "orders.yaml"}).out
    assert reader.type(dry).code == 0
    assert "recorded" in reader.type(move).out


def follow_store_administration(reader: Reader, address: str) -> None:
    copied, served, *commands = page_of("docs/guide/operating.md")
    real = {"postgresql://perdure@db.example/perdure": address}
    line = reader.line
    line("run", line.drill({"fail": "Bad.Luck"}, name="nightly"), "--db", "sqlite:///runs.db", code=3)
    reader.type(copied, **real)
    reader.serve(f"{served} --listen 127.0.0.1:0", **real)
    reader.stop()

    effects, done, not_done = commands[:3]
    reader.write(held__json=json.dumps(HELD), pay__py=PAY)
    for command, safe in ((done, False), (not_done, True)):
        line("run", "held.json", "--load", "pay.py", code=-signal.SIGKILL)
        (line.folder / "safe").touch()
        run = line("ps", "--json").json[0]["id"]
        assert "in_doubt" in reader.type(effects, RUN=run).out
        reader.type(command, RUN=run)
        assert line("resume", run, "--load", "pay.py", "--json").json["value"] == {"receipt": 7}, safe
        (line.folder / "safe").unlink()

    (line.folder / "examples").symlink_to(ROOT / "examples")
    in_shop = [command for command in commands[3:] if "-n shop" in command or command == "perdure ps -A"]
    for command in in_shop:
        reader.type(f"{command} --load examples/flows/service.py" if " run " in command else command)
    line("run", "nightly.json", code=3)
    waiting = [line("run", line.drill({"signal": "approved"}), "--detach").out.strip() for _ in range(2)]
    line("cancel", line("run", "drill.json", "--detach").out.strip())
    for command in commands[3 + len(in_shop) :]:
        if " --key " in command:
            command += " --yes"  # a person is asked
        reader.type(command, **{"06g2k": waiting[0], "06g3m": waiting[1]})
    assert "cancelled" not in line("ps", "-A", "--all").out
    assert "#compdef perdure" in (line.folder / "_perdure").read_text()


def follow_pictures(reader: Reader, address: str) -> None:
    reader.write(flow__json=HELLO, story__yaml=GATED, playbook__yaml=PLAYBOOK)
    reader.line("run", "story.yaml", "--detach")
    for command in page_of("docs/guide/pictures.md"):
        reader.type(command, **{"06g2k": "@latest"})
    assert (reader.line.folder / "flow.svg").read_text().startswith("<svg")


def follow_schedules(reader: Reader, address: str) -> None:
    text = (ROOT / "docs" / "guide" / "schedules.md").read_text(encoding="utf-8")
    for name, block in re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL):
        (reader.line.folder / name).write_text(block)
    (alert,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    reader.write(alert__json=alert)
    for command in page_of("docs/guide/schedules.md"):
        if command == "perdure serve":
            reader.serve(f"{command} --listen 127.0.0.1:0")
        else:
            reader.type(command)
    reader.stop()


def follow_running_a_server(reader: Reader, address: str) -> None:
    serve, *commands = page_of("docs/guide/server.md")
    database = {"PERDURE_DB": "sqlite:///runs.db"}
    reader.serve(f"{serve} --listen 127.0.0.1:0")
    for command in commands:
        reader.type(
            f"{command} --db {database['PERDURE_DB']}"
            if ">" not in command
            else command.replace(">", "--db sqlite:///runs.db >")
        )
    reader.stop()


def follow_several_servers(reader: Reader, address: str) -> None:
    reader.write(tasks__py="import perdure\n")
    for command in page_of("docs/guide/servers.md"):
        real = {"postgresql://perdure@db.example/perdure": address, "8081": free_port()}
        reader.serve(f"{command} --listen 127.0.0.1:0", **real)
        reader.stop()


def follow_the_console(reader: Reader, address: str) -> None:
    for page in ("docs/guide/console.md", "docs/guide/from-noetl.md"):
        for command in page_of(page):
            reader.serve(
                command if "--listen" in command else f"{command} --listen 127.0.0.1:0", **{"8082": free_port()}
            )
            reader.stop()


def follow_starting_stories(reader: Reader, address: str) -> None:
    reader.write(story__yaml=STORY)
    reader.line("apply", "-f", "story.yaml")
    for command in page_of("docs/guide/story/triggers.md"):
        reader.type(command)
    page = (ROOT / "docs" / "guide" / "story" / "triggers.md").read_text(encoding="utf-8")
    impulse = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "ImpulseTemplate" in block)
    reader.write(impulse__yaml=impulse, review__yaml=STORY.replace("orders", "review"))
    reader.line("apply", "-f", "review.yaml", "-f", "impulse.yaml")
    server = reader.serve("perdure serve --listen 127.0.0.1:0 --json")
    assert server.process.stdout is not None
    url = json.loads(server.process.stdout.readline())["url"]
    token = next(reader.line.folder.rglob("admin-token")).read_text().strip()
    (curl,) = page_of("docs/guide/story/triggers.md", "curl ")
    environment = {**os.environ, "URL": url, "TOKEN": token}
    answer = subprocess.run(
        ["sh", "-c", curl.replace("curl ", "curl -s --fail-with-body ")],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    reader.stop()


def follow_workers(reader: Reader, address: str) -> None:
    created, worked, served, shop, own, started = page_of("docs/guide/workers.md")
    reader.write(train__py="import perdure\n\n@perdure.provider('train')\ndef train():\n    return 1\n")
    reader.type(created)
    server = reader.serve("perdure serve --listen 127.0.0.1:0 --json")
    assert server.process.stdout is not None
    url = json.loads(server.process.stdout.readline())["url"]
    reader.serve(worked, "working for", **{"https://perdure.example.org": url})
    reader.servers.reverse()  # the worker stops first
    reader.stop()
    (flow,) = re.findall(r"```json\n(\{\"\$schema\".*?)```", (ROOT / "docs/guide/workers.md").read_text(), re.DOTALL)
    reader.write(greet__json=flow)
    server = reader.serve(served, serve="serve --listen 127.0.0.1:0")
    for command in (shop, own):
        reader.type(command)
    started = started.replace("http://127.0.0.1:8420", server.heard[-1].split()[-1])
    reader.type(started)
    assert "no worker of pool shop offers greet" in reader.line("ps").out
    reader.stop()


def follow_references(reader: Reader, address: str) -> None:
    reader.write(story__yaml=STORY, hello__json=HELLO)
    (run,) = page_of("docs/reference/postgres.md")
    reader.type(run, **{"FILE": "hello.json --input '\"Ada\"'", "postgresql://perdure@db.example/perdure": address})
    (check,) = page_of("docs/reference/story.md")
    reader.type(check)


TYPED: dict[str, Callable[[Reader, str], None]] = {
    "README.md": follow_the_readme,
    "docs/guide/console.md": follow_the_console,
    "docs/guide/from-noetl.md": follow_the_console,
    "docs/guide/looking.md": follow_looking_at_runs,
    "docs/guide/moving.md": follow_moving,
    "docs/guide/operating.md": follow_store_administration,
    "docs/guide/pictures.md": follow_pictures,
    "docs/guide/schedules.md": follow_schedules,
    "docs/guide/server.md": follow_running_a_server,
    "docs/guide/servers.md": follow_several_servers,
    "docs/guide/story/triggers.md": follow_starting_stories,
    "docs/guide/workers.md": follow_workers,
    "docs/reference/postgres.md": follow_references,
    "docs/reference/story.md": follow_references,
}
"""How the commands of a page are typed, each of them."""


@pytest.mark.parametrize("follow", list(dict.fromkeys(TYPED.values())))
def test_the_commands_of_a_page_work(reader: Reader, postgres_url: str, follow: Callable[[Reader, str], None]) -> None:
    follow(reader, as_url(postgres_url))

    pages = [page for page, followed in TYPED.items() if followed is follow]
    assert reader.typed >= sum(len(page_of(page)) for page in pages), "a command of the page was not typed"
