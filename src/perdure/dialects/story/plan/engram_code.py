"""Where the code of an EngramTemplate is (STY-009): a function that was loaded, or what its annotations say.

    perdure/command      a JSON list of words, or one text for the shell; perdure/cwd, perdure/env (a JSON object)
    perdure/url          an HTTP endpoint; perdure/headers (a JSON object)
    perdure/container    "true": the template's own `spec.image`; perdure/command, perdure/args, perdure/env

Values in `env` and `headers` may be references to secrets; the worker fills them in.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from perdure.dialects.story.resources.resource import annotations_of, spec_of
from perdure.dialects.story.values.engram_contract import provider_of
from perdure.kernel import jsontext

COMMAND, ENDPOINT, CONTAINER = "engram.command", "engram.http", "engram.container"
"""Providers that do what `run` among their arguments says."""

CODE = "EngramCode"
"""What a step waits for that nothing here can execute: `<template>@<version>`, as if it were a resource."""

PREFIX = "perdure/"
_MEMBERS = {
    COMMAND: ("command", "cwd", "env"),
    ENDPOINT: ("url", "headers"),
    CONTAINER: ("container", "command", "args", "env"),
}
_KNOWN = frozenset(name for names in _MEMBERS.values() for name in names)

WAYS = (
    "Load a function with --load, or annotate the template with perdure/command, perdure/url or "
    'perdure/container: "true" (which runs spec.image).'
)


def provider_for(template: Mapping[str, Any], name: str, version: str) -> str:
    """Who executes the steps of a template."""
    return place_of(template) or provider_of(name, version)


def place_of(template: Mapping[str, Any]) -> str | None:
    """The provider that the annotations choose; None when they choose none."""
    said = _said(template)
    if said.get("container", "").strip().lower() == "true":
        return CONTAINER
    if said.get("command", "").strip():
        return COMMAND
    return ENDPOINT if said.get("url", "").strip() else None


def run_of(template: Mapping[str, Any]) -> dict[str, Any] | None:
    """The member `run` of the task's arguments, where the code is elsewhere."""
    said, place = _said(template), place_of(template)
    if place is None:
        return None
    if place == ENDPOINT:
        return {"url": said["url"].strip(), "headers": _object(said.get("headers"))}
    if place == COMMAND:
        run = {"argv": _words(said["command"]), "env": _object(said.get("env"))}
        return {**run, "cwd": said["cwd"]} if said.get("cwd") else run
    found = {"image": spec_of(template).get("image"), "env": _object(said.get("env"))}
    return {**found, **{name: _listed(said[name]) for name in ("command", "args") if said.get(name, "").strip()}}


def problems(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the annotations: the annotation's name, and what."""
    said, place = _said(template), place_of(template)
    for name in said:
        if name not in _KNOWN:
            yield name, f"there is no annotation {PREFIX}{name}; known are {', '.join(sorted(_KNOWN))}"
        elif place is None:
            yield name, f"{PREFIX}{name} says nothing alone: where is the code? {WAYS}"
        elif name not in _MEMBERS[place]:
            yield name, f"{PREFIX}{name} does not go with {_TITLES[place]}"
    for name in ("env", "headers"):
        if name in said and not isinstance(_read(said[name]), dict):
            yield name, f"{PREFIX}{name} must be a JSON object"
    for name in ("command", "args"):
        if name in said and said[name].lstrip().startswith("[") and not _is_words(_read(said[name])):
            yield name, f"{PREFIX}{name} must be a JSON list of texts"
    if "container" in said and said["container"].strip().lower() not in ("true", "false"):
        yield "container", f'{PREFIX}container must be "true" or "false"'
    if place == CONTAINER and not spec_of(template).get("image"):
        yield "container", f"{PREFIX}container runs spec.image, and there is none"
    if "url" in said and not said["url"].strip().startswith(("http://", "https://")):
        yield "url", f"{PREFIX}url must begin with http:// or https://"


_TITLES = {COMMAND: "perdure/command", ENDPOINT: "perdure/url", CONTAINER: "perdure/container"}


def _said(template: Mapping[str, Any]) -> dict[str, str]:
    notes = annotations_of(template)
    return {
        name.removeprefix(PREFIX): value
        for name, value in notes.items()
        if name.startswith(PREFIX) and isinstance(value, str)
    }


def _read(text: str) -> Any:
    try:
        return jsontext.read_strict(text.encode())
    except jsontext.NotJson:
        return None


def _object(text: str | None) -> dict[str, Any]:
    found = None if text is None else _read(text)
    return found if isinstance(found, dict) else {}


def _is_words(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _words(text: str) -> list[str] | str:
    found = _read(text) if text.lstrip().startswith("[") else None
    return list(found) if _is_words(found) else text


def _listed(text: str) -> list[str]:
    found = _words(text)
    return [found] if isinstance(found, str) else found
