"""Static checks: each rule of section 2.3 refuses at load, with its code and its place, even in unreachable parts."""

from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.kernel.documents.problems import Problem, Severity
from perdure.kernel.json_values import jsontext
from tests.dialects.flow.documents import MOCK, call, cleanup, flow, inner, middleware, mock, returns

RETRY = "mwl:provider.middleware/mwl/retry/v1"


def problems_of(document: Any) -> list[Problem]:
    text = document if isinstance(document, bytes) else jsontext.encode(document)
    return Flow().parse(text).problems


def errors_of(document: Any) -> set[tuple[str, str]]:
    return {(item.code, item.path) for item in problems_of(document) if item.severity is Severity.ERROR}


def step(action: str, **members: Any) -> dict[str, Any]:
    """A Flow with one Step under test that nothing reaches."""
    return flow({"r": returns(), "x": {"action": action, **members}})


def gather(**members: Any) -> dict[str, Any]:
    return step("Gather", **{"over": [], "call": mock(), "next": "r", **members})


def entry(**members: Any) -> dict[str, Any]:
    return step("Call", call=mock(), next="r", middleware=[members])


def caught(**matcher: Any) -> dict[str, Any]:
    return step("Call", call=mock(), next="r", catch=[{"match": matcher, "next": "r"}])


CLAUSE: dict[str, Any] = {"when": "{{ true }}", "next": "r"}

