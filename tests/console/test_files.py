"""How a server sends the files of the console, and what it says without them (CON-020, CON-024, SRV-028)."""

import gzip
from pathlib import Path

from perdure.server.console_files import read_console

SCRIPT = b"export const answer = 42;\n" * 100


def _built(folder: Path) -> Path:
    (folder / "assets").mkdir()
    (folder / "index.html").write_bytes(b"<!doctype html><script type=module src=/assets/a-1.js></script>")
    (folder / "assets" / "a-1.js").write_bytes(SCRIPT)
    (folder / "assets" / "a-1.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets" / "notes.txt").write_text("not for browsers")
    return folder


def test_files_are_packed_for_who_can_read_that_and_kept_for_ever(tmp_path: Path) -> None:
    files = read_console(_built(tmp_path))
    packed, plain = (files.assets["a-1.js"].answer(accepted) for accepted in ("br, gzip;q=0.8", "identity"))

    assert gzip.decompress(packed.body) == plain.body == SCRIPT
    assert packed.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain.headers
    assert "immutable" in plain.headers["Cache-Control"] and plain.headers["Vary"] == "Accept-Encoding"
    assert plain.headers["Content-Type"].startswith("text/javascript")
    assert set(files.assets) == {"a-1.js"}


def test_the_page_lets_nothing_in_that_is_not_from_here(tmp_path: Path) -> None:
    page = read_console(_built(tmp_path)).page.answer("")
    policy = page.headers["Content-Security-Policy"]

    assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert page.headers["Cache-Control"] == "no-cache"


def test_without_files_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    for folder in (None, tmp_path, tmp_path / "nowhere"):
        files = read_console(folder)
        assert b"make console" in files.page.body and b"<script" not in files.page.body
        assert files.assets == {}
