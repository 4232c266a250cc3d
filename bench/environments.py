"""An environment of its own for each peer, made once and kept in a folder."""

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from bench.peers.peer import Peer


class CannotInstall(Exception):
    """The registry does not have it, or it does not fit this machine."""


def peer_named(name: str) -> Peer:
    peer: Peer = import_module(f"bench.peers.{name}").PEER
    return peer


def prepare(name: str, under: Path) -> Path:
    """The peer's home; a changed list of packages makes a new one."""
    peer, home = peer_named(name), (under / name).resolve()
    installation = json.dumps([peer.packages, peer.npm, sys.version])
    done = home / "installed"
    if done.exists() and done.read_text() == installation:
        return home
    shutil.rmtree(home, ignore_errors=True)
    uv = shutil.which("uv")
    python = home / "bin" / "python"
    if uv:
        _run(name, [uv, "venv", "--quiet", "--python", sys.executable, str(home)])
        _run(name, [uv, "pip", "install", "--quiet", "--python", str(python), *peer.packages])
    else:
        _run(name, [sys.executable, "-m", "venv", str(home)])
        _run(name, [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages])
    if peer.npm:
        npm = shutil.which("npm")
        if npm is None:
            raise CannotInstall(f"{name} needs {', '.join(peer.npm)}, and there is no npm")
        where = ["--prefix", str(home)]
        _run(name, [npm, "install", *where, "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *peer.npm])
    done.write_text(installation)
    return home


def versions(home: Path, peer: Peer) -> dict[str, str]:
    """What was installed of what the peer names."""
    names = [re.split(r"[\[<=>]", package)[0] for package in peer.packages]
    code = (
        "import json, sys; from importlib.metadata import version; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([home / "bin" / "python", "-c", code, *names], capture_output=True, text=True, check=True)
    versions_by_package: dict[str, str] = json.loads(done.stdout)
    for package in peer.npm:
        described = json.loads((home / "node_modules" / package / "package.json").read_text())
        versions_by_package[package] = described["version"]
    return versions_by_package


def _run(name: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no reason given"]
        raise CannotInstall(f"{name}: {last[0][:300]}")
