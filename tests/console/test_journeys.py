"""The journeys of the console: a real Chromium looks at a real server with runs of every language (CON-001 to CON-027).

One server and one browser play all of them. `python -m tests.console.test_journeys WORDS` plays those whose name
contains the words, and leaves pictures in the folder that `PERDURE_TEST_PICTURES` names.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import build_console

from tests.console.sample_runs import CLICKS, ENGRAMS, make_runs
from tests.server.serving import Server

HERE = Path(__file__).parent
JOURNEYS = sorted(path for path in (HERE / "journeys").glob("*.mjs") if path.stem not in ("play", "world"))
LIMIT = 900  # seconds, for all of them


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def need_console() -> str:
    """The browser, once the console is built; skips, with the reason, where that is not possible."""
    browser = chromium()
    if browser is None:
        pytest.skip("the journeys of the console need Chromium (Debian: apt-get install chromium)")
    try:
        build_console.make_console()
    except build_console.PackagesMissing as missing:
        pytest.skip(f"the console cannot be built here: {missing}")
    return browser


class Stage:
    """The server that is looked at; it can be killed, and comes back under the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "engrams.py").write_text(ENGRAMS, "utf-8")
        self.server = self._serve("127.0.0.1:0")
        self.port = self.server.url.rpartition(":")[2]

    def _serve(self, address: str) -> Server:
        settings = {
            "PERDURE_STORAGE_DIR": str(self.folder / "storage"),
            "PERDURE_RETENTION": '[{"status": "succeeded", "keep": "400d"}]',
        }
        return Server.start_for(LIMIT, self.folder, "--listen", address, "--load", "./engrams.py", **settings)

    def kill(self) -> None:
        self.server.process.kill()
        self.server.commands.end_all()  # closes its pipes

    def start(self) -> None:
        self.server = self._serve(f"127.0.0.1:{self.port}")

    def facts(self) -> dict[str, Any]:
        address = (self.folder / "perdure.db-server" / "console-address").read_text("utf-8").strip()
        roles = ("viewer", "operator", "author")
        tokens = {role: self.server.role(role).token for role in roles} | {"admin": self.server.admin.token}
        body = {"name": "empty", "role": "viewer", "namespaces": ["nowhere"]}
        tokens["empty"] = self.server.admin("POST", "/api/v1/tokens", body).json["token"]
        documents, runs = {"clicks": CLICKS}, make_runs(self.server.admin)
        return {"url": self.server.url, "address": address, "tokens": tokens, "runs": runs, "documents": documents}


def play(folder: Path, browser: str, words: str = "") -> Iterator[dict[str, Any]]:
    """What became of each journey."""
    stage = Stage(folder)
    settings = {
        **stage.facts(),
        "console": str(build_console.SOURCE),
        "chromium": browser,
        "files": [str(path) for path in JOURNEYS],
        "only": words,
        "pictures": os.environ.get("PERDURE_TEST_PICTURES", ""),
    }
    command = [shutil.which("node") or "node", str(HERE / "journeys" / "play.mjs")]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    try:
        assert process.stdin is not None and process.stdout is not None
        _tell(process, settings)
        for line in process.stdout:
            message = json.loads(line)
            if "ask" in message:
                stage.kill() if message["ask"] == "kill" else stage.start()
                _tell(process, {"done": True})
            else:
                yield message
        assert process.wait(LIMIT) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)
        stage.server.commands.end_all()


def _tell(process: "subprocess.Popen[str]", value: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(value) + "\n")
    process.stdin.flush()


def test_the_journeys_of_the_console(tmp_path: Path) -> None:
    """CON-001 to CON-027; each journey names its rules."""
    played = list(play(tmp_path, need_console()))

    failed = [f"{each['journey']}\n{each['error']}" for each in played if each["error"]]
    assert not failed, "\n\n".join(failed)
    assert len(played) >= 27


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        for each in play(Path(scratch), need_console(), " ".join(sys.argv[1:])):
            lines = [f"{each['seconds']:6.1f} s  {each['journey']}  {each['error'] or 'ok'}", *each["measured"]]
            sys.stdout.write("\n          ".join(lines) + "\n")
