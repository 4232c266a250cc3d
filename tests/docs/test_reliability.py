"""The page about reliability shows the figures that were measured, and tests that exist."""

import json
import re

from tests.journeys import soak


def test_the_page_shows_the_saved_figures() -> None:
    figures = json.loads(soak.FIGURES.read_text())

    assert soak.page(figures) in soak.PAGE.read_text()
    assert figures["wrong"] == []


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/.*]+)`", soak.PAGE.read_text())

    assert named
    assert [name for name in named if not list(soak.REPOSITORY.glob(name))] == []
