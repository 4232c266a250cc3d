"""Every scenario folder, played in every way: nothing about slots, arrival orders or crashes may change how it ends."""

import pytest

from tests.dialects.differences import differences
from tests.dialects.story.cases import WAYS, Case, Player, all_cases


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_case_ends_as_expected(case: Case, way: Player) -> None:
    world = way(case)

    assert list(differences(case.expected, world.show())) == []


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_case_says_which_rules_it_shows(case: Case) -> None:
    assert case.told["rules"]
