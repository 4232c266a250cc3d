"""Stores that programs wrote, with what they showed; see `test_corpus`."""

from pathlib import Path

FOLDER = Path(__file__).parent
LATER = 1_900_000_000_000_000
