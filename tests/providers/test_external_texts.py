"""Scripts outside of documents: from allowed files, and from a real server."""

import hashlib
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from perdure.providers.external_texts import ROOT, Script, TextSource, read_text
from perdure.providers.failure import ProviderFailure


@pytest.fixture(autouse=True)
def no_fixed_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "a.sql").write_text("inside")
    (inside / "deep" / "b c.sql").write_text("deep")
    (tmp_path / "secret").write_text("outside")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "bytes").write_bytes(b"\xff")
    return inside


def read(uri: str, folder: Path | None = None, **more: Any) -> str:
    return read_text(Script(uri, folder=None if folder is None else str(folder), **more))


def refused(uri: str, folder: Path | None = None, **more: Any) -> tuple[str, bool | None]:
    with pytest.raises(ProviderFailure) as failed:
        read(uri, folder, **more)
    assert uri.partition("?")[0] in failed.value.message
    return failed.value.code.removeprefix("Provider.Call.ScriptSource."), failed.value.retryable


def test_a_text_is_itself() -> None:
    assert read_text("SELECT 1") == "SELECT 1"


def test_names_are_relative_to_the_folder(folder: Path) -> None:
    assert read("a.sql", folder) == "inside"
    assert read("./deep/../a.sql", folder) == "inside"
    assert read("deep/b c.sql", folder, source=TextSource("file")) == "deep"
    assert read(str(folder / "a.sql"), folder) == "inside"
    assert read((folder / "deep" / "b c.sql").as_uri(), folder) == "deep"


def test_without_a_folder_the_working_directory_is_meant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    assert read("a.sql") == "inside"
    assert refused("../secret") == ("Forbidden", False)


@pytest.mark.parametrize("uri", ["../secret", "deep/../../secret", "link", "/etc/passwd", "file:///etc/passwd"])
def test_nothing_leads_out_of_the_folder(folder: Path, uri: str) -> None:
    assert refused(uri, folder) == ("Forbidden", False)


def test_an_operator_may_fix_the_folder_of_all_scripts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT, str(folder / "deep"))

    assert read("b c.sql", folder) == "deep"
    assert refused("a.sql", folder) == ("NotFound", False)
    assert refused("../a.sql", folder) == ("Forbidden", False)


def test_what_cannot_be_read(folder: Path) -> None:
    assert refused("nowhere.sql", folder) == ("NotFound", False)
    assert refused("deep", folder) == ("NotFound", False)
    assert refused("bytes", folder) == ("Unreadable", False)
    assert refused("a\0b", folder) == ("Unreadable", False)
    assert refused("s3://bucket/a.sql", folder) == ("Forbidden", False), "the operator names the buckets of scripts"
    assert refused("a.sql", folder, source=TextSource("gcs")) == ("UnknownSource", False)


def test_a_digest_refuses_any_other_content(folder: Path) -> None:
    digest = hashlib.sha256(b"inside").hexdigest()

    assert read("a.sql", folder, sha256=digest.upper()) == "inside"
    assert refused("a.sql", folder, sha256="0" * 64) == ("WrongDigest", False)


class _Library(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.rpartition("/")[2]) if self.path.startswith("/status/") else 200
        self.send_response(status)
        self.end_headers()
        if self.path == "/drop-by-drop":
            self._drip()
            return
        self.wfile.write(f"{self.path} {self.headers['authorization']} {self.headers['x-color']}".encode())

    def _drip(self) -> None:
        try:
            while True:
                self.wfile.write(b"x")
                time.sleep(0.02)
        except OSError:  # nobody listens any more
            pass

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def library() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Library)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_script_behind_an_address(library: str) -> None:
    assert read(f"{library}/a.py?v=1") == "/a.py?v=1 None None"
    assert (
        read("a.py", source=TextSource("http", endpoint=f"{library}/x/", headers={"X-Color": "red"}))
        == "/x/a.py None red"
    )


def test_credentials_of_an_address(library: str) -> None:
    assert read(f"{library}/a", source=TextSource(auth={"token": "t"})) == "/a Bearer t None"
    assert read(f"{library}/a", source=TextSource(auth={"username": "u", "password": "p"})) == "/a Basic dTpw None"
    assert refused(f"{library}/a", source=TextSource(auth="some_name")) == ("Denied", False)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, ("NotFound", False)),
        (403, ("Denied", False)),
        (429, ("Busy", True)),
        (503, ("ServerError", True)),
        (400, ("Refused", False)),
    ],
)
def test_answers_that_are_no_script(library: str, status: int, expected: tuple[str, bool]) -> None:
    assert refused(f"{library}/status/{status}") == expected


def test_a_server_that_is_not_there() -> None:
    assert refused("http://127.0.0.1:1/a.py") == ("ConnectionFailed", True)


def test_a_server_that_never_ends(library: str) -> None:
    assert refused(f"{library}/drop-by-drop", source=TextSource(timeout=0.3)) == ("Timeout", True)


def test_secrets_of_an_address_are_not_told() -> None:
    with pytest.raises(ProviderFailure) as failed:
        read("http://ada:s3cret@127.0.0.1:1/a.py?token=s3cret")

    assert "s3cret" not in failed.value.message + str(failed.value.details)
