"""A document reaches no object beside those of the buckets that the operator names, and none that expands."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from perdure.providers.external_texts import BUCKETS, Script, read_bytes
from perdure.providers.failure import ProviderFailure

ASKED: list[str] = []


class Storage(BaseHTTPRequestHandler):
    """Has every object of every bucket, whoever asks."""

    def do_GET(self) -> None:
        ASKED.append(self.path)
        is_compressed = self.path.endswith(".gz")
        body = gzip.compress(gzip.compress(b"\0" * 1_000_000)) if is_compressed else self.path.encode()
        self.send_response(200)
        if is_compressed:
            self.send_header("Content-Encoding", "gzip, gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ASKED.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Storage)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    monkeypatch.setenv(BUCKETS, f"http://127.0.0.1:{server.server_port}/scripts")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    yield
    server.shutdown()
    server.server_close()
    serving.join()


@pytest.mark.parametrize("key", ["/../values/k", "/a/../../values/k", "/..", "/./..", "/.", "/", ""])
@pytest.mark.usefixtures("storage")
def test_no_key_leads_out_of_its_bucket(key: str) -> None:
    """The signed request was for the object of another bucket of the same service, or for the list of all."""
    with pytest.raises(ProviderFailure) as refusal:
        read_bytes(Script(uri=f"s3://scripts{key}"))

    assert refusal.value.code.endswith(".Forbidden")
    assert not ASKED


@pytest.mark.usefixtures("storage")
def test_dots_in_a_name_are_no_way_out() -> None:
    assert read_bytes(Script(uri="s3://scripts/a/..b/c...py")) == b"/scripts/a/..b/c...py"


@pytest.mark.usefixtures("storage")
def test_an_object_that_its_storage_has_compressed_is_not_expanded() -> None:
    """A kilobyte became as large as whoever stored it wished, before anything was counted."""
    with pytest.raises(ProviderFailure, match="compressed") as refusal:
        read_bytes(Script(uri="s3://scripts/a.gz"))

    assert refusal.value.code.endswith(".Unreadable")
