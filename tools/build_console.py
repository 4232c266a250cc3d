"""Build the console into the package: `make console`. Needs Node 20 or newer and npm; nothing else has to be installed.

What was built from the same sources before is kept. `--check` builds nothing: it says whether that is so.
"""

import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "console"
TARGET = ROOT / "src" / "perdure" / "server" / "console"
STAMP = "built-from"
OLDEST_NODE = 20
PACKED_FROM = 1_000  # bytes
MADE = SOURCE / "dist"  # moved to its place when it is complete: a server may start meanwhile


class NotBuilt(Exception):
    """What went wrong, for whoever runs it."""


class PackagesMissing(NotBuilt):
    """Node, npm or the packages of the lock file are not to be had here."""


def digest_of_sources() -> str:
    """Of everything that the built files depend on."""
    files = [path for path in SOURCE.iterdir() if path.is_file()]
    files += [path for path in (SOURCE / "src").rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(SOURCE)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def is_current() -> bool:
    stamp = TARGET / STAMP
    return stamp.is_file() and stamp.read_text("utf-8") == digest_of_sources()


def install() -> None:
    """The packages of the lock file, unless they are there."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise PackagesMissing(f"the console is built with Node {OLDEST_NODE} or newer and npm, which are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        raise PackagesMissing(f"the console is built with Node {OLDEST_NODE} or newer, and this is {version}")
    lock, installed = SOURCE / "package-lock.json", SOURCE / "node_modules" / ".installed"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if installed.is_file() and installed.read_text("utf-8") == digest:
        return
    try:
        _run(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    except NotBuilt as failed:
        raise PackagesMissing(str(failed)) from None
    installed.write_text(digest, "utf-8")


def build() -> None:
    """Types first; then the files, and each packed beside it."""
    npm = shutil.which("npm") or "npm"
    shutil.rmtree(MADE, ignore_errors=True)
    _run(npm, "run", "--silent", "types")
    _run(npm, "run", "--silent", "build", "--", "--outDir", str(MADE), "--logLevel", "warn")
    for path in [path for path in MADE.rglob("*") if path.is_file()]:
        body = path.read_bytes()
        if len(body) >= PACKED_FROM:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(body, 9, mtime=0))
    (MADE / STAMP).write_text(digest_of_sources(), "utf-8")
    shutil.rmtree(SOURCE / "node_modules" / ".former", ignore_errors=True)
    if TARGET.exists():
        TARGET.rename(SOURCE / "node_modules" / ".former")
    MADE.rename(TARGET)
    shutil.rmtree(SOURCE / "node_modules" / ".former", ignore_errors=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=SOURCE, env={**os.environ, "CI": "true"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotBuilt(f"`{' '.join(command[:3])}` failed:\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}")


def make_console() -> bool:
    """Whether something had to be built. One process at a time."""
    with (SOURCE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current():
            return False
        install()
        build()
        return True


def main(words: list[str]) -> int:
    if words == ["--check"]:
        return 0 if is_current() else 1
    try:
        was_built = make_console()
    except NotBuilt as missing:
        print(missing, file=sys.stderr)
        return 1
    print(f"the console is {'built' if was_built else 'there already'}: {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
