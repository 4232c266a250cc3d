"""What admission refuses: functions and roots that a template may not use, invalid templates (STY-035, STY-036)."""

import pytest

from perdure.expressions.gotemplate import RUNTIME, Environment, SyntaxFault, compile_template

BATCH = Environment(roots=frozenset({"inputs", "steps"}), scope="batch-runtime", library=RUNTIME)
STATIC = Environment(roots=frozenset({"inputs"}), scope="realtime-static")


def messages(text: str, environment: Environment) -> list[str]:
    with pytest.raises(SyntaxFault) as raised:
        compile_template(text, environment)
    return [finding.message for finding in raised.value.findings]


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ('{{ env "HOME" }}', BATCH, "template expression uses disallowed function 'env'"),
        ('{{ "a" | expandenv }}', BATCH, "template expression uses disallowed function 'expandenv'"),
        ('{{ print (getHostByName "a") }}', BATCH, "template expression uses disallowed function 'getHostByName'"),
        ("{{ steps.a.output }}", STATIC, "context 'steps' is not allowed for realtime-static templates"),
        ("{{ .steps.a.output }}", STATIC, "context 'steps' is not allowed for realtime-static templates"),
        ("{{ trigger.x }}", BATCH, "unknown context 'trigger' is not allowed for batch-runtime templates"),
        ("{{ .trigger.x }}", BATCH, "unknown context 'trigger' is not allowed for batch-runtime templates"),
        ("{{ with 1 }}{{ $.t }}{{ end }}", BATCH, "unknown context 't' is not allowed for batch-runtime templates"),
        ("{{ now }}", STATIC, "function 'now' is not available in deterministic templates"),
        ("{{ uuidv4 }}", STATIC, "function 'uuidv4' is not available in deterministic templates"),
        ("{{ nonsense 1 }}", BATCH, "function 'nonsense' is not defined"),
        ("{{ tojson 1 }}", BATCH, "function 'tojson' is not defined; did you mean 'toJson'?"),
        ("{{ regexMatch `a` `b` }}", BATCH, "function 'regexMatch' is not defined"),
        ('{{ template "x" }}', BATCH, "template inclusion is not allowed: `template`"),
        ('{{ define "x" }}{{ end }}', BATCH, "template inclusion is not allowed: `define`"),
        ('{{ block "x" . }}{{ end }}', BATCH, "template inclusion is not allowed: `block`"),
    ],
)
def test_admission_refuses(text: str, environment: Environment, message: str) -> None:
    assert messages(text, environment) == [message]


def test_every_problem_is_listed() -> None:
    assert messages('{{ foo 1 }}{{ env "A" }}{{ packet.x }}', BATCH) == [
        "function 'foo' is not defined",
        "template expression uses disallowed function 'env'",
        "context 'packet' is not allowed for batch-runtime templates",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.a }}{{ steps.b }}{{ now }}",
        "{{ range inputs.l }}{{ .anything }}{{ end }}",
        "{{ with inputs.l }}{{ .anything }}{{ end }}",
        '{{ "env" }} env {{/* env "x" */}}',
    ],
)
def test_admission_accepts(text: str) -> None:
    assert compile_template(text, BATCH).references.functions <= {"now"}
