"""Kinds, references, permissions, references inside data."""

from typing import Any

import pytest

from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS, find_kind
from perdure.dialects.story.resources.reference_grants import refuse
from perdure.dialects.story.resources.resource import Reference, Resource, ResourceIndex, namespace_of, read_reference
from perdure.dialects.story.values.references import malformed


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("story", "Story"),
        ("Stories", "Story"),
        ("stories.bubustack.io", "Story"),
        ("srun", "StoryRun"),
        ("storyruns.runs.bubustack.io", "StoryRun"),
        ("step", "StepRun"),
        ("etpl", "EngramTemplate"),
        ("tb", "TransportBinding"),
        ("stories.runs.bubustack.io", None),
        ("pods", None),
    ],
)
def test_kinds_are_found_by_every_word(word: str, kind: str | None) -> None:
    """STY-001"""
    assert find_kind(word) is (None if kind is None else RESOURCE_KINDS[kind])


def test_no_word_means_two_kinds() -> None:
    for kind in RESOURCE_KINDS.values():
        for word in (kind.name, kind.plural, *kind.short):
            assert [kind for kind in RESOURCE_KINDS.values() if kind.is_called(word)] == [kind]


def test_missing_namespace_is_default_and_global_kinds_have_none() -> None:
    """STY-001"""
    assert namespace_of({"kind": "Story", "metadata": {"name": "a"}}) == "default"
    assert namespace_of({"kind": "Story", "metadata": {"name": "a", "namespace": "x"}}) == "x"
    assert namespace_of({"kind": "EngramTemplate", "metadata": {"name": "a", "namespace": "x"}}) == ""


def test_references_are_names_or_objects() -> None:
    """STY-002"""
    assert read_reference("a", "n") == Reference("a", "n")
    assert read_reference({"name": "a", "namespace": "m", "version": "v1"}, "n") == Reference("a", "m", "v1")
    assert read_reference({"name": " "}, "n") is None
    assert read_reference(None, "n") is None


def test_shelves_lie_on_each_other() -> None:
    lower = ResourceIndex(
        [_grant("x", [], []), {"kind": "Engram", "metadata": {"name": "e"}, "spec": {"version": "1"}}]
    )
    upper = ResourceIndex([{"kind": "Engram", "metadata": {"name": "e"}, "spec": {"version": "2"}}], lower)

    resource = upper.find("Engram", "default", "e")
    assert resource is not None
    assert resource["spec"]["version"] == "2"
    assert len(list(upper.grants("x"))) == 1
    assert upper.find("Story", "default", "e") is None


def _grant(namespace: str, origins: list[Any], targets: list[Any]) -> Resource:
    spec = {"from": origins, "to": targets}
    return {"kind": "ReferenceGrant", "metadata": {"name": "g", "namespace": namespace}, "spec": spec}


FROM = {"group": "bubustack.io", "kind": "Story", "namespace": "here"}
TO = {"group": "bubustack.io", "kind": "Engram"}
NOT_PERMITTED = "cross-namespace EngramRef reference to there/e is not permitted (no ReferenceGrant)"


@pytest.mark.parametrize(
    ("policy", "grant", "refusal"),
    [
        ("allow", None, None),
        ("deny", _grant("there", [FROM], [TO]), "cross-namespace EngramRef references are not allowed"),
        ("grant", None, NOT_PERMITTED),
        ("grant", _grant("there", [FROM], [TO]), None),
        ("grant", _grant("there", [FROM], [{**TO, "name": "e"}]), None),
        ("grant", _grant("there", [FROM], [{**TO, "name": ""}]), None),
        ("grant", _grant("there", [FROM], [{**TO, "name": "f"}]), NOT_PERMITTED),
        ("grant", _grant("here", [FROM], [TO]), NOT_PERMITTED),
        ("grant", _grant("there", [{**FROM, "kind": "StoryRun"}], [TO]), NOT_PERMITTED),
        ("grant", _grant("there", [{**FROM, "namespace": "else"}], [TO]), NOT_PERMITTED),
        ("grant", _grant("there", [FROM], [{**TO, "group": "runs.bubustack.io"}]), NOT_PERMITTED),
    ],
)
def test_other_namespaces(policy: str, grant: Resource | None, refusal: str | None) -> None:
    """STY-250, STY-251"""
    known = ResourceIndex([] if grant is None else [grant])
    settings = Settings.read({"references.cross-namespace-policy": policy})

    assert refuse("Story", "here", "Engram", Reference("e", "there"), known, settings) == refusal
    assert refuse("Story", "here", "Engram", Reference("e", "here"), known, settings) is None


GOOD: list[Any] = [
    {"$bubuStorageRef": "runs/1.json", "$bubuStoragePath": "a.b[0].c[*]", "$bubuStorageContentType": "json"},
    {"$bubuSecretRef": "name:key"},
    {"$bubuConfigMapRef": "here/name:key"},
    {"$bubuSecretRef": {"name": "n", "key": "k", "namespace": "here", "format": "raw"}},
    {"plain": [1, {"x": None}]},
]
BAD: list[tuple[Any, str]] = [
    ({"$bubuStorageRef": " "}, "blank"),
    ({"$bubuStorageRef": 1}, "string"),
    ({"$bubuStorageRef": "a", "other": "b"}, "'other'"),
    ({"$bubuStorageRef": "a", "$bubuStoragePath": "a..b"}, "path"),
    ({"$bubuStorageRef": "a", "$bubuStorageSchema": 1}, "string"),
    ({"$bubuSecretRef": "name"}, "name:key"),
    ({"$bubuSecretRef": "name:"}, "name:key"),
    ({"$bubuSecretRef": "a:b", "x": 1}, "must contain only"),
    ({"$bubuSecretRef": 1}, "string or an object"),
    ({"$bubuConfigMapRef": {"name": "n"}}, "name and key"),
    ({"$bubuConfigMapRef": {"name": "n", "key": "k", "format": "xml"}}, "auto, json or raw"),
    ({"$bubuConfigMapRef": {"name": "n", "key": "k", "more": 1}}, "'more'"),
    ({"$bubuSecretRef": "other/name:key"}, "namespace 'other'"),
]


@pytest.mark.parametrize("value", GOOD)
def test_well_formed_references_in_data(value: Any) -> None:
    """STY-219, STY-220"""
    assert list(malformed({"x": [value]}, "here")) == []


@pytest.mark.parametrize(("value", "words"), BAD)
def test_malformed_references_in_data(value: Any, words: str) -> None:
    """STY-219, STY-220"""
    ((path, message),) = malformed({"x": [value]}, "here")

    assert path == ("x", 0)
    assert words in message
