"""What the published meta-schema refuses, the loader refuses too: tried on thousands of damaged documents."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from perdure.dialects.flow import Flow
from perdure.kernel.documents.problems import Severity
from perdure.kernel.json_values import jsontext
from tests.dialects.flow.suite import OWN, PUBLIC, needs_public_suite

VALUES: list[Any] = [None, True, 0, 1, -1, 1.5, "", "x", "{{ 1 }}", [], [1], ["*"], {}, {"a": 1}, "success", "Pass"]
NAMES = (
    *("input", "output", "assign", "next", "catch", "middleware", "call", "calls", "over", "completion", "concurrency"),
    *("cases", "default", "for", "until", "value", "result", "when", "with", "provider", "flow", "flows", "steps"),
    *("parameters", "comment", "onEntry", "onSuccess", "onFailure", "onAlways", "match", "codes", "types", "bogus"),
    *("retryable", "$schema", "successes", "wait", "code", "type", "message", "details", "previous"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inside:
        yield from places(item, (*path, step))


def damaged(document: Any, dice: random.Random) -> Any:
    """The document with one member removed, replaced or added somewhere."""
    document = copy.deepcopy(document)
    *parents, last = dice.choice([path for path in places(document) if path])
    holder = document
    for step in parents:
        holder = holder[step]
    match dice.randrange(3):
        case 0:
            del holder[last]
        case 1:
            holder[last] = copy.deepcopy(dice.choice(VALUES))
        case _:
            target = holder[last] if isinstance(holder[last], dict) else document
            target.setdefault(dice.choice(NAMES), copy.deepcopy(dice.choice(VALUES)))
    return document


@needs_public_suite
@pytest.mark.parametrize("seed", range(4))
def test_what_the_meta_schema_refuses_is_refused(seed: int) -> None:
    """MWL-014 MWL-022"""
    schema = json.loads((PUBLIC.parent / "schemas" / "flow" / "schema.json").read_text(encoding="utf-8"))
    published = jsonschema_rs.Draft202012Validator(schema, offline=True)
    definitions = [*PUBLIC.glob("*/definition.json"), *OWN.glob("*/definition.json")]
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(definitions)]
    dice, ours = random.Random(seed), Flow()

    for _ in range(700):
        document = damaged(dice.choice(documents), dice)
        if not published.is_valid(document):
            problems = ours.parse(jsontext.encode(document)).problems
            assert any(item.severity is Severity.ERROR for item in problems), document
