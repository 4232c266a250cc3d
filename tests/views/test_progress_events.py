"""What is said of a run while it is followed."""

import pytest

from perdure.kernel import events as e
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Cancelled, Failed, Status
from perdure.views.runs.progress_events import ProgressNarrator, RunNarrators, spell_step


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (e.Steered("gate", b'{"step": "ok", "state": "Approved"}', by="Ada"), "gate 'ok' approved by Ada"),
        (e.Steered("patch", b'{"ctx": {}}'), "patch received"),
        (e.Steered("resume", b"{}", by="Ada"), "unpause received by Ada"),
        (e.CancelRequested("wrong customer"), "cancel requested: wrong customer"),
        (e.SignalReceived("paid", b"17"), "signal 'paid' received"),
    ],
)
def test_a_notable_event_is_one_plain_sentence(event: e.Event, sentence: str) -> None:
    assert ProgressNarrator(RunId("r")).sentence(event) == sentence


def test_a_process_that_follows_all_runs_keeps_nothing_of_those_without_open_tasks() -> None:
    """A server hears of every run for as long as it lives."""
    narrators, failure = RunNarrators(), Failed("Sold.Out", "none left")
    for number in range(100):
        run = RunId(f"r{number}")
        assert narrators.sentences(run, [(1, [e.TaskScheduled(1, "shop", "/1:pay")])]) == []
        assert len(narrators) == 1
        assert "Sold.Out" in narrators.sentences(run, [(2, [e.TaskEnded(1, failure)])])[0]
        assert len(narrators) == 0

    assert narrators.sentences(RunId("r"), [(1, [e.TaskScheduled(1, "shop", "/1:pay")])]) == []
    assert narrators.sentences(RunId("r"), [(2, [e.RunEnded(Status.CANCELLED, Cancelled(""))])]) == []
    assert len(narrators) == 0


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("/2:charge", "charge"),
        ("/load#1/load_task", "load"),
        ("/each#1[2]/each_task", "each[2]"),
        ("/each#1[2]/pay", "each[2] › pay"),
        ("/load_task", "load_task"),
    ],
)
def test_a_task_without_a_name_is_called_like_its_step(path: str, spelled: str) -> None:
    assert spell_step(path) == spelled
