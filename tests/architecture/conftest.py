"""Millions of syntax nodes are made here, in trees without circles: looking for garbage among them takes most time."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
