"""Nothing that others rely on is renamed or removed (the list is in frozen.json, the reasons in CONTRIBUTING.md)."""

import pytest

from tests.architecture import frozen

OPEN = {"keys of JSON output"}
"""Read from dictionaries in the code, of which some are no output: new ones need not be listed."""


@pytest.mark.parametrize("group", sorted(frozen.read()))
def test_frozen_names_are_still_there(group: str) -> None:
    gone = set(frozen.read()[group]) - set(frozen.current()[group])

    assert sorted(gone) == [], f"{group}: stored data, other programs or users rely on these names"


def test_new_names_are_frozen_when_they_are_added() -> None:
    known = frozen.read()
    new = {group: sorted(set(names) - set(known.get(group, ()))) for group, names in frozen.current().items()}

    assert {group: names for group, names in new.items() if names and group not in OPEN} == {}, (
        "once released they stay for ever: if that is meant, run `python -m tests.architecture.frozen`"
    )


def test_every_group_holds_something() -> None:
    assert all(frozen.current().values())
