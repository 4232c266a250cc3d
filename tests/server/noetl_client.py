"""The real command line of NoETL, from the registry, in an environment of its own that is made once."""

import fcntl
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

VERSION = "5.3.2"
PLACE = Path(sys.prefix) / ".clients" / f"noetl-{VERSION}"


@dataclass(frozen=True)
class NoetlClient:
    """Calls one server; `home` keeps its contexts and sessions away from those of whoever runs the tests."""

    url: str
    home: Path
    token: str

    def __call__(self, *words: str, code: int = 0) -> str:
        """What it prints on stdout; of a failure also on stderr."""
        command = [str(PLACE / "bin" / "noetl"), "--server-url", self.url, *words]
        done = subprocess.run(
            command, cwd=self.home, env=self._environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stdout + done.stderr

    def shell(self, lines: str, **variables: str) -> list[str]:
        """What each command of a page prints; of what has JSON in it only that."""
        program = f'noetl() {{ "{PLACE}/bin/noetl" --server-url "{self.url}" "$@"; }}\nset -e\n'
        marked = re.sub(r"(?<!\\)\n", "\nprintf '\\036'\n", lines.strip())
        done = subprocess.run(
            ["bash", "-c", program + marked],
            cwd=self.home,
            env={**self._environment(), "URL": self.url, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return [text[text.find("{") : text.rfind("}") + 1] or text for text in done.stdout.split("\036")]

    def _environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "NOETL_SESSION_TOKEN": self.token}


def install_noetl() -> None:
    """Skips the test where the registry does not answer."""
    PLACE.parent.mkdir(exist_ok=True)
    with (PLACE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (PLACE / "bin" / "noetl").exists():
            return
        subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True, capture_output=True, timeout=300)
        command = [str(PLACE / "bin" / "pip"), "install", "--quiet", "--retries", "1", f"noetl=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            pytest.skip(f"noetl {VERSION} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
