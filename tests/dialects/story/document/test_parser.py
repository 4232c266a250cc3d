"""Parsing a text, and the bundle that a run is pinned to (STY-255)."""

import json
from typing import Any

import pytest
import yaml

from perdure.dialects.story import Story
from perdure.dialects.story.document.parser import declares, foresee, parse
from perdure.dialects.story.plan.bundle import bundle
from perdure.dialects.story.plan.program import open_bundle
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.resources.resource import Resource, ResourceIndex
from perdure.kernel.documents.lookups import ResourceKey, ResourcesInNamespace
from perdure.kernel.documents.validation import DeclaredResource, ValidationContext
from tests.dialects.story.document.resource_texts import engram, resource, story, template


def texts(*resources: Resource) -> bytes:
    written: str = yaml.safe_dump_all(resources)
    return written.encode()


def tale(name: str = "tale", *written: dict[str, Any], **spec: Any) -> Resource:
    return resource("Story", name, {"steps": list(written) or [{"name": "a", "ref": {"name": "e"}}], **spec})


def calls(name: str, *targets: str) -> Resource:
    steps = [
        {"name": f"s{n}", "type": "executeStory", "with": {"storyRef": {"name": target}}}
        for n, target in enumerate(targets)
    ]
    return tale(name, *steps)


def pinned(text: bytes, around: ValidationContext | None = None, **also: Any) -> Any:
    judged = parse(text, around, json.loads, **also)
    assert not judged.has_errors, judged.problems
    return judged.program


def test_a_bundle_holds_everything_a_run_needs() -> None:
    """STY-255: Engrams of branches too, and all that sub-Stories need in turn."""
    inner = tale(
        "inner", {"name": "a", "ref": "e"}, {"name": "x", "type": "executeStory", "with": {"storyRef": "outer"}}
    )
    branch = {"name": "b", "ref": {"name": "e", "version": "v1"}}
    outer = tale("outer", {"name": "p", "type": "parallel", "with": {"steps": [branch]}})
    outer["spec"]["finally"] = [{"name": "x", "type": "executeStory", "with": {"storyRef": {"name": "inner"}}}]
    known = ResourceIndex([engram(version="v1"), template(), inner, outer])

    held = json.loads(bundle(outer, known, DEFAULTS))

    assert set(held) == {"story", "engrams", "templates", "stories", "grants", "settings"}
    assert held["story"] == outer
    assert held["engrams"] == {"default/e": engram(version="v1")}
    assert held["templates"] == {"t": template()}
    assert set(held["stories"]) == {"default/inner"}
    assert held["stories"]["default/inner"]["spec"]["steps"][1]["with"] == {"storyRef": {"name": "outer"}}
    assert held["grants"] == []
    assert held["settings"] == {}


def test_what_is_missing_is_absent() -> None:
    """STY-255: the run will wait for it."""
    held = json.loads(bundle(calls("outer", "zzz"), ResourceIndex([]), DEFAULTS))

    assert (held["engrams"], held["templates"], held["stories"]) == ({}, {}, {})


def test_a_bundle_of_a_sub_story_comes_out_of_the_bundle_around_it() -> None:
    """STY-255"""
    known = ResourceIndex([engram(), template(), tale("inner"), calls("outer", "inner")])
    outer = bundle(calls("outer", "inner"), known, DEFAULTS)

    inside = open_bundle(json.loads(outer))
    inner = inside.find("Story", "default", "inner")

    assert inner is not None
    assert bundle(inner, inside, DEFAULTS) == bundle(tale("inner"), known, DEFAULTS)


