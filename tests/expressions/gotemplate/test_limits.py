"""Hostile templates: each ends in a clear error, in bounded time and memory (STY-204)."""

from typing import Any

import pytest

from perdure.expressions.gotemplate import (
    Environment,
    ExpressionError,
    LimitExceeded,
    Limits,
    SyntaxFault,
    compile_template,
)

TIGHT = Environment(limits=Limits(steps=100_000, size=100_000))


def grown(start: str, step: str, end: str) -> str:
    return f"{{{{ $x := {start} }}}}{{{{ range 60 }}}}{{{{ $x = {step} }}}}{{{{ end }}}}{{{{ {end} }}}}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ range 9223372036854775807 }}{{ end }}",
        "{{ range 9000 }}{{ range 9000 }}{{ range 9000 }}{{ end }}{{ end }}{{ end }}",
        "{{ range 99999 }}{{ `0123456789` }}{{ end }}",
        grown('"ab"', "print $x $x", "$x"),
        grown('"ab"', 'printf "%s%s" $x $x', "$x"),
        grown('"ab"', "cat $x $x", "$x"),
        grown('"ab"', 'replace "a" $x $x', "$x"),
        grown('"ab"', "replace `` $x $x", "$x"),
        grown('"ab"', "join $x (list $x $x $x)", "$x"),
        grown('"ab"', "quote $x $x", "$x"),
        grown('"ab"', "toJson (list $x $x)", "$x"),
        grown('"a b"', "wrapWith 1 $x $x", "$x"),
        grown("list 1 2", "concat $x $x", "$x"),
        grown("list 1", "list $x $x", "$x"),
        grown("list 1", "list $x $x", "toJson $x"),
        grown("list 1", "list $x $x", "deepEqual $x (reverse $x)"),
        grown("list 1", 'dict "a" $x "b" $x', "toPrettyJson $x"),
        grown("list 1", "list $x $x", "uniq (list $x (reverse $x))"),
        '{{ printf "%999999d" 1 }}',
        '{{ printf "%*d" 999999 1 }}',
        '{{ printf "%.999999f" 1.0 }}',
        "{{ indent 999999 `a` }}",
    ],
)
def test_growth_meets_a_limit(text: str) -> None:
    with pytest.raises(LimitExceeded):
        compile_template(text, TIGHT).render({})


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ if 1 }}" * 5000 + "{{ end }}" * 5000,
        "{{ range 1 }}" * 200 + "{{ end }}" * 200,
        "{{ " + "9" * 500 + " }}",
        "x" * 1_048_577,
        "{{1}}" * 33_334,
        "{{ print " + "1 " * 100_000 + "}}",
    ],
)
def test_a_text_beyond_its_limits_is_refused(text: str) -> None:
    with pytest.raises(SyntaxFault):
        compile_template(text)


@pytest.mark.parametrize(
    "text",
    [
        '{{ date "' + "2" * 9000 + '" 99999999999999 }}',
        '{{ dateInZone "2006" 0 "../../etc/passwd" }}',
        '{{ toDate "2006" "0000" | date_modify "-999999h" }}',
        '{{ mustToDate "2006" "0001" | mustDateModify "-9h" }}',
        '{{ semverCompare "' + " " * 9000 + '!" "1.0.0" }}',
        "{{ round 1.5 99999 }}",
        "{{ int 1e300 }}",
        "{{ substr 5 1 `abc` }}",
        "{{ slice `abc` 2 1 }}",
        "{{ indent -1 `a` }}",
        "{{ divf 1 0 }}",
        "{{ b64dec `%%%` }}",
        "{{ b32dec `1` }}",
        "{{ mulf 1e300 1e300 | toJson }}",
    ],
)
def test_a_hostile_argument_ends_in_a_value_or_an_error_of_ours(text: str) -> None:
    try:
        result = compile_template(text).render({})
    except ExpressionError as error:
        result = str(error)

    assert isinstance(result, str) and len(result) < 10_000


@pytest.mark.parametrize("text", ["{{ int64 inputs.s }}", "{{ float64 inputs.s }}", "{{ atoi inputs.s }}"])
@pytest.mark.parametrize("long", ["1" * 300_000 + "x", "0." * 100_000, " " * 300_000])
def test_a_number_is_not_looked_for_in_a_long_text(text: str, long: str) -> None:
    assert compile_template(text).render({"inputs": {"s": long}}) == "0"


def test_the_output_is_limited_in_bytes() -> None:
    """STY-204: 65536 bytes per rendered template, however many characters that are."""
    exact = compile_template("{{ inputs.s }}!").render({"inputs": {"s": "é" * 32_767 + "x"}})

    assert len(exact.encode()) == 65_536
    with pytest.raises(LimitExceeded, match="the output is longer than 65536 bytes"):
        compile_template("{{ inputs.s }}!").render({"inputs": {"s": "é" * 32_768}})


@pytest.mark.parametrize("text", ["{{ inputs }}!", "{{ toJson inputs }}", "{{ deepEqual inputs other }}"])
def test_data_nested_too_deeply_are_refused(text: str) -> None:
    inputs: list[Any] = []
    other: list[Any] = []
    for _ in range(50_000):
        inputs, other = [inputs], [other]

    with pytest.raises(LimitExceeded, match="nested too deeply"):
        compile_template(text, Environment(roots=frozenset({"inputs", "other"}))).render(
            {"inputs": inputs, "other": other}
        )


def test_a_missing_step_is_not_looked_for_without_paying() -> None:
    steps: dict[str, object] = {f"step-{i}": {} for i in range(1000)}

    with pytest.raises(LimitExceeded):
        compile_template('{{ range 9999 }}{{ index steps "nope" }}{{ end }}', TIGHT).render({"steps": steps})