REFUSED: list[tuple[str, Any, str]] = [
    ("MWL-020", b'{"entrypoint": NaN}', ""),
    ("MWL-020", b'{"entrypoint": "a", "entrypoint": "a"}', ""),
    ("MWL-020", b'{"entrypoint": "a"', ""),
    ("MWL-020", b'{"entrypoint": "\xff"}', ""),
    ("MWL-020", b'{"entrypoint": "\\ud800"}', ""),
    ("MWL-020", b'{"entrypoint": 1e999}', ""),
    ("MWL-021", [], ""),
    ("MWL-021", inner({"r": returns()}), ""),
    ("MWL-021", {**flow({"r": returns()}), "$schema": "other"}, "$schema"),
    ("MWL-021", flow({"r": returns()}, flows={"f": flow({"r": returns()})}), "flows.f.$schema"),
    ("MWL-022", flow({"r": returns()}, extra=1), "extra"),
    ("MWL-022", flow({"r": returns()}, comment=1), "comment"),
    ("MWL-022", entry(provider=RETRY, onEntry={"comment": "no"}), "steps.x.middleware[0].onEntry.comment"),
    ("MWL-022", step("Raise", result={"code": "c", "comment": "no"}), "steps.x.result.comment"),
    ("MWL-022", gather(completion={"successes": 1, "comment": "no"}), "steps.x.completion.comment"),
    ("MWL-022", step("Sleep", **{"for": 3, "next": "r"}), "steps.x.for"),
    ("MWL-022", gather(over="abc"), "steps.x.over"),
    ("MWL-022", step("Call", call={**mock(), "with": [1]}, next="r"), "steps.x.call.with"),
    ("MWL-022", entry(provider=RETRY, onEntry={"when": "yes"}), "steps.x.middleware[0].onEntry.when"),
    ("MWL-022", step("Raise", result={"code": 3}), "steps.x.result.code"),
    ("MWL-022", step("Raise", result={"code": "c", "previous": "p"}), "steps.x.result.previous"),
    ("MWL-022", step("Call", call={**mock(), "onFailure": {"value": 1}}, next="r"), "steps.x.call.onFailure.value"),
    ("MWL-022", entry(provider=RETRY, onAlways={"output": 1}), "steps.x.middleware[0].onAlways.output"),
    ("MWL-022", {"$schema": flow({"r": 1})["$schema"], "entrypoint": "r", "steps": {"r": {}}}, "steps.r"),
    ("MWL-023", {**flow({"r": returns()}), "steps": {}}, "steps"),
    ("MWL-023", {**flow({"r": returns()}), "entrypoint": "nope"}, "entrypoint"),
    ("MWL-024", step("Pass", next="nope"), "steps.x.next"),
    ("MWL-024", step("Match", cases=[{**CLAUSE, "next": "no"}], default={"next": "r"}), "steps.x.cases[0].next"),
    ("MWL-024", step("Match", cases=[], default={"next": "no"}), "steps.x.default.next"),
    (
        "MWL-024",
        step("Call", call=mock(), next="r", catch=[{"match": {"codes": ["*"]}, "next": "no"}]),
        "steps.x.catch[0].next",
    ),
    ("MWL-025", step("Pass"), "steps.x"),
    ("MWL-025", step("Return", next="r"), "steps.x.next"),
    ("MWL-025", step("Raise", next="r"), "steps.x.next"),
    ("MWL-026", step("pass", next="r"), "steps.x.action"),
    ("MWL-027", step("Pass", input=1, next="r"), "steps.x.input"),
    ("MWL-027", gather(input=1), "steps.x.input"),
    ("MWL-027", gather(middleware=[]), "steps.x.middleware"),
    ("MWL-027", step("Pass", catch=[], next="r"), "steps.x.catch"),
    ("MWL-027", step("Match", cases=[], default={"next": "r"}, next="r"), "steps.x.next"),
    ("MWL-027", step("Match", cases=[], default={"next": "r"}, output=1), "steps.x.output"),
    ("MWL-027", step("Sleep", **{"for": "PT1S", "next": "r", "assign": {}}), "steps.x.assign"),
    ("MWL-027", step("Return", output=1), "steps.x.output"),
    ("MWL-027", step("Raise", assign={}), "steps.x.assign"),
    ("MWL-028", step("Call", call={}, next="r"), "steps.x.call"),
    ("MWL-028", step("Call", call={"provider": MOCK, "flow": inner({"r": returns()})}, next="r"), "steps.x.call"),
    ("MWL-029", step("Call", call={"flow": "nope"}, next="r"), "steps.x.call.flow"),
    (
        "MWL-030",
        flow({"r": returns()}, flows={"a": inner({"c": call({"flow": "a"}), "done": returns()})}),
        "flows.a.steps.c.call.flow",
    ),
    ("MWL-031", step("Call", call={"provider": "http://x"}, next="r"), "steps.x.call.provider"),
    ("MWL-031", step("Call", call={"provider": "mwl:provider.call/a/../b"}, next="r"), "steps.x.call.provider"),
    ("MWL-031", step("Call", call={"provider": RETRY}, next="r"), "steps.x.call.provider"),
    (
        "MWL-031",
        step("Call", call={"provider": "mwl:provider.call/example/http/v1"}, next="r"),
        "steps.x.call.provider",
    ),
    ("MWL-031", entry(provider=MOCK), "steps.x.middleware[0].provider"),
    ("MWL-033", flow({"r": returns()}, parameters={"properties": {}}), "parameters"),
    (
        "MWL-033",
        flow({"r": returns()}, parameters={"type": "object", "properties": {"a": {"type": "nope"}}}),
        "parameters.properties.a.type",
    ),
    ("MWL-034", gather(calls=[mock()]), "steps.x"),
    ("MWL-034", step("Gather", next="r"), "steps.x"),
    ("MWL-034", step("Gather", over=[], next="r"), "steps.x"),
    ("MWL-034", step("Gather", call=mock(), next="r"), "steps.x"),
    ("MWL-035", step("Gather", calls=[], next="r"), "steps.x.calls"),
    *(("MWL-036", gather(concurrency=bad), "steps.x.concurrency") for bad in (0, -1, 1.5, "2", True)),
    ("MWL-037", gather(completion={}), "steps.x.completion"),
    ("MWL-037", gather(completion={"successes": 1.5}), "steps.x.completion.successes"),
    ("MWL-037", gather(completion={"successes": 1, "wait": 1}), "steps.x.completion.wait"),
    ("MWL-038", step("Sleep", next="r"), "steps.x"),
    ("MWL-038", step("Sleep", **{"for": "PT1S", "until": "2030-01-01T00:00:00Z", "next": "r"}), "steps.x"),
    ("MWL-039", step("Match", default={"next": "r"}), "steps.x"),
    ("MWL-039", step("Match", cases=[]), "steps.x"),
    ("MWL-039", step("Match", cases=[{"next": "r"}], default={"next": "r"}), "steps.x.cases[0]"),
    ("MWL-039", step("Match", cases=[{"when": True, "next": "r"}], default={"next": "r"}), "steps.x.cases[0].when"),
    ("MWL-039", step("Match", cases=[], default=CLAUSE), "steps.x.default.when"),
    ("MWL-040", step("Raise", result={}), "steps.x.result"),
    ("MWL-040", step("Raise", result={"code": "c", "type": "success"}), "steps.x.result.type"),
    ("MWL-040", entry(provider=RETRY, onFailure={"type": "success"}), "steps.x.middleware[0].onFailure.type"),
    ("MWL-041", caught(), "steps.x.catch[0].match"),
    ("MWL-041", caught(codes=[]), "steps.x.catch[0].match.codes"),
    ("MWL-041", caught(types=["success"]), "steps.x.catch[0].match.types"),
    ("MWL-041", caught(retryable=None), "steps.x.catch[0].match.retryable"),
    ("MWL-042", step("Pass", next="{{ 'r' }}"), "steps.x.next"),
    ("MWL-042", step("{{ 'Pass' }}", next="r"), "steps.x.action"),
    ("MWL-042", step("Pass", assign="{{ {} }}", next="r"), "steps.x.assign"),
    ("MWL-042", step("Call", call={"provider": "{{ 'x' }}"}, next="r"), "steps.x.call.provider"),
    ("MWL-042", step("Call", call={"flow": "{{ 'x' }}"}, next="r"), "steps.x.call.flow"),
    ("MWL-042", gather(concurrency="{{ 2 }}"), "steps.x.concurrency"),
    ("MWL-042", gather(completion="{{ 2 }}"), "steps.x.completion"),
    ("MWL-042", gather(completion={"successes": 1, "wait": "{{ true }}"}), "steps.x.completion.wait"),
    ("MWL-042", step("Raise", result="{{ {} }}"), "steps.x.result"),
    ("MWL-042", caught(codes=["{{ 'a' }}"]), "steps.x.catch[0].match.codes[0]"),
    ("MWL-042", flow({"r": returns(), "{{ x }}": returns()}), "steps['{{ x }}']"),
    ("MWL-042", flow({"r": returns()}, flows={"{{ x }}": inner({"r": returns()})}), "flows['{{ x }}']"),
    ("MWL-042", flow({"r": returns()}, middleware="{{ [] }}"), "middleware"),
    ("MWL-043", entry(**middleware("loop")), "steps.x.middleware[0]"),
    ("MWL-044", entry(**middleware("finally")), "steps.x.middleware[0]"),
    ("MWL-044", entry(**middleware("finally", onAlways={"with": "{{ {} }}"})), "steps.x.middleware[0]"),
    ("MWL-044", entry(**middleware("finally", onAlways={"with": {}})), "steps.x.middleware[0].onAlways.with"),
    ("MWL-029", entry(**cleanup({"flow": "nope"})), "steps.x.middleware[0].onAlways.with.call.flow"),
]


