"""The command lines of all pages, and which test runs them: `tests/docs/test_commands.py`."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = "perdure|curl|docker|kubectl|python3?|pip|uvicorn|systemctl|pg_dump|pg_restore|make|nginx"
SHELLS = ("", "console", "sh", "bash", "text")
PRINTED = "docs/reference/cli.md"  # help of each verb with examples; `tests/cli` compares it with the program

FOLLOWED = {
    "docs/guide/choosing.md": "tests/docs/test_path.py",
    "docs/guide/from-temporal-airflow.md": "tests/docs/test_path.py",
    "docs/guide/playbook/first-playbook.md": "tests/docs/test_path.py",
    "docs/guide/playbook/data.md": "tests/docs/test_path.py",
    "docs/guide/playbook/failures.md": "tests/docs/test_path.py",
    "docs/guide/playbook/loops.md": "tests/docs/test_path.py",
    "docs/guide/playbook/branches.md": "tests/docs/test_path.py",
    "docs/guide/story/first-story.md": "tests/docs/test_path.py",
    "docs/guide/story/data.md": "tests/docs/test_path.py",
    "docs/guide/story/failures.md": "tests/docs/test_path.py",
    "docs/guide/story/waiting.md": "tests/docs/test_path.py",
    "docs/guide/tour.md": "tests/docs/test_tour.py",
    "docs/guide/trust.md": "tests/docs/test_trust_guide.py",
    "docs/guide/embedding.md": "tests/journeys/test_replicas.py",
    "docs/guide/remote.md": "tests/server/test_command_line.py",
    "docs/reference/api.md": "tests/server/test_resources.py",
    **{
        f"docs/guide/flow/{name}.md": "tests/dialects/flow/test_guide.py"
        for name in ("README", "calling", "data", "failures", "fan-out", "first-flow", "middleware")
    },
}
"""Pages whose commands another test runs, all of them."""

NOT_RUN = {
    "pip install": "installs from a registry; `make example` and CONTRIBUTING.md do the same from the repository",
    "make ": "targets of the Makefile: CI runs them",
    "python3 -m venv": "what a reader does once; tests have an environment",
    "kubectl ": "tests/server/test_kubectl.py runs the page where there is a kubectl",
    "perdure kubeconfig": "tests/server/test_kubectl.py",
    "perdure serve --tls auto": "tests/server/test_kubectl.py",
    "curl -s -X PATCH": "tests/server/test_noetl.py runs the page",
    "curl -s -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json'": (
        "tests/server/test_workers.py runs the examples of the page"
    ),
    "pg_dump": "programs of PostgreSQL, which the tests' own PostgreSQL does not always have",
    "pg_restore": "programs of PostgreSQL, which the tests' own PostgreSQL does not always have",
}
"""Beginnings of commands that no test of this folder types, and why."""


def command_lines() -> Iterator[tuple[str, str]]:
    """Page and command of every line that a reader may type, without its prompt and what a shell makes of the rest."""
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        name = str(page.relative_to(ROOT))
        if name == PRINTED:
            continue
        for language, content in re.findall(
            r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            if language in SHELLS:
                yield from ((name, line) for line in lines_of(content))


def lines_of(content: str) -> Iterator[str]:
    text = re.sub(r" *\\\n *", " ", content)
    for line in re.findall(rf"^ *(?:\$ )?((?:[A-Z_]+=\S+ )*(?:{PROGRAMS}) .*)$", text, re.MULTILINE):
        yield re.split(r"  +| # ", re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line))[0].strip()


def is_run_elsewhere(page: str, command: str) -> bool:
    return page in FOLLOWED or any(command.startswith(begin) for begin in NOT_RUN)
