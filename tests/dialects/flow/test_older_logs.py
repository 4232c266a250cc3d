"""Logs that earlier versions wrote, kept as they are: they fold to the states they folded to then."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Body, Call
from perdure.kernel.codec import decode_turns
from perdure.kernel.execution import Execution, Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from tests.dialects.flow.documents import call, flow, mock, returns
from tests.dialects.flow.world import Described, World

LOGS = sorted((Path(__file__).parent / "logs").glob("*.json"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_of_an_earlier_version_folds_to_its_result(path: Path) -> None:
    log: dict[str, Any] = json.loads(path.read_text())
    language = Flow(lambda name: Described(), lambda: ("echo", "fail"))
    execution = Execution(RunId("run"), language, language.load(jsontext.encode(log["document"])))

    for row in log["rows"]:
        execution.fold(decode_turns(language, bytes.fromhex(row)))
        frozen = language.freeze(execution.body)
        assert language.freeze(language.thaw(execution.program, frozen)) == frozen

    assert language.show(execution, {}) == log["result"]


def test_a_call_that_an_earlier_version_settled_but_did_not_leave_goes_on() -> None:
    """It was cut between the two by the end of a slice: now, as then, the call's arm is looked for, and it is left."""
    document = flow({"c": call(mock(value=7, delay="PT1S"), "r"), "r": returns()})
    world = World(document, limits=Limits())
    world.run()
    rows = [decode_turns(world.dialect, row) for row in world.rows]
    begun = Execution(RunId("run"), world.dialect, world.dialect.load(world.text))
    for turns in rows[:-1]:
        begun.fold(turns)
    ((at, events),) = rows[-1]
    fired, settled = events[:2]
    assert isinstance(settled, f.CallSettled) and settled.is_left
    begun.fold([(at, [fired, f.CallSettled(settled.frame, settled.index, settled.at)])])
    body: Body = begun.body

    assert isinstance(body.frames[1].stack[-1], Call)

    begun.fold([(at, [f.CallLeft(1, -1), *events[2:]])])

    assert world.dialect.show(begun, {}) == {"type": "success", "value": 7}