def test_equal_resources_give_equal_bytes_whatever_was_stored_with_them() -> None:
    first, other = tale(), tale()
    other["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "7"}
    other["status"] = {"phase": "x"}
    other["spec"]["steps"] = [{"ref": "e", "if": None, "name": "a"}]

    assert bundle(first, ResourceIndex([]), DEFAULTS) == bundle(other, ResourceIndex([]), DEFAULTS)


def test_grants_and_settings_come_along_where_they_count() -> None:
    """STY-255"""
    spec = {"from": [{"group": "x", "kind": "y", "namespace": "z"}], "to": [{"group": "x", "kind": "y"}]}
    known = ResourceIndex(
        [resource("ReferenceGrant", "g", spec, "far"), resource("ReferenceGrant", "h", spec, "other")]
    )
    far = tale("tale", {"name": "a", "ref": {"name": "e", "namespace": "far"}})
    settings = Settings.read({"references.cross-namespace-policy": "grant", "retry.max-retries": 3})

    held = json.loads(bundle(far, known, settings))

    assert [grant["metadata"]["name"] for grant in held["grants"]] == ["g"]
    assert held["settings"] == {"references.cross-namespace-policy": "grant", "retry.max-retries": 3}
    assert Settings.read(held["settings"]) == settings


def test_a_text_is_parsed_to_the_program_of_its_bundle() -> None:
    pins = pinned(texts(tale(), engram(), template()))

    assert pins["story"]["metadata"]["name"] == "tale"
    assert set(pins["engrams"]) == {"default/e"}


def test_problems_leave_no_program() -> None:
    judged = parse(story("steps: [{name: a}]").encode(), None, json.loads)

    assert judged.program is None
    assert judged.has_errors


@pytest.mark.parametrize(
    ("resources", "chosen", "name"),
    [
        ((calls("outer", "inner"), tale("inner")), "", "outer"),
        ((tale("inner"), calls("outer", "inner")), "", "outer"),
        ((tale("one"), tale("two")), "", "one"),
        ((tale("one"), tale("two")), "two", "two"),
        ((tale("one"), tale("two")), "default/two", "two"),
        ((calls("one", "two"), calls("two", "one")), "", "one"),
    ],
)
def test_which_of_several_stories_is_meant(resources: tuple[Resource, ...], chosen: str, name: str) -> None:
    """The one that is named, else the one that no other starts, else the first."""
    assert pinned(texts(*resources), ValidationContext(chosen=chosen))["story"]["metadata"]["name"] == name


def test_a_name_that_no_story_has_is_a_problem() -> None:
    judged = parse(texts(tale("one")), ValidationContext(chosen="on"), json.loads)

    assert judged.program is None or judged.has_errors
    assert [problem.message for problem in judged.problems if problem.code == "ValidationFailed"] == [
        "there is no Story 'on' in this text; did you mean 'one'?"
    ]


def test_a_text_without_a_story_is_in_order_but_nothing_to_run() -> None:
    judged = parse(texts(engram(), template()), None, json.loads)

    assert (judged.program, judged.problems) == (None, [])


def test_surroundings_are_asked_and_then_what_loaded_code_stands_for() -> None:
    """STY-009: what is applied comes before what code brings along."""
    beside = ValidationContext([DeclaredResource("Engram", "default", "e", engram(version="v9"))], answers=Answered())
    provided = ResourceIndex([engram(version="v1"), template()])

    judged = parse(texts(tale()), beside, json.loads, provided.find, lambda name, version: False)
    assert judged.program is not None

    assert judged.program["engrams"]["default/e"]["spec"]["version"] == "v9"
    assert judged.program["templates"] == {"t": template()}
    assert [problem.code for problem in judged.problems] == ["TemplateNotFound"]


class Answered(dict[Any, Any]):
    """A catalog that holds nothing."""

    def __contains__(self, question: object) -> bool:
        return True

    def __getitem__(self, question: Any) -> Any:
        return [] if isinstance(question, ResourcesInNamespace) else None


def test_what_is_not_at_hand_is_asked_for() -> None:
    around = ValidationContext()

    parse(texts(tale()), around, json.loads)

    assert ResourceKey("Engram", "default", "e") in around.unanswered


@pytest.mark.parametrize("width", [2, 300])
def test_what_many_branches_share_is_looked_for_once(width: int) -> None:
    """Invariant 25: a judgement looks an Engram up as often for three hundred branches as for two."""
    asked: list[tuple[str, str, str]] = []

    def provided(kind: str, namespace: str, name: str) -> Resource | None:
        asked.append((kind, namespace, name))
        return {"Engram": engram(), "EngramTemplate": template()}[kind]

    branches = [{"name": f"b{number}", "ref": {"name": "e"}} for number in range(width)]
    text = texts(tale("wide", {"name": "p", "type": "parallel", "with": {"steps": branches}}))
    around = ValidationContext()
    foresee(text, around, provided)
    read = around.reading
    pinned(text, around, provided=provided)

    assert around.reading is read and len(read) == 1, "the text is read once"
    assert len(asked) == 6, "to foresee, to judge and to bundle: the Engram and its template each"


def test_a_text_declares_its_resources() -> None:
    text = texts(tale(pattern="realtime"), template(), {"kind": "Pod"}, resource("Engram", "", {}))

    assert [
        (declaration.kind, declaration.namespace, declaration.name, declaration.line) for declaration in declares(text)
    ] == [
        ("Story", "default", "tale", 1),
        ("EngramTemplate", "", "t", 12),
    ]
    assert declares(text)[0].body["spec"]["pattern"] == "streaming"
    assert declares(b"{{") == []


def test_starts_under_one_token_are_the_same_when_story_and_version_are() -> None:
    """STY-148, STY-153"""
    first = parse(texts(tale(version="v1")), None, json.loads)
    other = parse(texts(tale(version="v1"), engram(), template()), None, json.loads)
    later = parse(texts(tale(version="v2")), None, json.loads)

    assert first.identity == other.identity
    assert first.pinned != other.pinned
    assert first.identity != later.identity


def test_stories_are_recognized_by_their_group() -> None:
    assert Story().recognizes(texts(tale()))
    assert not Story().recognizes(b"apiVersion: noetl.io/v10")
