"""Which commits change what a run shows, as resources or in its history (SRV-071)."""

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import wiring
from perdure.dialects.story import Story
from perdure.dialects.story.state.folding import SILENT_EVENTS
from perdure.kernel.codec import decode_turns
from perdure.kernel.events import KERNEL_EVENTS
from perdure.kernel.execution import Execution
from tests.dialects.story.cases import Case, all_cases, play
from tests.dialects.universe import Life


def commits_of(life: Life) -> Iterator[tuple[set[str], bool, bool]]:
    """The types of the events of each commit, whether they are said to change what is shown, and whether they do."""
    dialect = life.dialect
    execution = Execution(life.id, dialect, dialect.load(life.text))
    turns: list[Any] = []
    before: Any = None
    for row in life.rows:
        recorded = decode_turns(dialect, row)
        execution.fold(recorded)
        turns += recorded
        resources = dialect.resources(dialect.show(execution, life.universe.values))
        after = (
            resources,
            len(list(dialect.history(life.id, turns))),
            execution.state.status,
            execution.state.disowned,
        )
        types = {type(event) for _, events in recorded for event in events}
        yield {kind.__name__ for kind in types}, not dialect.shown_events.isdisjoint(types), after != before
        before = after


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_commit_is_told_of_exactly_if_it_changes_what_is_shown(case: Case) -> None:
    """SRV-071, Invariant 25: none for commits that change nothing shown; none that changes something is missed."""
    for slice in (1, 1_000):
        for life in play(case, slice=slice).lives.values():
            for types, is_told, is_changed in commits_of(life):
                assert is_told == is_changed, types


def test_a_language_that_shows_its_runs_says_which_events_change_them() -> None:
    """And an event that nobody has judged changes them."""
    for language in wiring.languages().values():
        assert bool(language.shown_events) == language.shows_resources
    assert not SILENT_EVENTS - {*KERNEL_EVENTS, *Story().events}
    assert Story().shown_events == {*KERNEL_EVENTS, *Story().events} - SILENT_EVENTS
