"""Syntax errors of libyaml, explained so that an author knows what to change.

The library's messages describe tokens, not mistakes; the common mistakes are recognised here.
"""

from typing import Any

from yaml import MarkedYAMLError, YAMLError
from yaml.reader import ReaderError

from perdure.documents.errors import SYNTAX, UNQUOTED_TEMPLATE
from perdure.documents.positions import place_of_mark
from perdure.kernel.documents.problems import Problem
from perdure.kernel.json_values.json_positions import line_and_column
from perdure.kernel.lazy_regex import lazy_regex

UNQUOTED = "a template begins here without quotes"
QUOTE_TEMPLATE = 'Put the whole value in quotes: "{{ … }}".'

_UNQUOTED_TEMPLATE = lazy_regex(r"(?:^|[:\-,\[{]\s+|\[)(\{[{%])")
_SPACES_AND_TAB = lazy_regex(r" *\t")


def explain(error: YAMLError, text: str) -> Problem:
    """The problem behind an exception of the library."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if not isinstance(error, MarkedYAMLError) or mark is None:
        return _unreadable_character(error, text)
    line, column = place_of_mark(mark)
    if place := _template_nearby(text, error):
        line, column = place
        return Problem(UNQUOTED_TEMPLATE, UNQUOTED, line=line, column=column, hint=QUOTE_TEMPLATE)
    return Problem(SYNTAX, _sentence(error), line=line, column=column, hint=_hint(error, _line(text, line), column))


def _sentence(error: MarkedYAMLError) -> str:
    problem = error.problem or "this is not YAML"
    if error.context and error.context_mark and error.context_mark.line != getattr(error.problem_mark, "line", None):
        return f"{problem} {error.context} that begins in line {error.context_mark.line + 1}"
    return problem if not error.context else f"{problem} {error.context}"


def _template_nearby(text: str, error: Any) -> tuple[int, int] | None:
    """An unquoted template causes an error in its own line or in the next one."""
    for mark in (error.problem_mark, error.context_mark):
        for number in (mark.line, mark.line - 1) if mark is not None else ():
            line = _line(text, number + 1)
            if match := _UNQUOTED_TEMPLATE.search(line):
                return number + 1, match.start(1) + 1
    return None


def _hint(error: MarkedYAMLError, line: str, column: int) -> str:
    problem = error.problem or ""
    character = line[column - 1 : column]
    if _SPACES_AND_TAB.match(line) or character == "\t":
        return "Indent with spaces; a tab is not allowed here."
    if "cannot start any token" in problem:
        return f"A text that begins with {character} needs quotes."
    if "mapping values are not allowed" in problem:
        return "A text with a colon and a space in it needs quotes; otherwise check the indentation."
    if "escape" in problem:
        return "In double quotes a backslash begins an escape; write \\\\, or use single quotes."
    if "quoted scalar" in (error.context or ""):
        return "A quote is opened and not closed."
    if "alias" in (error.context or ""):
        return "A text that begins with * needs quotes."
    if "anchor" in (error.context or ""):
        return "A text that begins with & needs quotes."
    if "flow" in (error.context or ""):
        return "A bracket or brace is not closed, or a comma is missing."
    return "Members of one mapping must be indented alike."


def _unreadable_character(error: YAMLError, text: str) -> Problem:
    offset = error.position if isinstance(error, ReaderError) and isinstance(error.position, int) else 0
    bad = next((at for at, character in enumerate(text) if _is_control(character)), min(offset, len(text)))
    line, column = line_and_column(text, bad)
    code = f"U+{ord(text[bad]):04X}" if bad < len(text) else "a character"
    hint = "Remove it, or write it as an escape in double quotes."
    return Problem(SYNTAX, f"the character {code} is not allowed in YAML", line=line, column=column, hint=hint)


def _is_control(character: str) -> bool:
    code = ord(character)
    if code < 0x20:
        return character not in "\t\n\r"
    return (0x7F <= code < 0xA0 and code != 0x85) or code in (0xFFFE, 0xFFFF)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""
