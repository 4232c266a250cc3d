"""The files of the console: what `make console` has built, kept in memory, with the headers that browsers need.

They hold no data, and need no token. A name of a file under `/assets` contains its digest: browsers keep it for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perdure.server.calls import Answer, ApiCall, Result
from perdure.views.api_errors import RouteNotFound

FOLDER = Path(__file__).parent / "console"
PAGE = "index.html"
PACKED = ".gz"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
CONSOLE_POLICY = (
    f"{POLICY}; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'"
)
"""Nothing from elsewhere, nothing written into the page: no script or style that a text could bring along."""

SECURITY_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
NO_CONSOLE = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Perdure</title>
<h1>Perdure</h1>
<p>This server answers the API under <code>/api/v1</code>, as <code>/openapi.json</code> describes it.</p>
<p>It has no console: in a checkout, <code>make console</code> builds it, with Node 20 or newer, and the next
start of the server serves it. The command line does the same:</p>
<pre>perdure --server URL --access-token @FILE ps</pre>
</html>
"""


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    body: bytes
    packed: bytes | None  # with gzip
    headers: Mapping[str, str]

    def answer(self, accept_encoding: str) -> Answer:
        names = {part.partition(";")[0].strip() for part in accept_encoding.split(",")}
        if self.packed is None or "gzip" not in names:
            return Answer(self.body, 200, self.headers)
        return Answer(self.packed, 200, {**self.headers, "Content-Encoding": "gzip"})


@dataclass(frozen=True)
class ConsoleFiles:
    """The page, and by name what it loads; without a page there is no console."""

    page: ConsoleFile
    assets: Mapping[str, ConsoleFile] = field(default_factory=dict)


def read_console(folder: Path | None = FOLDER) -> ConsoleFiles:
    if folder is None or not (folder / PAGE).is_file():
        headers = {"Content-Type": MEDIA_TYPES[".html"], "Content-Security-Policy": POLICY, **SECURITY_HEADERS}
        return ConsoleFiles(ConsoleFile(NO_CONSOLE, None, headers))
    page = _read(folder / PAGE, {"Cache-Control": "no-cache", "Content-Security-Policy": CONSOLE_POLICY})
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    files = [path for path in (folder / "assets").iterdir() if path.suffix in MEDIA_TYPES]
    return ConsoleFiles(page, {path.name: _read(path, kept) for path in files})


def _read(path: Path, headers: Mapping[str, str]) -> ConsoleFile:
    packed = path.with_name(path.name + PACKED)
    media = {"Content-Type": MEDIA_TYPES[path.suffix], "Vary": "Accept-Encoding"}
    body = packed.read_bytes() if packed.is_file() else None
    return ConsoleFile(path.read_bytes(), body, {**media, **SECURITY_HEADERS, **headers})


async def get_front_page(call: ApiCall) -> Result:
    files: ConsoleFiles = call.server.console
    return files.page.answer(call.headers.get("accept-encoding", ""))


async def get_console_file(call: ApiCall) -> Result:
    files: ConsoleFiles = call.server.console
    file = files.assets.get(call.path["file"])
    if file is None:
        raise RouteNotFound(f"the console has no file {call.path['file'][:80]!r}")
    return file.answer(call.headers.get("accept-encoding", ""))
