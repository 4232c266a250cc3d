"""Time and random numbers come from the host, and are absent where a template must be repeatable (STY-202)."""

from datetime import UTC, datetime
from itertools import cycle

import pytest

from perdure.expressions.gotemplate import RUNTIME, Ambient, Environment, EvaluationFault, compile_template

HOST = Environment(library=RUNTIME)


def ambient() -> Ambient:
    draws = cycle([0.0, 0.5, 0.999999])
    return Ambient(datetime(2024, 2, 29, 12, 30, tzinfo=UTC), lambda: next(draws))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{{ now | date "2006-01-02 15:04" }}', "2024-02-29 12:30"),
        ('{{ now | date_modify "-24h" | htmlDate }}', "2024-02-28"),
        ("{{ now }}", "2024-02-29 12:30:00 +0000 UTC"),
        ("{{ now | unixEpoch }}", "1709209800"),
        ("{{ randAlpha 3 }}", "aAZ"),
        ("{{ randAlphaNum 3 }}", "aF9"),
        ("{{ randNumeric 4 }}", "0590"),
        ("{{ randAscii 3 }}", " O~"),
        ("{{ randInt 10 20 }}{{ randInt 10 20 }}{{ randInt 10 20 }}", "101519"),
        ("{{ uuidv4 }}", "0080ff00-80ff-4080-bf00-80ff0080ff00"),
    ],
)
def test_the_host_says_what_time_it_is_and_what_chance_is(text: str, result: str) -> None:
    assert compile_template(text, HOST).render({}, ambient()) == result


@pytest.mark.parametrize("text", ["{{ now }}", "{{ uuidv4 }}", "{{ randInt 1 2 }}", "{{ randAlpha 2 }}"])
def test_without_a_host_there_is_neither(text: str) -> None:
    with pytest.raises(EvaluationFault, match="time and randomness are not available here"):
        compile_template(text, HOST).render({})


def test_an_empty_range_has_no_random_integer() -> None:
    with pytest.raises(EvaluationFault, match="there is no integer from 2 up to 2"):
        compile_template("{{ randInt 2 2 }}", HOST).render({}, ambient())
