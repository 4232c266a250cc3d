"""Every scenario folder, played in every way: nothing about slots, arrival orders or crashes may change how it ends."""

import pytest

from tests.dialects.playbook.cases import WAYS, Case, Player, all_cases, differences


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_case_ends_as_expected(case: Case, way: Player) -> None:
    world = way(case)

    assert list(differences(case.expected, world.show())) == []


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_case_has_no_problems(case: Case) -> None:
    from tests.dialects.playbook.world import World

    world = World(case.document, work={"say": str, "flaky": str, "slow": str, "fail": str})

    judged = world.dialect.parse(world.text)
    program, problems = judged.program, judged.problems

    assert program is not None, [problem.describe(case.name) for problem in problems]
