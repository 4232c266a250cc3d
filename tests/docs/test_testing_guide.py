"""The page "Test your workflow" is true: its tests pass in a pytest of their own, with the installed plugin."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "testing.md"
FILES = dict(re.findall(r"```python file=(\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
PLUGIN = ("-p", "perdure.testing.pytest_plugin")  # as its entry point does, wherever Perdure is not installed


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def _plugin() -> tuple[str, ...]:
    from importlib.metadata import entry_points

    installed = entry_points(group="pytest11", name="perdure")
    return () if installed else PLUGIN


@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_the_page_pass(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(FILES[file])
    done = _pytest(tmp_path, *_plugin())

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FILES[file].count('def test_')} passed" in done.stdout


def test_there_is_an_example_for_each_language() -> None:
    assert len(FILES) == 3


def test_the_plugin_imports_nothing_of_perdure_until_a_test_asks(tmp_path: Path) -> None:
    (tmp_path / "test_else.py").write_text(
        "import sys\n\n"
        "def test_something_else():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'perdure'}\n"
        "    assert ours == {'perdure', 'perdure.testing', 'perdure.testing.pytest_plugin'}\n"
        "    assert not {'msgspec', 'apsw', 'yaml', 'jinja2', 'httpx'} & sys.modules.keys()\n"
    )
    done = _pytest(tmp_path, *_plugin())

    assert done.returncode == 0, done.stdout + done.stderr
