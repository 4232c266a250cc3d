"""A service that speaks S3: moto's server, from the registry, in an environment of its own that is made once."""

import fcntl
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSION = "5.1.22"
PLACE = Path(sys.prefix) / ".clients" / f"moto-{VERSION}"
PYTHON = PLACE / "bin" / "python"


def install_moto() -> None:
    """Skips the test where the registry does not answer."""
    PLACE.parent.mkdir(exist_ok=True)
    with (PLACE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (PLACE / "bin" / "moto_server").exists():
            return
        subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True, capture_output=True, timeout=300)
        needed = [f"moto[s3]=={VERSION}", "flask", "flask-cors"]
        command = [str(PLACE / "bin" / "pip"), "install", "--quiet", "--retries", "1", *needed]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        if done.returncode != 0:
            pytest.skip(f"moto {VERSION} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")


@contextmanager
def moto_server() -> Iterator[str]:
    """Its address."""
    install_moto()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PLACE / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:  # it says when it listens
            if "Running on" in line:
                break
        else:
            pytest.fail("moto's server did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def make_bucket(url: str) -> None:
    request = urllib.request.Request(url, method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
