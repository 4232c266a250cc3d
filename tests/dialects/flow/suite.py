"""Where the conformance cases are: the public suite, if it is available, and our own beside this file."""

from functools import cache
from pathlib import Path

import pytest

from perdure.services.flow.conformance import Scenario, read_suite

REPOSITORY = Path(__file__).parents[3]
PUBLIC = REPOSITORY.parent / "shared" / "conformance" / "mwl" / "cases"
OWN = Path(__file__).parent / "cases"

MISSING = "the public MWL suite is not beside the repository"


@cache
def all_scenarios() -> tuple[Scenario, ...]:
    folders = [PUBLIC, OWN] if PUBLIC.is_dir() else [OWN]
    return tuple(scenario for folder in folders for scenario in read_suite([folder]).scenarios)


needs_public_suite = pytest.mark.skipif(not PUBLIC.is_dir(), reason=MISSING)
