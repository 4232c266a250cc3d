"""Every scenario folder, run in every way: slots, arrival orders and crashes do not change how it ends."""

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

    validated = world.dialect.parse(world.text)
    program, problems = validated.program, validated.problems

    assert program is not None, [problem.describe(case.name) for problem in problems]
