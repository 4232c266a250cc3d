"""What two values and two histories do not have in common (ANA-030)."""

import tracemalloc
from typing import Any

import pytest

from perdure.analysis.differences import HistoryComparison, HistoryMarks, compare_histories, differences


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2, (True, True))]),
        (
            {"a": {"b": [1, 2]}},
            {"a": {"b": [1, 3, 4]}},
            [("a.b[1]", 2, 3, (True, True)), ("a.b[2]", None, 4, (False, True))],
        ),
        ({"a": 1}, {"b": 1}, [("a", 1, None, (True, False)), ("b", None, 1, (False, True))]),
        ({"a": None}, {}, [("a", None, None, (True, False))]),
        (True, 1, [("", True, 1, (True, True))]),
        ([1], {"a": 1}, [("", [1], {"a": 1}, (True, True))]),
    ],
)
def test_places_at_which_values_differ(left: Any, right: Any, expected: list[tuple[Any, ...]]) -> None:
    shown = [(item.path, item.left, item.right, item.has) for item in differences(left, right)]
    assert shown == expected


def test_there_are_at_most_so_many() -> None:
    assert len(differences(list(range(1_000)), [])) == 200


def _history(run: str, *events: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"seq": seq, "timestamp": f"{run} {seq}", "event_type": kind, "step": step, "payload": payload}
        for seq, (kind, step, payload) in enumerate(events, 1)
    ]


def test_steps_beside_each_other_may_end_in_any_order() -> None:
    left = _history("x", ("done", "a", {"value": 1}), ("done", "b", {"value": 2, "task": 1}))
    right = _history("y", ("done", "b", {"value": 2, "task": 7}), ("done", "a", {"value": 1}))
    comparison = compare_histories(left, right, (["x"], ["y"]))
    assert (comparison.values, comparison.decision) == (None, None)


def test_the_first_other_value_and_the_first_other_decision() -> None:
    left = _history("x", ("done", "a", {"value": {"key": 1}}), ("phase", "b", {"phase": "Running", "about": "x/b"}))
    right = _history("y", ("done", "a", {"value": {"key": 2}}), ("phase", "b", {"phase": "Skipped", "about": "y/b"}))
    comparison = compare_histories(left, right, (["x"], ["y"]))
    assert comparison.values is not None and comparison.decision is not None
    assert [(item.path, item.left, item.right) for item in comparison.values.differences] == [
        ("payload.value.key", 1, 2)
    ]
    assert comparison.decision.step == "b"
    assert [item.path for item in comparison.decision.differences] == ["payload.phase"]


def test_a_history_that_ends_earlier_parts_there() -> None:
    left = _history("x", ("began", "a", {}), ("done", "a", {}))
    comparison = compare_histories(left, left[:1], (["x"], ["x"]))
    assert comparison.decision is not None
    assert (comparison.decision.left, comparison.decision.right) == (left[1], None)


def test_frames_are_told_apart_by_their_place() -> None:
    """Their numbers follow the order in which they were opened, which may differ."""

    def opened(seq: int, frame: int, index: int) -> dict[str, Any]:
        return {"seq": seq, "at": seq, "event": "Opened", "frame": frame, "path": "/each", "index": index}

    def left_for(seq: int, frame: int, place: str) -> dict[str, Any]:
        return {"seq": seq, "at": seq, "event": "Left", "frame": frame, "next": place}

    first = [opened(1, 1, 0), opened(2, 2, 1), left_for(3, 1, "good"), left_for(4, 2, "good")]
    second = [opened(1, 5, 1), opened(2, 6, 0), left_for(3, 6, "good"), left_for(4, 5, "bad")]
    comparison = compare_histories(first, second, ((), ()))
    assert comparison.decision is not None
    assert (comparison.decision.thread, comparison.decision.left, comparison.decision.right) == (
        "/each[1]",
        first[3],
        second[3],
    )


def test_marks_of_a_history_keep_nothing_of_its_values() -> None:
    """Two histories of many megabytes are compared with a small part of their memory."""
    marks = HistoryMarks(("run-1",))
    tracemalloc.start()
    try:
        for number in range(1, 1_001):
            value = {"text": f"{number} of run-1 " + "x" * 20_000}
            marks.add([{"seq": number, "event": "Done", "step": f"s{number % 7}", "result": value}])
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, marks.threads.values())) == 1_000
    assert kept < 1_000 * 1_000 and most < 2_000_000, (kept, most)


def test_numbers_that_are_equal_are_no_difference() -> None:
    left = [{"seq": 1, "event": "Done", "step": "a", "result": {"n": 2, "m": [1.0]}}]
    right = [{"seq": 1, "event": "Done", "step": "a", "result": {"m": [1], "n": 2.0}}]
    assert compare_histories(left, right, ((), ())) == HistoryComparison(None, None)
    other = [{"seq": 1, "event": "Done", "step": "a", "result": {"m": [1], "n": 2.5}}]
    comparison = compare_histories(left, other, ((), ()))
    assert comparison.values is not None and comparison.decision is None
    assert [change.path for change in comparison.values.differences] == ["result.n"]


def test_the_name_of_a_document_is_no_decision() -> None:
    """ANA-030: two versions in two files have two names; they part where something else is decided."""
    started: list[dict[str, Any]] = [
        {"seq": 1, "event": "RunStarted", "name": name, "input": None} for name in ("orders", "orders2")
    ]
    left, right = (
        [event, {"seq": 2, "event": "StepLeft", "next": next}] for event, next in zip(started, "sz", strict=True)
    )
    comparison = compare_histories(left, right, ((), ()))

    assert compare_histories(started[:1], started[1:], ((), ())) == HistoryComparison(None, None)
    for parting in (comparison.values, comparison.decision):
        assert parting is not None and [change.path for change in parting.differences] == ["next"]


def test_a_router_decides_by_the_arcs_that_match() -> None:
    """ANA-030: not only the step that begins after it."""
    routes = [[("b", True)], [("b", False), ("c", True)]]
    left, right = (
        _history(
            "x",
            ("next.evaluated", "a", {"arcs": [{"step": step, "matched": matched} for step, matched in route]}),
            ("token.created", route[-1][0], {}),
        )
        for route in routes
    )
    decision = compare_histories(left, right, ((), ())).decision

    assert decision is not None and decision.step == "a"
