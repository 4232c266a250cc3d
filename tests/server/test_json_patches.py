"""JSON Patch and merge patch of objects, without a server."""

from typing import Any

import pytest

from perdure.kernel.errors import UnfitInput
from perdure.server.kubernetes.patches import merged, patched
from perdure.views.errors import BadRequest


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2], "b": {"c": 3}}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9], "b": {"c": 3}}),
        ([{"op": "remove", "path": "/b/c"}], {"a": [1, 2], "b": {}}),
        ([{"op": "replace", "path": "/b", "value": None}], {"a": [1, 2], "b": None}),
        ([{"op": "move", "from": "/a/0", "path": "/b/d"}], {"a": [2], "b": {"c": 3, "d": 1}}),
        ([{"op": "copy", "from": "/b", "path": "/x~1y"}], {"a": [1, 2], "b": {"c": 3}, "x/y": {"c": 3}}),
        ([{"op": "test", "path": "/b/c", "value": 3}], {"a": [1, 2], "b": {"c": 3}}),
    ],
)
def test_each_operation_of_a_json_patch(operations: list[Any], result: Any) -> None:
    before = {"a": [1, 2], "b": {"c": 3}}
    assert patched(before, operations) == result
    assert before == {"a": [1, 2], "b": {"c": 3}}


def test_a_test_that_fails_refuses_all_of_it() -> None:
    with pytest.raises(UnfitInput):
        patched({"a": True}, [{"op": "remove", "path": "/a"}, {"op": "test", "path": "/a", "value": 1}])
    with pytest.raises(UnfitInput):
        patched({"a": True}, [{"op": "test", "path": "/a", "value": 1}])


def test_copies_of_copies_end_before_they_fill_the_memory() -> None:
    doubled = [{"op": "copy", "from": "", "path": f"/x{number}"} for number in range(200)]
    with pytest.raises(BadRequest, match="at most"):
        patched({"a": 1}, doubled)
    large = {"op": "test", "path": "/a", "value": list(range(10_000))}
    with pytest.raises(BadRequest, match="at most"):
        patched({"a": list(range(10_000))}, [large] * 100)


def test_a_merge_patch_removes_what_is_null() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]}) == {"a": {"c": 2}, "d": [2]}
