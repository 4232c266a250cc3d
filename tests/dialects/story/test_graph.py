"""Which step waits for which."""

from typing import Any

import pytest

from perdure.dialects.story.plan.step_graph import StepGraph


def graph(*steps: dict[str, Any], **blocks: list[dict[str, Any]]) -> StepGraph:
    return StepGraph({"steps": list(steps), **blocks})


def engram(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "ref": {"name": "e"}, **{key.rstrip("_"): value for key, value in fields.items()}}


@pytest.mark.parametrize(
    "text",
    [
        "{{ steps.a-b.output }}".replace("a-b", "a_b"),
        "{{ steps['a-b'].output.x }}",
        '{{ steps["a-b"].output.x }}',
        '{{ .steps["a-b"] }}',
        '{{ index steps "a-b" "output" }}',
        '{{ index .steps "a-b" }}',
        "{{ steps.a_b }}",
        "x {{ if inputs.y }}{{ range steps.a_b.output.items }}{{ . }}{{ end }}{{ end }}",
        "{{ (index steps 'a-b').output }}".replace("'", '"'),
    ],
)
def test_templates_make_edges(text: str) -> None:
    """STY-054, STY-195, STY-196: with every spelling, aliases mapped back."""
    step_graph = graph(engram("a-b"), engram("c", with_={"deep": [{"x": text}]}), engram("d", if_=text))

    assert step_graph.waits["c"].all == ("a-b",)
    assert step_graph.waits["d"].all == ("a-b",)


def test_a_template_object_makes_edges_unless_it_binds_the_name_itself() -> None:
    """STY-054, STY-193"""
    step_graph = graph(
        engram("a"),
        engram("b", with_={"$bubuTemplate": "steps.a.output"}),
        engram("c", with_={"$bubuTemplate": "{{ steps.zz.x }}", "$bubuTemplateVars": {"steps": {"zz": {"x": 1}}}}),
    )

    assert step_graph.waits["b"].all == ("a",)
    assert step_graph.waits["c"].all == ()
    assert step_graph.waits["c"].unknown_reads == ()


def test_only_engrams_sub_stories_and_branches_wait_for_what_their_with_reads() -> None:
    """STY-054: `if` makes edges for all kinds; `wait.until`, `output` and `postExecution` for none."""
    text = "{{ steps.a.output.ok }}"
    step_graph = graph(
        engram("a"),
        {"name": "w", "type": "wait", "with": {"until": text}},
        {"name": "s", "type": "sleep", "if": text, "with": {"duration": "1s"}},
        {"name": "x", "type": "executeStory", "with": {"storyRef": {"name": "o"}, "with": {"v": text}}},
        {"name": "p", "type": "parallel", "with": {"steps": [engram("p1", with_={"v": text})]}},
        engram("e", postExecution={"condition": text}),
    )

    assert {name: wait.all for name, wait in step_graph.waits.items()} == {
        "a": (),
        "w": (),
        "s": ("a",),
        "x": ("a",),
        "p": ("a",),
        "e": (),
    }


def test_reading_a_branch_is_waiting_for_its_parent() -> None:
    """STY-095: and a branch is no node of its own."""
    step_graph = graph(
        {"name": "p", "type": "parallel", "with": {"steps": [engram("left"), engram("right")]}},
        engram("c", with_={"v": "{{ steps.left.output }}"}),
        engram("d", needs=["right"]),
    )

    assert step_graph.waits["c"].all == ("p",)
    assert step_graph.waits["d"].unknown == ("right",)
    assert "left" not in step_graph.nodes


def test_blocks_see_themselves_and_those_before() -> None:
    """STY-026"""
    step_graph = graph(
        engram("m", needs=["c"]),
        engram("n", with_={"v": "{{ steps.f.output }}"}),
        compensations=[engram("c", needs=["m", "f"])],
        finally_=[],
    )
    assert step_graph.waits["m"].unknown == ("c",)
    assert step_graph.waits["n"].unknown_reads == ("f",)
    assert step_graph.waits["c"].unknown == ("f",)
    last = StepGraph(
        {"steps": [engram("m")], "compensations": [engram("c")], "finally": [engram("f", needs=["c", "m"])]}
    )
    assert last.waits["f"].all == ("m", "c")


def test_cycles_name_those_inside_and_nobody_else() -> None:
    """STY-027: implicit edges count; a step behind the cycle is not part of it."""
    step_graph = graph(
        engram("b", needs=["a"]),
        engram("a", with_={"v": "{{ steps.b.output }}"}),
        engram("z", needs=["a"]),
        engram("o"),
    )

    assert step_graph.cycle("steps") == ("a", "b")
    assert step_graph.cycle("finally") == ()
    assert graph(engram("a", with_={"v": "{{ steps.a.output }}"})).cycle() == ("a",)


def test_why_a_run_cannot_start() -> None:
    """STY-055"""
    assert graph(engram("a", needs=["b"])).refusal() == (
        "Invalid story dependency graph: unknown step dependencies: a->b"
    )
    assert graph(engram("a", needs=["b"]), engram("b", needs=["a"])).refusal() == (
        "Invalid story dependency graph: dependency cycle detected involving step(s): a, b"
    )
    assert graph(engram("a"), engram("b", needs=["a"])).refusal() is None


def test_what_is_no_step_is_passed_over() -> None:
    step_graph = StepGraph(
        {"steps": [1, None, {"name": 3}, {"name": "a", "needs": "b", "with": "{{ broken"}], "finally": {}}
    )

    assert list(step_graph.nodes) == ["a"]
    assert step_graph.nodes["a"].path == ("spec", "steps", 3)
    assert step_graph.waits["a"].all == ()
