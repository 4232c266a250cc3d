"""Data name no secret: not by standing where the document has a reference among the variables of a template."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.dialects.story.values.references import places
from tests.cli.commandline import CommandLine

STORY = """
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: answer, annotations: {perdure/command: '["cat", "answer.json"]'}}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: keep, annotations: {perdure/command: '["sh", "-c", "cat > given.json; echo {}"]'}}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: answer}
spec: {templateRef: {name: answer}}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: keep}
spec: {templateRef: {name: keep}, with: ENGRAM}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - {name: first, ref: {name: answer}}
    - {name: second, ref: {name: keep}, needs: [first], with: STEP}
"""
TEMPLATE = "$bubuTemplate: steps.first.output.given, $bubuTemplateVars: {v: {$bubuSecretRef: 'shop:public'}}"


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def test_an_answer_does_not_name_a_secret_at_the_place_of_one_that_a_template_is_given(perdure: CommandLine) -> None:
    """The Engram's `with`, which nobody has checked together with the step that gives its data."""
    secret = f"k-{secrets.token_hex(12)}"
    value = {"$bubuTemplateVars": {"v": {"$bubuSecretRef": "shop:admin"}}}
    story = STORY.replace("ENGRAM", f"{{x: {{{TEMPLATE}}}}}").replace("STEP", "{y: 1}")
    (perdure.folder / "story.yaml").write_text(story)
    (perdure.folder / "answer.json").write_text(json.dumps({"given": value}))

    perdure("run", "story.yaml", PERDURE_SECRET_shop_admin=secret, PERDURE_SECRET_shop_public="p" * 20)

    output = (perdure.folder / "given.json").read_text()
    assert secret not in output
    assert json.loads(output)["inputs"]["x"] == value


def test_a_reference_among_the_variables_of_a_template_is_refused(perdure: CommandLine) -> None:
    story = STORY.replace("ENGRAM", "{}").replace("STEP", f"{{x: {{{TEMPLATE}}}}}")
    (perdure.folder / "story.yaml").write_text(story)

    done = perdure("check", "story.yaml", code=7)

    assert "$bubuSecretRef is not allowed here: templates cannot read secrets" in done.out


def test_places_beside_a_template_count() -> None:
    reference = {"$bubuSecretRef": "shop:public"}
    document = {
        "a": [reference, {"$bubuTemplate": "x", "$bubuTemplateVars": {"v": reference}}],
        "b": {"c": reference, "d": "{{ x }}"},
    }

    assert list(places(document)) == [("a", 0), ("b", "c")]
    assert len(list(places(document, is_written=False))) == 3
