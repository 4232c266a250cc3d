"""One word, one meaning: a module or class name stands for one thing over the whole code base, or is listed here."""

import ast
from collections import defaultdict

from tests.architecture.source_tree import Module, modules

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
        f"{module.path}: {name}"
        for module in modules().values()
        for node in ast.walk(module.parse())
        for name in _bound_names(node)
        if name in VAGUE_WORDS
    ]
    assert vague == []


def _bound_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Assign(targets=targets):
            return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
            return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
        case ast.NamedExpr(target=target):
            return [target.id]
        case ast.arg(arg=name):
            return [name]
        case ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            annotated = [part for statement in body for part in ast.walk(statement) if isinstance(part, ast.AnnAssign)]
            return [part.target.id for part in annotated if isinstance(part.target, ast.Name)]
        case _:
            return []
