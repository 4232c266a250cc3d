"""The page "Test your workflow" is true: its tests pass in a pytest of their own, with Perdure's plugin."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "testing.md"
FILES = dict(re.findall(r"```python file=(\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
PLUGIN = "perdure.testing.pytest_plugin"


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    """With the plugin as its entry point brings it, and without those of all other libraries."""
    options = ["-q", "-p", "no:cacheprovider", "--disable-plugin-autoload", "-p", PLUGIN, "--rootdir", str(folder)]
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_plugin_is_what_the_entry_point_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["entry-points"]["pytest11"] == {"perdure": PLUGIN}


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    done = _pytest(tmp_path)

    assert len(FILES) == 3, "one for each language"
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(text.count('def test_') for text in FILES.values())} passed" in done.stdout


def test_the_plugin_imports_nothing_of_perdure_until_a_test_asks(tmp_path: Path) -> None:
    (tmp_path / "test_else.py").write_text(
        "import sys\n\n"
        "def test_something_else():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'perdure'}\n"
        "    assert ours == {'perdure', 'perdure.testing', 'perdure.testing.pytest_plugin'}\n"
        "    assert not {'msgspec', 'apsw', 'yaml', 'jinja2', 'httpx'} & sys.modules.keys()\n"
    )
    done = _pytest(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
