"""What is said of a run while it is followed."""

import pytest

from perdure.kernel import events as e
from perdure.kernel.values import RunId
from perdure.views.progress_events import ProgressNarrator, spell_step


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
