"""The reference page tells the kinds and the settings there are, and its example is in order."""

import re
from dataclasses import fields
from pathlib import Path
from textwrap import indent

import pytest

from perdure.dialects.story.document import validate
from perdure.dialects.story.plan.settings import DEFAULTS, Queue, Settings
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "story.md").read_text()


def test_every_kind_is_listed_with_its_words() -> None:
    for kind in RESOURCE_KINDS.values():
        words = ", ".join(f"`{word}`" for word in (kind.plural, *kind.short))
        assert f"| `{kind.name}` | `{kind.api_version}` | {words} |" in PAGE
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind.name}` |"))
        assert ("; global" in row) is kind.is_global


def test_every_setting_is_listed_with_its_default() -> None:
    """STY-017, STY-018"""
    section = PAGE.partition("## Settings")[2]
    listed = dict(re.findall(r"^\| `([a-zA-Z]+\.[\w.-]+)` \| ([^,;|]+?)(?:[,;][^|]*)? \|$", section, re.MULTILINE))

    rows = {}
    for field in fields(Settings):
        if "key" in field.metadata:
            value = getattr(DEFAULTS, field.name)
            rows[field.metadata["key"]] = (
                str(value).lower() if isinstance(value, bool) else "file" if isinstance(value, tuple) else str(value)
            )
    queue = {f"storyrun.queue.NAME.{field.name.replace('_', '-')}" for field in fields(Queue)}
    assert {key: value for key, value in listed.items() if key not in queue} == rows
    assert queue <= set(re.findall(r"`(storyrun\.queue[^`]+)`", PAGE))


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_is_in_order() -> None:
    judged = validate(EXAMPLES[0].encode())

    assert [resource["kind"] for resource in judged.resources] == ["Story", "Engram"]
    assert {problem.message for problem in judged.problems if problem.severity == "error"} <= {
        "EngramTemplate 'http-request' not found",
        "step 'build': EngramTemplate 'http-request' of Engram 'default/builder' not found",
    }


@pytest.mark.parametrize("steps", EXAMPLES[1:])
def test_examples_of_steps_are_in_order(steps: str) -> None:
    story = (
        f"apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {{name: s}}\nspec:\n  steps:\n{indent(steps, '  ')}"
    )

    assert [problem.message for problem in validate(story.encode()).problems if problem.severity == "error"] == []