@pytest.mark.parametrize(("code", "document", "path"), REFUSED)
def test_an_ill_formed_document_is_refused_with_code_and_path(code: str, document: Any, path: str) -> None:
    assert (code, path) in errors_of(document)


def test_a_cleanup_adds_edges_to_the_graph_of_calls() -> None:
    """MWL-044 MWL-052"""
    looping = inner({"c": call(mock(), middleware=[cleanup({"flow": "a"})]), "done": returns()})

    assert {code for code, _ in errors_of(flow({"r": returns()}, flows={"a": looping}))} == {"MWL-030"}


def test_mutual_recursion_is_refused_and_a_shadowed_name_is_not() -> None:
    """MWL-030 MWL-052"""
    a = inner({"c": call({"flow": "b"}), "done": returns()})
    b = inner({"c": call({"flow": "a"}), "done": returns()})
    shadowing = inner({"c": call({"flow": "a"}), "done": returns()}, flows={"a": inner({"r": returns()})})

    assert "MWL-030" in {code for code, _ in errors_of(flow({"r": returns()}, flows={"a": a, "b": b}))}
    assert errors_of(flow({"c": call({"flow": "a"}), "done": returns()}, flows={"a": shadowing})) == set()


def test_all_problems_come_at_once_in_the_order_of_the_text_with_line_column_and_guess() -> None:
    text = b"""{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "entrypoint": "frist",
  "steps": {
    "first": {"action": "Retrun"},
    "second": {"action": "Pass", "nxt": "first"}
  }
}"""
    problems = [(item.line, item.column, item.code, item.message) for item in problems_of(text)]

    assert problems == [
        (3, 3, "MWL-023", "there is no Step 'frist'; did you mean 'first'?"),
        (5, 15, "MWL-026", "there is no action 'Retrun'; did you mean 'Return'?"),
        (6, 5, "MWL-025", "a Pass Step is missing 'next'"),
        (6, 34, "MWL-022", "a Pass Step has no member 'nxt'; did you mean 'next'?"),
    ]


def test_syntax_errors_have_their_place_too() -> None:
    twice = problems_of(b'{\n  "steps": {},\n  "steps": {}\n}')[0]
    not_finite = problems_of(b'{\n  "steps": {},\n  "x": NaN\n}')[0]
    not_text = problems_of(b'{\n  "\xff": 1}')[0]

    assert (twice.line, twice.column) == (3, 3)
    assert (not_finite.line, not_finite.column) == (3, 8)
    assert not_text.line == 2


