"""The page "From a first project to production" is true: a reader gets to its end, with servers and PostgreSQL."""

import re
import shlex
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine, Done, Running
from tests.postgres import as_url

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "tour.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FAILS = re.compile(r'^run order .*"lamp"')


class Reader:
    """Types what the page says, in two terminals; only the address of the server and of the database are others."""

    def __init__(self, folder: Path, database: str) -> None:
        self.line = CommandLine(folder)
        self.config = str(folder / "config")
        self.server: Running | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.addresses = {
                "127.0.0.1:8420": f"127.0.0.1:{free.getsockname()[1]}",
                "postgresql://localhost/shop": database,
            }

    def type(self, command: str) -> Done | None:
        for written, real in self.addresses.items():
            command = command.replace(written, real)
        if command.startswith("cd "):
            self.line = CommandLine(self.line.folder / command.removeprefix("cd "))
            return None
        command, _, file = command.removeprefix("perdure ").partition(" > ")
        words = shlex.split(command)
        if words[0] == "serve":
            self.stop()
            self.server = self.line.start(*words)
            self.server.hear("listening on")
            return None
        if words[:2] == ["db", "copy"]:
            self.stop()
        done = self.line(*words, code=3 if _FAILS.match(command) else 0, XDG_CONFIG_HOME=self.config)
        if file:
            (self.line.folder / file).write_text(done.out)
        return done

    def stop(self) -> None:
        if self.server is not None:
            self.server.send(signal.SIGINT)
            assert self.server.end().code == 0
            self.server = None


@pytest.fixture
def reader(tmp_path: Path, postgres_url: str) -> Iterator[Reader]:
    reader = Reader(tmp_path, as_url(postgres_url))
    yield reader
    reader.stop()


def test_a_reader_gets_to_the_end(reader: Reader) -> None:
    printed: list[tuple[str, str]] = []
    for kind, file, content in _BLOCK.findall(PAGE):
        if file:
            (reader.line.folder / file).write_text(content, encoding="utf-8")
        elif kind == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                done = reader.type(command)
                if done is not None:
                    printed.append((command, done.out))
                    assert not shown or done.out == shown

    outputs = dict(printed)  # of a command that is typed twice, the last
    assert "3 passed, 0 failed" in outputs["perdure test . --crash=all"]
    assert "lamp" in outputs["perdure why @latest"]
    assert '"price":45' in outputs["perdure show @latest"]
    before, after = [out for command, out in printed if command == "perdure ps"]
    assert "waiting" in before and "approval" in before
    assert after.count("succeeded") == 4 and "failed" not in after
