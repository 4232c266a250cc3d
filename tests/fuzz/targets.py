"""The parsers of Perdure as entry points for fuzzing: each takes a text, and may raise nothing but its own error.

`tests/fuzz/corpus/<name>/` holds hostile inputs of each; `test_parsers.py` runs them, and bounded random ones, in the
suite; `python -m tests.fuzz NAME` goes on for as long as one likes.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.dialects.playbook.plan import durations as playbook_durations
from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.documents import Limits as DocumentLimits
from perdure.documents import UnreadableText, read_documents, write_document
from perdure.expressions import cel, gotemplate, jinja, mwl, regex
from perdure.expressions.cron import BadSchedule, find_zone, read_cron
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.providers.databases.statements import DUCKDB, POSTGRES, SQLITE, BadStatement, bind, split
from perdure.views.times import read_instant, read_span
from perdure.wiring import languages

CORPUS = Path(__file__).parent / "corpus"
DATA: dict[str, Any] = {"vars": {"n": 3, "s": "a-B c", "l": [1, "x", None], "m": {"k": {"j": 1.5}}}}
STEPS = 20_000  # that an expression may take here: few, so that the bound of calls below says something

_CEL = cel.Environment(limits=cel.Limits(steps=STEPS, size=STEPS))
_MWL = cel.Limits(steps=STEPS, size=STEPS)
_GO = gotemplate.Environment(limits=gotemplate.Limits(steps=STEPS, size=STEPS))
_JINJA = jinja.Limits(steps=STEPS, size=STEPS, output=STEPS)


@dataclass(frozen=True)
class Target:
    """`run` feeds the parser; `errors` are its own; `words` are what its language is made of."""

    run: Callable[[str], object]
    errors: tuple[type[Exception], ...]
    words: tuple[str, ...]
    calls: int = 60  # of Python per character, beside `least`
    least: int = 20_000 + 20 * STEPS


def _yaml(text: str) -> None:
    for document in read_documents(text.encode("utf-8", "surrogatepass"), DocumentLimits()):
        write_document(document.data)


def _cel(text: str) -> None:
    cel.compile_program(text, environment=_CEL).evaluate(DATA)


def _mwl(text: str) -> None:
    template = mwl.Template({"a": text, "b": [f"{{{{ {text} }}}}"]}, frozenset(DATA), _MWL)
    template.evaluate(DATA)


def _go(text: str) -> None:
    gotemplate.compile_template(text, environment=_GO).render({"inputs": DATA["vars"], "steps": {}})


def _jinja(text: str) -> None:
    template = jinja.Template({"a": text, "b": [f"{{{{ {text} }}}}"]}, _JINJA)
    assert template.reads is not None
    template.render({"ctx": DATA["vars"], "workload": {}})


def _guard(text: str) -> None:
    jinja.Guard(text).holds({"ctx": DATA["vars"]})


def _regex(text: str) -> None:
    left = 200_000

    def charge(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise regex.BadPattern("spent")

    regex.compile_pattern(text).search("aab\n" * 20 + "ß", charge)


def _sql(text: str) -> None:
    for grammar in (POSTGRES, SQLITE, DUCKDB):
        statements = split(text, grammar)
        written = "".join(
            part if isinstance(part, str) else part.text for statement in statements for part in statement.parts
        )
        assert len(written) <= len(text)
        try:
            bind(statements, {"n": 1}, grammar)
        except BadStatement:
            pass


def _durations(text: str) -> None:
    for read in (mwl.parse_iso_duration, read_span, lambda text: read_instant(text, Instant(0))):
        try:
            read(text)
        except (ValueError, cel.EvaluationFault):
            pass
    assert playbook_durations.read_span(text) is None or playbook_durations.read_span(text)
    read_duration(text)


def _cron(text: str) -> None:
    if len(text) < 60:
        try:
            find_zone(text)
        except BadSchedule:
            pass
    read_cron(text).next_after(Instant(0), find_zone("Europe/Oslo"))


@cache
def _languages() -> Any:
    return languages()


def _language(name: str) -> Callable[[str], object]:
    def parse(text: str) -> None:
        language = _languages()[name]
        data = text.encode("utf-8", "surrogatepass")
        language.recognizes(data)
        for problem in language.parse(data).problems:
            assert problem.message

    return parse


_EXPRESSION = (
    *("vars", ".n", ".s", ".l", "[0]", "1", "-7", "2.5e9", "'q'", '"q"', "true", "null", "(", ")", "[", "]", "{", "}"),
    *(
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "<",
        "&&",
        "||",
        "!",
        "?",
        ":",
        ",",
        ".",
        "|",
        "\\",
        "\n",
        "in",
        "{{",
        "}}",
        "and",
    ),
)
_MEMBERS = (
    *(
        "steps:",
        "- ",
        "  ",
        "\n",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "'",
        "&a ",
        "*a ",
        "<<: ",
        "!!int ",
        "|\n",
        ">-\n",
    ),
    *(
        "name: x",
        "kind: ",
        "apiVersion: ",
        "spec:",
        "tool:",
        "step: s",
        "next:",
        "arcs:",
        "{{ ctx.a }}",
        "loop:",
        "keychain:",
    ),
    *(
        "noetl.io/v2",
        "bubustack.io/v1alpha1",
        "Story",
        "Playbook",
        "$schema",
        "entrypoint",
        "action",
        "Call",
        "---",
        "#",
        "\t",
    ),
)

TARGETS: dict[str, Target] = {
    "yaml": Target(_yaml, (UnreadableText,), _MEMBERS),
    "json": Target(
        jsontext.read_strict, (jsontext.NotJson,), ("{", "}", "[", "]", ":", ",", '"', "1e9", "\\ud800", "nul")
    ),
    "cel": Target(
        _cel, (cel.ExpressionError,), (*_EXPRESSION, "has(", ".map(x,", "size(", ".matches(", "format(", "b'", "r'")
    ),
    "mwl": Target(_mwl, (mwl.ExpressionFault,), (*_EXPRESSION, "fromJson(", "now(", "duration(", "toJson(")),
    "gotemplate": Target(
        _go,
        (gotemplate.ExpressionError,),
        (
            *_EXPRESSION,
            "{{if ",
            "{{end}}",
            "{{range ",
            "{{with ",
            "printf ",
            "`",
            "$x",
            ":=",
            "{{- ",
            " -}}",
            "{{/*",
            "*/}}",
        ),
    ),
    "jinja": Target(
        _jinja,
        (jinja.TemplateError,),
        (
            *_EXPRESSION,
            "{% for x in ",
            "%}",
            "{% endfor %}",
            "{% if ",
            "{% set x=",
            "|map(",
            "|join",
            "ctx",
            "{#",
            "#}",
            "~",
        ),
    ),
    "guard": Target(_guard, (jinja.TemplateError,), (*_EXPRESSION, "ctx", " is defined", " not ", "|default(")),
    "regex": Target(
        _regex,
        (regex.BadPattern,),
        (
            "a",
            "b",
            "(",
            ")",
            "(?:",
            "|",
            "*",
            "+",
            "?",
            "{2,9}",
            "{1000}",
            "[",
            "]",
            "[^",
            "\\d",
            "\\pL",
            "^",
            "$",
            ".",
            "(?i)",
        ),
    ),
    "sql": Target(
        _sql,
        (BadStatement,),
        (
            "select",
            " ",
            ";",
            "'",
            '"',
            "--",
            "\n",
            "/*",
            "*/",
            "$$",
            "$a$",
            "?",
            "?1",
            ":n",
            "%s",
            "%(n)s",
            "[",
            "`",
            "begin",
        ),
    ),
    "durations": Target(
        _durations, (BadDuration,), ("P", "T", "1", "9" * 30, ".", ",", "h", "m", "s", "ms", "d", "Y", "-", "e")
    ),
    "cron": Target(
        _cron,
        (BadSchedule,),
        ("*", "/", "-", ",", " ", "0", "5", "59", "99999999999", "mon", "feb", "@daily", "?", "L"),
        least=3_000_000,  # the next strike may be years ahead
    ),
    "flow": Target(_language("flow"), (), _MEMBERS),
    "story": Target(_language("story"), (), _MEMBERS),
    "playbook": Target(_language("playbook"), (), _MEMBERS),
}


class TooMuch(Exception):
    """More calls than a text of this length may take."""


def feed(name: str, text: str) -> None:
    """Let the parser have the text: fails on any other error than its own, and on work beyond its bound."""
    target = TARGETS[name]
    left = target.least + target.calls * len(text)

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise TooMuch(f"{name} took more than its bound of calls for {len(text)} characters")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        target.run(text)
    except target.errors as error:
        assert str(error)
    finally:
        sys.setprofile(before)


def corpus(name: str) -> list[str]:
    """The hostile texts of a parser; `\\x00`-free UTF-8, or what stands for a long one: `repeat N` and the text."""
    texts = []
    for file in sorted((CORPUS / name).glob("*.txt")):
        text = file.read_text("utf-8")
        head, _, rest = text.partition("\n")
        texts.append(rest.removesuffix("\n") * int(head.split()[1]) if head.startswith("#repeat ") else text)
    return texts
