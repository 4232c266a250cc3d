"""From text to a program, or to every problem the document has, each with its place."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.dialects.flow.document.advice import advise, path_in
from perdure.dialects.flow.document.cursor import Cursor, Report
from perdure.dialects.flow.document.flows import FLOW_SCHEMA, flow, report_cycles
from perdure.dialects.flow.plan.compiler import compile_program
from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.plan.provider_catalog import ProviderCatalog
from perdure.documents.cursor import DocumentFinding
from perdure.documents.paths import Path
from perdure.kernel.documents.problems import Problem
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.json_positions import line_and_column, place_of, repeated_member

__all__ = ["FLOW_SCHEMA", "read"]

MAX_BYTES = 16 * 1024 * 1024
"""Bytes. A document is a program; data belong in the input."""

MAX_DEPTH = 300
"""Levels of nesting; deeper documents are rejected before any recursive code sees them."""

MAX_LOCATED = 50
"""Problems that get a line and column; each one scans the text, and nobody fixes more at a time."""


def read(text: bytes, catalog: ProviderCatalog) -> tuple[Program | None, list[Problem]]:
    if len(text) > MAX_BYTES:
        message = f"the document has {len(text):,} bytes, {MAX_BYTES:,} are allowed"
        return None, [Problem("MWL-020", message, line=1, column=1, hint="Put data into the run's input.")]
    try:
        document = jsontext.read_strict(text)
        jsontext.encode(document)  # an unpaired surrogate has no UTF-8 form
    except jsontext.NotJson as error:
        return None, [_syntax(text, str(error))]
    if (deep := _too_deep(document)) is not None:
        message = f"nested more than {MAX_DEPTH} levels deep"
        return None, [Problem("MWL-020", message, spell_path(deep[:5]), *(place_of(text.decode(), deep[:5]) or (1, 1)))]
    report = Report(catalog)
    root = Cursor(report, document)
    flow(root, is_root=True)
    report_cycles(report, root)
    if report.findings:
        return None, _problems_of(text.decode(), report.findings)
    program = compile_program(document, catalog)
    return program, _problems_of(text.decode(), advise(program, document, catalog))


def _problems_of(text: str, findings: list[DocumentFinding]) -> list[Problem]:
    problems = []
    for index, finding in enumerate(findings):
        line, column = (place_of(text, finding.path) or (1, 1)) if index < MAX_LOCATED else (None, None)
        problem = Problem(finding.code, finding.message, spell_path(finding.path), line, column)
        problems.append(replace(problem, hint=finding.hint, severity=finding.severity))
    last = (1 << 60, 0)
    return sorted(problems, key=lambda problem: last if problem.line is None else (problem.line, problem.column or 0))


def find_places(text: bytes, program: Program, places: Sequence[Path]) -> Iterator[tuple[str, int | None]]:
    """The path of each part as people write it, and its line."""
    document, readable = jsontext.decode(text), text.decode("utf-8", "replace")
    for place in places:
        path = path_in(document, place)
        position = place_of(readable, path)
        yield spell_path(path), None if position is None else position[0]


def _has_trailing_comma(text: bytes, line: int, column: int) -> bool:
    """Whether a comma is the last thing before a place where an object or a list ends."""
    lines = text.decode("utf-8", "replace").split("\n")
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    return before.rstrip().endswith(",") and lines[line - 1][column - 1 : column] in ("}", "]")


def _syntax(text: bytes, message: str) -> Problem:
    position = re.fullmatch(r"line (\d+), column (\d+): (.*)", message, re.DOTALL)
    if position:
        line, column = int(position[1]), int(position[2])
        hint = "JSON allows no comma before } or ]." if _has_trailing_comma(text, line, column) else ""
        return Problem("MWL-020", f"not JSON: {position[3]}", line=line, column=column, hint=hint)
    readable = text.decode("utf-8", "replace")
    if "repeated" in message and (repeated := repeated_member(readable)) is not None:
        name, line, column = repeated
        hint = "Remove one of the two."
        return Problem("MWL-020", f"member {name!r} is repeated in one object", line=line, column=column, hint=hint)
    line, column = _place_in_message(text, readable, message)
    return Problem("MWL-020", message, line=line, column=column)


def _place_in_message(text: bytes, readable: str, message: str) -> tuple[int, int]:
    if byte := re.match(r"byte (\d+): not UTF-8", message):
        return line_and_column(text[: int(byte[1])].decode("utf-8", "replace"), int(byte[1]))
    token = re.search(r"(?:number )?(-?[\w.+-]+)", message)
    if token and (at := re.search(rf"(?<![\w\"]){re.escape(token[1])}(?![\w\"])", readable)):
        return line_and_column(readable, at.start())
    return 1, 1


def _too_deep(document: Any) -> Path | None:
    pending: list[tuple[Any, int, Path]] = [(document, 1, ())]
    while pending:
        value, depth, path = pending.pop()
        if not isinstance(value, dict | list):
            continue
        if depth > MAX_DEPTH:
            return path
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        pending += [(item, depth + 1, (*path, step) if depth < 6 else path) for step, item in inside]
    return None


def spell_path(path: Path) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z_$][\w$-]*", part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text
