"""tools/rename.py: what it does without a language server, on a small repository."""

import subprocess
from pathlib import Path

import pytest
from tools import rename

FILES = {
    "src/perdure/__init__.py": "",
    "src/perdure/a/__init__.py": "",
    "src/perdure/a/small.py": '"""Adds."""\n\nimport math\n\n\ndef add(x: int) -> int:\n    return math.floor(x)\n',
    "src/perdure/a/user.py": (
        '"""Uses it."""\n\nfrom perdure.a import small\n\n\nclass User:\n    def use(self, count: int) -> int:\n'
        "        self.total = small.add(count)\n        return self.total\n"
    ),
    "src/perdure/a/other.py": "from perdure.a.small import add\n\nTWO = add(1)\n",
    "PAGE.md": "See `a/small.py` and perdure.a.small.\n",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    monkeypatch.setattr(rename, "ROOT", tmp_path)
    return tmp_path


def test_a_module_moves_with_its_imports_and_mentions(repository: Path) -> None:
    rename.move_module("perdure.a.small", "perdure.b.addition")

    folder = repository / "src" / "perdure"
    assert (folder / "b" / "__init__.py").exists()
    assert (folder / "b" / "addition.py").exists()
    assert "from perdure.b import addition\n" in (folder / "a" / "user.py").read_text()
    assert "addition.add(count)" in (folder / "a" / "user.py").read_text()
    assert (folder / "a" / "other.py").read_text().startswith("from perdure.b.addition import add\n")
    assert (repository / "PAGE.md").read_text() == "See `b/addition.py` and perdure.b.addition.\n"


def test_a_small_module_goes_into_its_user(repository: Path) -> None:
    rename.merge_module("perdure.a.small", "perdure.a.user")

    folder = repository / "src" / "perdure" / "a"
    text = (folder / "user.py").read_text()
    assert not (folder / "small.py").exists()
    assert "import math\n" in text
    assert text.index("def add") < text.index("class User")
    assert "self.total = add(count)" in text
    assert (folder / "other.py").read_text().startswith("from perdure.a.user import add\n")


def test_modules_that_define_the_same_name_are_not_merged(repository: Path) -> None:
    (repository / "src/perdure/a/user.py").write_text("def add() -> None: ...\n")

    with pytest.raises(rename.CannotRename, match="both have add"):
        rename.merge_module("perdure.a.small", "perdure.a.user")


@pytest.mark.parametrize(
    ("name", "place"),
    [("User", (6, 6)), ("User.use", (7, 8)), ("User.use.count", (7, 18)), ("User.total", (8, 13))],
)
def test_definitions_are_found(repository: Path, name: str, place: tuple[int, int]) -> None:
    assert rename.definition(repository / "src/perdure/a/user.py", name) == place


def test_what_is_not_there_is_said(repository: Path) -> None:
    with pytest.raises(rename.CannotRename, match=r"there is no User\.gone"):
        rename.definition(repository / "src/perdure/a/user.py", "User.gone")