ACCEPTED: list[Any] = [
    step("Sleep", **{"for": "soon", "next": "r"}),  # MWL-046
    step("Call", call=mock(bogus=1), next="r"),  # MWL-045
    entry(provider=RETRY),  # MWL-045
    step("Pass", output="{{ 1 + }}", next="r"),  # MWL-048
    step("Pass", output="{{ call.input }}", next="r"),  # MWL-048
    caught(codes=["Anything.*", "A*B"]),  # MWL-047
    step("Raise", result={"code": "System.Mine"}),  # MWL-047
    step("Raise", result={"code": "c", "type": "{{ 'Odd' }}"}),  # O-07
    gather(concurrency=None),
    step("Match", cases=[], default={"next": "r"}),
    step("Pass", next="r", comment="{{ not evaluated"),  # MWL-013
    step("Call", call={**mock(), "comment": "c"}, next="r", middleware=[], comment="c"),
    step("Match", cases=[{**CLAUSE, "comment": "c"}], default={"next": "r", "comment": "c"}),
    entry(provider=RETRY, comment="c"),
]


@pytest.mark.parametrize("document", ACCEPTED)
def test_what_only_fails_at_run_time_is_not_refused(document: Any) -> None:
    assert errors_of(document) == set()


WARNED: list[tuple[str, Any, str]] = [
    ("MWL-047", step("Pass", next="r"), "steps.x"),
    ("MWL-046", flow({"x": {"action": "Sleep", "for": "soon", "next": "r"}, "r": returns()}), "steps.x.for"),
    ("MWL-088", flow({"x": {"action": "Sleep", "for": "P1M", "next": "r"}, "r": returns()}), "steps.x.for"),
    ("MWL-045", flow({"x": call(mock(bogus=1)), "done": returns()}), "steps.x.call.with"),
    (
        "MWL-045",
        flow({"x": call(mock(), middleware=[{"provider": RETRY}]), "done": returns()}),
        "steps.x.middleware[0]",
    ),
    ("MWL-048", flow({"r": returns("{{ vars. }}")}), "steps.r.value"),
    ("MWL-048", flow({"r": returns("{{ call.input }}")}), "steps.r.value"),
    ("MWL-048", flow({"r": returns({"deep": ["{{ 1 + 1.0 }}"]})}), "steps.r.value.deep[0]"),
    (
        "MWL-111",
        flow({"r": returns()}, parameters={"type": "object", "properties": {"a": {"default": "{{ 1 }}"}}}),
        "parameters.properties.a.default",
    ),
    (
        "MWL-047",
        flow(
            {
                "x": call(
                    mock(),
                    catch=[{"match": {"codes": ["*"]}, "next": "done"}, {"match": {"codes": ["A"]}, "next": "done"}],
                ),
                "done": returns(),
            }
        ),
        "steps.x.catch[1]",
    ),
    (
        "MWL-047",
        flow(
            {
                "x": call(
                    mock(),
                    middleware=[
                        middleware(
                            "retry", onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 2}]}}
                        )
                    ]
                    * 2,
                ),
                "done": returns(),
            }
        ),
        "steps.x.middleware[1]",
    ),
]


def test_reruns_inside_reruns_of_the_flow_are_warned_of_and_an_unrelated_catch_is_not() -> None:
    """MWL-047"""
    again = middleware("loop", onSuccess={"when": "{{ vars.more }}", "assign": {"more": False}})
    clauses = [{"match": {"codes": [pattern]}, "next": "done"} for pattern in ("A.x", "A.*", "B")]
    document = flow({"x": call(mock(), middleware=[again], catch=clauses), "done": returns()}, middleware=[again])

    assert [(item.code, item.path) for item in problems_of(document)] == [("MWL-047", "steps.x.middleware[0]")]


@pytest.mark.parametrize(("code", "document", "path"), WARNED)
def test_what_is_probably_not_meant_is_warned_of(code: str, document: Any, path: str) -> None:
    problems = {(item.code, item.path) for item in problems_of(document) if item.severity is Severity.WARNING}

    assert (code, path) in problems
    assert errors_of(document) == set()


def test_a_sound_document_has_no_problem_at_all() -> None:
    document = flow({"x": call(mock(value=1), catch=[{"match": {"codes": ["*"]}, "next": "done"}]), "done": returns()})

    assert problems_of(document) == []
