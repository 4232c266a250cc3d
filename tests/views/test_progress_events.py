"""What is said of a run while it is followed."""

import pytest

from perdure.kernel import events as e
from perdure.kernel.values import RunId
from perdure.views.progress_events import ProgressNarrator


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (e.Steered("gate", b'{"step": "ok", "state": "Approved"}', by="Ada"), "gate 'ok' approved by Ada"),
        (e.Steered("patch", b'{"ctx": {}}'), "patch received"),
        (e.CancelRequested("wrong customer"), "cancel requested: wrong customer"),
        (e.SignalReceived("paid", b"17"), "signal 'paid' received"),
    ],
)
def test_a_notable_event_is_one_plain_sentence(event: e.Event, sentence: str) -> None:
    assert ProgressNarrator(RunId("r")).sentence(event) == sentence
