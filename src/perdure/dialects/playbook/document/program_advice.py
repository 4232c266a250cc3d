"""Warnings about templates in program text, which is never rendered (PBK-092), and ids used as numbers."""

import ast
from collections.abc import Iterator, Set

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.field_aliases import DATABASES
from perdure.dialects.playbook.document.texts import CONTROL, FIELDS
from perdure.dialects.playbook.plan.program import Program
from perdure.kernel.lazy_regex import lazy_regex

STATEMENTS = ("query", "command", "commands")
LONGEST_CODE = 100_000
_VALUE = lazy_regex(r"\{\{-?\s*([A-Za-z_]\w*)[^{}]*\}\}")
_NUMBER = lazy_regex(r"[=<>(,]\s*(\{\{-?\s*(?:execution_id|job\.uuid)\s*-?\}\})")


def advise_programs(cursor: Cursor, program: Program) -> None:
    """`cursor` is at the workflow of a document without errors."""
    names: Set[str] = CONTROL | FIELDS
    if cursor.report.is_io:  # where bare names mean these, too
        workload = program.workload.document
        names = {*names, *program.steps, *(workload if isinstance(workload, dict) else ())}
    for task in _tasks(cursor):
        code = task.value.get("code")
        if isinstance(code, str) and "{{" in code and len(code) <= LONGEST_CODE:
            _check_code(task, code, names)
        if task.value["kind"] in DATABASES:
            for text in (text for name in STATEMENTS if name in task.value for text in _texts(task.at(name))):
                _check_id(text)


def _tasks(cursor: Cursor) -> Iterator[Cursor]:
    for part in _parts(cursor):
        yield from _tasks(part)
    if isinstance(cursor.value, dict) and isinstance(cursor.value.get("kind"), str):
        yield cursor


def _texts(cursor: Cursor) -> Iterator[Cursor]:
    for part in _parts(cursor):
        yield from _texts(part)
    if isinstance(cursor.value, str):
        yield cursor


def _parts(cursor: Cursor) -> Iterator[Cursor]:
    value = cursor.value
    if isinstance(value, dict | list):
        yield from (cursor.at(part) for part in (value if isinstance(value, dict) else range(len(value))))


def _check_code(task: Cursor, code: str, names: Set[str]) -> None:
    for text in _texts_of_code(code):
        for match in _VALUE.finditer(text):
            if match[1] in names:
                field = "input" if task.report.is_io else "args"
                hint = f'Pass it as `{field}: {{value: "{match[0]}"}}`; the code then has a variable `value`.'
                message = f"the code is not a template: {match[0]} stays as it is"
                task.at("code").warn("PBK-092", message, hint=hint)
                return


def _texts_of_code(code: str) -> Iterator[str]:
    """Where Python code may contain a template by mistake; not in an f-string, where two braces are one."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield code
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Set):  # {{ name }} is a set of a set, and there is none
            yield ast.get_source_segment(code, node) or ""


def _check_id(text: Cursor) -> None:
    for match in _NUMBER.finditer(text.value):
        if text.value.count("'", 0, match.start()) % 2 == 0:  # not inside of a quoted text
            hint = f"Write '{match[1]}' in quotes, and store it in a column of texts."
            text.warn("PBK-212", "the id of a run is a text, and this statement uses it as a number", hint=hint)
            return
