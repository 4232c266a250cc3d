"""A new kind of step touches one file and one line of the registry: here both are made in a temporary package."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.dialects.story.language import Story
from perdure.dialects.story.steps import STEP_KINDS, TYPES
from tests.dialects.story.document.resource_texts import errors, warnings
from tests.dialects.story.document.resource_texts import story as document
from tests.dialects.story.world import World, bundle, story

MODULE = '''
from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values.template_scope import Scope
from perdure.kernel.turn import Turn
from perdure.kernel.json_values.values import SECOND


class Announce(StepKind):
    """Gives its text after a second."""

    members = ("text",)
    makes_edges = True
    purposes = ("announce",)

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        step.at("with").warn_unread(self.members)
        if step.at("with", "text").value is None:
            step.problem(INVALID, f"step '{name}' of type 'announce' requires 'with.text' to be set")

    def start(self, turn: Turn, step: Step) -> None:
        due = turn.now + SECOND
        turn.emit(s.StepStarted(step.name, StoryPhase.PAUSED, "Announcing.", turn.now, turn.set_timer(due), due))

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        text = Scope(turn, step).render(step.with_block["text"], "announce")
        succeed(turn, step, "Announced.", {"text": text})

    def note(self, program: Program, step: Step) -> str:
        return "announcement"
'''

SPEC = """
steps:
  - {name: a, ref: {name: echo}, with: {x: 7}}
  - {name: b, type: announce, with: {text: "x is {{ steps.a.output.x }}"}}
output: {said: "{{ steps.b.output.text }}"}
"""


@pytest.fixture(autouse=True)
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "more_steps"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "announce.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(TYPES, "announce", "more_steps.announce:Announce")
    yield
    STEP_KINDS.pop("announce", None)


def test_its_with_is_checked() -> None:
    assert errors(document(SPEC)) == []
    broken = document("steps: [{name: b, type: announce, with: {txt: x}}]")

    [(path, message, _)] = errors(broken)
    assert (path, message) == ("spec.steps[0]", "step 'b' of type 'announce' requires 'with.text' to be set")
    assert any("did you mean 'text'" in message for _, message, _ in warnings(broken))
    [(_, message, _)] = errors(document("steps: [{name: b, type: anounce}]"))
    assert "did you mean 'announce'" in message


@pytest.mark.parametrize("crash", [False, True])
def test_it_runs(crash: bool) -> None:
    shown = World(SPEC, crash=crash).run()

    assert shown["status"]["phase"] == "Succeeded"
    assert shown["status"]["stepStates"]["b"]["message"] == "Announced."
    assert shown["status"]["output"] == {"said": "x is 7"}


def test_it_is_drawn_with_its_edges() -> None:
    language = Story()
    graph = language.graph(language.load(bundle(story(SPEC))))

    assert [(node.id, node.notes) for node in graph.nodes][-1] == ("b", ("announcement",))
    assert [(edge.source, edge.target) for edge in graph.edges] == [("a", "b")]
