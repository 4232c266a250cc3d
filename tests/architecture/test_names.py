"""One word, one meaning: a module or class name stands for one thing over the whole code base, or is listed here."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import Module, modules

ROOT = Path(__file__).parents[2]

SAME_CLASS = {
    "every language has one": {"Body", "Program", "Step", "StepRun", "Retry", "Loop", "Frame", "Flow", "Settings"},
    "events and inputs, whose names are frozen": {
        *("AttemptStarted", "CleanupBegan", "EffectUnfit", "StepEnded", "StepStarted"),
    },
    "every expression language has one": {
        *("BadLiteral", "Budget", "Environment", "EvaluationFault", "Failure", "Function", "Library", "LimitExceeded"),
        *("Limits", "Literal", "Name", "Node", "OutOfStack", "Scope", "SyntaxFault", "Template"),
        *("TemplateError", "Token"),
    },
    "a place in a document or text that is being read": {"Cursor", "Found", "Report", "TokenCursor"},
    "a schema that is not one": {"BadSchema"},
    "a text that is not JSON": {"NotJson"},
    "a run's variables": {"Variables"},
}

SAME_MODULE = {
    "every language has one": {
        *("body", "compiler", "program", "language", "moves", "events", "inputs", "graph", "history", "values"),
        *("arrivals", "steps", "runs", "interruption", "message_subjects", "references", "schemas", "secrets"),
        *("advice", "cursor", "parser", "reader", "durations", "instants", "errors", "protocol", "registry", "retry"),
        *("sleep", "settings", "retention", "keychain", "results", "result", "requests", "names", "validation"),
        *("loop", "redrive", "migration", "trace", "evaluation", "net", "provenance", "field_texts"),
    },
    "deciding, folding and showing the same thing": {
        *("attempts", "calls", "executions", "joins", "maps", "tasks", "threads", "tokens", "entries", "frames"),
    },
    "every expression language has one": {
        *("access", "budget", "comparison", "encodings", "environment", "formatting", "frame", "library", "lists"),
        *("literals", "operators", "paths", "planner", "problems", "strings", "syntax", "template", "versions"),
        *("growth", "reads", "condition_analysis"),
    },
    "the contract and who fulfils it": {"admin", "catalog", "permits", "run_removal", "clock", "context", "effects"},
    "a tool, engram or function and the provider behind it": {
        *("container", "duckdb", "http", "postgres", "python", "script", "shell", "sqlite", "echo", "command"),
        *("failure", "map_reduce", "materialize", "story"),
    },
    "Story's impulses": {"impulses"},
    "Story's control messages and how they are sent": {"control"},
    "Playbook's execution is the kernel's": {"execution"},
}

AMBIGUOUS_CLASSES: set[str] = set()
"""Names with more than one meaning today: none may be added, and each should be renamed."""

AMBIGUOUS_MODULES: set[str] = set()
"""As above."""

VAGUE_WORDS = {"found", "one", "given", "said", "told", "wanted"}
"""Participles that say nothing of what a variable contains. Members of recorded structs keep them: they are frozen."""

PARALLEL = ("perdure.stores.sqlite.", "perdure.stores.postgres.")
"""Two implementations of one contract: names that they share mean the same."""


def _home(module: Module) -> str:
    for prefix in PARALLEL:
        if module.name.startswith(prefix):
            return "perdure.stores.<backend>." + module.name.removeprefix(prefix)
    return module.name


def _used_twice(names: dict[str, set[str]], allowed: set[str]) -> list[str]:
    return [
        f"{name}: {', '.join(sorted(homes))}"
        for name, homes in sorted(names.items())
        if len(homes) > 1 and name not in allowed
    ]


def _all(groups: dict[str, set[str]]) -> set[str]:
    return {name for names in groups.values() for name in names}


def test_a_class_name_means_one_thing() -> None:
    """Search for a class by name and there is one. Private classes are nobody else's business."""
    classes: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        for name in module.classes:
            if not name.startswith("_"):
                classes[name].add(_home(module))

    assert len(classes) > 500
    assert _used_twice(classes, _all(SAME_CLASS) | AMBIGUOUS_CLASSES) == []


def test_a_module_name_means_one_thing() -> None:
    """A command's module is named for the verb that users type and is exempt."""
    names: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        if not module.is_package and not module.name.startswith("perdure.cli.verbs."):
            names[module.path.stem].add(_home(module))

    assert len(names) > 300
    assert _used_twice(names, _all(SAME_MODULE) | AMBIGUOUS_MODULES) == []


def test_variables_are_named_for_what_they_contain() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in ("src/perdure", "tests", "bench", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in _bound_names(ast.parse(path.read_text(encoding="utf-8")))
        if name in VAGUE_WORDS
    ]
    assert vague == []


def test_every_way_to_name_a_variable_is_seen() -> None:
    text = """
def function(found, *one, **given):
    with open(found) as said: pass
    for told, _ in (wanted for wanted in one): pass
    match one:
        case [found, *said] | {"a": 1, **told}: pass
    try: one: int = 1
    except OSError as given: pass
    import os as wanted
    return (lambda told: (said := told))

class Record:
    found: int = 1
"""
    names = Counter(name for name, _ in _bound_names(ast.parse(text)) if name in VAGUE_WORDS)
    assert names == {"found": 2, "one": 2, "given": 2, "said": 3, "told": 3, "wanted": 2}


def _bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """And their lines. Fields of classes are not among them: those of recorded structs are frozen."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
        parts = ast.iter_child_nodes(node)
        if isinstance(node, ast.ClassDef):
            parts = (part for part in parts if not isinstance(part, ast.AnnAssign | ast.Assign))
        waiting.extend(parts)
