"""When a rendered condition holds (STY-061)."""

from typing import Any

import pytest

from perdure.expressions.gotemplate import EvaluationFault, holds


@pytest.mark.parametrize("result", [True, "true", " TRUE ", "1", "Yes", "y"])
def test_it_holds(result: Any) -> None:
    assert holds(result)


@pytest.mark.parametrize("result", [False, "false", "0", "NO", "n", "", "  "])
def test_it_does_not_hold(result: Any) -> None:
    assert not holds(result)


@pytest.mark.parametrize("result", [None, 1, 0, 1.0, [], {}, "on", "<no value>"])
def test_anything_else_is_no_condition(result: Any) -> None:
    with pytest.raises(EvaluationFault, match="condition did not resolve to boolean"):
        holds(result)
