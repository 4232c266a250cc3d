"""Whatever a parser is fed: an answer, or its own error. No other exception, and no more work than its bound.

The seed is printed with a failure; `PERDURE_FUZZ_SEED` and `PERDURE_FUZZ_EXAMPLES` choose others.
"""

import os

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests import sampling
from tests.fuzz.targets import CORPUS, TARGETS, corpus, feed

SEED = int(os.environ.get("PERDURE_FUZZ_SEED", "20261116"))
EXAMPLES = int(os.environ.get("PERDURE_FUZZ_EXAMPLES", 120 if sampling.seed() is None else 60))

bounded = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
)
every_parser = pytest.mark.parametrize("name", TARGETS)


@pytest.fixture(autouse=True)
def say_the_seed() -> None:
    print(f"PERDURE_FUZZ_SEED={SEED}")  # noqa: T201 - shown with a failure


def test_every_parser_has_a_corpus() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert all(len(corpus(name)) >= 3 for name in TARGETS)


@every_parser
def test_hostile_texts(name: str) -> None:
    for text in corpus(name):
        feed(name, text)


@every_parser
def test_any_text(name: str) -> None:
    @seed(SEED)
    @bounded
    @given(st.text(max_size=80))
    def any_text(text: str) -> None:
        feed(name, text)

    any_text()


@every_parser
def test_any_heap_of_words(name: str) -> None:
    @seed(SEED)
    @bounded
    @given(st.lists(st.sampled_from(TARGETS[name].words), max_size=40), st.sampled_from(("", " ")))
    def any_heap(words: list[str], between: str) -> None:
        feed(name, between.join(words))

    any_heap()


@pytest.mark.sampled(2)
@every_parser
def test_any_damage_to_a_hostile_text(name: str) -> None:
    texts = [text[:3_000] for text in corpus(name)]

    @seed(SEED)
    @bounded
    @given(st.data())
    def any_damage(data: st.DataObject) -> None:
        text = data.draw(st.sampled_from(texts))
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 9)))
        feed(name, text[:start] + data.draw(st.sampled_from((*TARGETS[name].words, "", "\x00", "é"))) + text[end:])

    any_damage()
