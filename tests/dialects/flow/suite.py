"""Where the conformance cases are: the public suite, if it is available, and our own beside this file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.services.flow.conformance import Scenario, read_suite

REPOSITORY = Path(__file__).parents[3]
PUBLIC = REPOSITORY.parent / "shared" / "conformance" / "mwl" / "cases"
OWN = Path(__file__).parent / "cases"

MISSING = "the public MWL suite is not beside the repository"


def scenarios() -> Iterator[Scenario]:
    if PUBLIC.is_dir():
        yield from read_suite([PUBLIC]).scenarios
    yield from read_suite([OWN]).scenarios


def all_scenarios() -> list[Scenario]:
    return list(scenarios())


needs_public_suite = pytest.mark.skipif(not PUBLIC.is_dir(), reason=MISSING)
