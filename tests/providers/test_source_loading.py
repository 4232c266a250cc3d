"""Loading a user's file or module."""

from pathlib import Path

import pytest

from perdure.providers import LoadError, load, shared


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_file_registers_what_it_decorates_and_finds_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "loading_neighbour.py", "FACTOR = 3\n")
    source = write(
        tmp_path,
        "loading_sample.py",
        "import perdure.providers as p\nfrom loading_neighbour import FACTOR\n\n"
        "@p.provider('loading.triple')\ndef triple(x: int) -> int:\n    return FACTOR * x\n",
    )

    load(source)
    load(source)

    result = shared.find("loading.triple")
    assert result is not None
    assert result.function.invoke({"x": 2}) == 6
    assert shared.sources.count(source) == 1


def test_a_module_is_loaded_by_its_name() -> None:
    load("tests.providers.samples")

    assert shared.find("sample.add") is not None


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("x = 1\ny = (\n", ":2", "SyntaxError: '(' was never closed"),
        ("\n\nraise ValueError('not today')\n", ":3", "ValueError: not today"),
        ("import no_such_module_here\n", ":1", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("import sys\nsys.exit('gone')\n", ":2", "SystemExit: gone"),
        ("def f():\n    return 1 / 0\n\nf()\n", ":2", "ZeroDivisionError"),
    ],
)
def test_a_fault_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, position: str, problem: str) -> None:
    source = write(tmp_path, "loading_faulty.py", text)

    with pytest.raises(LoadError) as failed:
        load(source)

    assert problem in str(failed.value)
    assert failed.value.at == source + position


def test_what_is_not_there_is_said_plainly() -> None:
    with pytest.raises(LoadError, match=r"cannot load 'nowhere.py': .*there is no such file"):
        load("nowhere.py")
    with pytest.raises(LoadError, match=r"No module named 'no_such_package_here'"):
        load("no_such_package_here.tools")


def test_a_file_named_like_a_library_does_not_take_its_place(tmp_path: Path) -> None:
    source = write(tmp_path, "zipfile.py", "MINE = True\n")

    load(source)
    import zipfile

    assert hasattr(zipfile, "ZipFile")
