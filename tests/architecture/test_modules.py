"""The shape of the code base: how long modules are, who imports them, how deep imports go."""

from tests.architecture.source_tree import Module, importers, longest_chain, modules

LONGEST = 400
SHORT = 80

LONGEST_CHAIN = 24

ONE_IMPORTER = {
    "perdure.testing.opening": "public: tests of other packages choose the store of their worlds with it",
}
"""Short modules with one importer that are neither merged into it nor registered pieces, each with its reason."""

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}


def _is_registered(module: Module) -> bool:
    """A piece of a set: imported by its package's `__init__`, a command, or named in a registry or a lazy import."""
    if module.name.startswith("perdure.cli.verbs."):
        return True
    if importers()[module.name] == {module.name.rpartition(".")[0]}:
        return True
    return any(_names(text, module.name) for other in modules().values() for text in other.strings)


def _names(text: str, name: str) -> bool:
    path = text.partition(":")[0]
    return path == name or ("." in path and name.endswith(f".{path}"))


def test_no_module_is_too_long() -> None:
    """What does not fit on a few screens is two things."""
    too_long = {name for name, module in modules().items() if module.lines > LONGEST}

    assert sorted(too_long) == [], f"more than {LONGEST} lines: split it by what it does"


def test_short_modules_have_several_users() -> None:
    """A few lines with one user are read beside that user: merge them, unless they are a registered piece."""
    crumbs = {
        f"{name} (only imported by {next(iter(importers()[name]))})"
        for name, module in modules().items()
        if not module.is_package
        and module.lines < SHORT
        and len(importers().get(name, ())) == 1
        and name not in ONE_IMPORTER
        and not _is_registered(module)
    }

    assert sorted(crumbs) == []


def test_import_chains_are_bounded() -> None:
    """Whoever wants to understand the first module of a chain may have to know all of it."""
    chain = longest_chain()

    assert len(chain) > 5
    assert len(chain) <= LONGEST_CHAIN, " > ".join(chain)


def test_names_say_what_a_module_is() -> None:
    vague = [str(module.path) for module in modules().values() if module.path.stem in VAGUE_NAMES]

    assert vague == [], "name it for the thing that a newcomer would search for"
