"""The JSON Schemas of the languages agree with the readers: on every example, and on examples with a stray member."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from perdure.kernel.documents.problems import Severity
from perdure.wiring import languages

ROOT = Path(__file__).parents[2]
CONFORMANCE = ROOT.parent / "shared" / "conformance" / "mwl"
LANGUAGES = {name: language for name, language in languages().items() if language.document_schema() is not None}
VALIDATORS = {
    name: jsonschema_rs.Draft202012Validator(language.document_schema() or {}) for name, language in LANGUAGES.items()
}
STRAY = "stray_member"
JUDGED_ALONE = {"inputsSchema", "parameters", "annotations", "story"}
"""Schemas and Stories inside documents, and values that must be texts: the reader alone looks into them."""


def language_of(document: Any) -> str:
    if "$schema" in document:
        return "flow"
    return "playbook" if document.get("kind") == "Playbook" else "story"


def examples() -> Iterator[Any]:
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.suffix in (".json", ".yaml", ".yml") and not path.name.endswith(".test.yaml"):
            for document in yaml.safe_load_all(path.read_text("utf-8")):
                if isinstance(document, dict) and ("$schema" in document or "apiVersion" in document):
                    yield pytest.param(document, id=f"{path.stem}-{document.get('metadata', {}).get('name', '')}")


def faults(document: Any) -> set[tuple[str, str]]:
    """What the reader calls wrong, by code and message."""
    problems = LANGUAGES[language_of(document)].parse(json.dumps(document).encode()).problems
    return {(item.code, item.message) for item in problems if item.severity is Severity.ERROR}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        yield path
        for name, member in value.items():
            yield from places(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def test_schemas_are_valid_and_keep_their_names() -> None:
    for name, language in LANGUAGES.items():
        schema = language.document_schema()
        assert schema is not None and jsonschema_rs.meta.is_valid(schema)
        assert schema["$id"] == f"urn:perdure:schema:{name}"
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(LANGUAGES) == {"flow", "playbook", "story"}


@pytest.mark.parametrize("document", list(examples()))
def test_examples_fit_their_schema_and_stray_members_do_not(document: Any) -> None:
    """Where the reader refuses an unknown member, so does the schema; where it allows one, the schema does."""
    validator = VALIDATORS[language_of(document)]
    assert [error.message for error in validator.iter_errors(document)] == []

    known, disagreements = faults(document), []
    for path in places(document):
        if JUDGED_ALONE & set(path):
            continue
        changed = deepcopy(document)
        place = changed
        for step in path:
            place = place[step]
        place[STRAY] = {"action": "Return"} if path[-1:] == ("steps",) else 1
        new = faults(changed) - known
        if bool(new) == validator.is_valid(changed):
            disagreements.append((path, new, [error.message[-100:] for error in validator.iter_errors(changed)]))
    assert disagreements == []


@pytest.mark.skipif(not CONFORMANCE.is_dir(), reason="the official cases of MWL are not here (shared/conformance)")
def test_flows_of_the_official_cases_fit_the_schema() -> None:
    valid = 0
    for path in sorted(CONFORMANCE.rglob("*.json")):
        for document in _flows(json.loads(path.read_text("utf-8"))):
            if not faults(document):
                valid += 1
                assert [error.message for error in VALIDATORS["flow"].iter_errors(document)] == [], path
    assert valid > 50


def _flows(value: Any) -> Iterator[Any]:
    """Documents in a case, wherever they are in it."""
    if isinstance(value, dict):
        if "$schema" in value and "steps" in value:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _flows(item)
