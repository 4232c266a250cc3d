"""Where the code of an EngramTemplate is (STY-009): in a loaded function, or where its annotations say.

    perdure/command      a JSON list of arguments, or one string for the shell; perdure/cwd, perdure/env (a JSON
    object)
    perdure/url          an HTTP endpoint; perdure/headers (a JSON object)
    perdure/container    "true": the template's own `spec.image`; perdure/command, perdure/args, perdure/env

Values in `env` and `headers` may be references to secrets; the worker resolves them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from perdure.dialects.story.resources.resource import annotations_of, spec_of
from perdure.dialects.story.values.engram_contract import provider_of
from perdure.kernel.json_values import jsontext

COMMAND, ENDPOINT, CONTAINER = "engram.command", "engram.http", "engram.container"
"""Providers that execute the member `run` of their arguments."""

CODE = "EngramCode"
"""The kind of a pseudo resource `<template>@<version>`: a step waits for it while no loaded code can execute the
template.
"""

POOL = "perdure.dev/pool"
"""The annotation of an Engram, or of its template, that names the pool of workers elsewhere for its steps."""

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


def pool_of(engram: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """The pool that does its steps; an Engram takes precedence over its template. Empty: none is named."""
    named = (annotations_of(resource).get(POOL) for resource in (engram, template))
    return next((pool.strip() for pool in named if isinstance(pool, str) and pool.strip()), "")


def provider_for(template: Mapping[str, Any], name: str, version: str) -> str:
    """The provider that executes the steps of a template."""
    return place_of(template) or provider_of(name, version)


def place_of(template: Mapping[str, Any]) -> str | None:
    """The provider that the annotations choose, or None."""
    annotations = _annotations(template)
    if annotations.get("container", "").strip().lower() == "true":
        return CONTAINER
    if annotations.get("command", "").strip():
        return COMMAND
    return ENDPOINT if annotations.get("url", "").strip() else None


def run_of(template: Mapping[str, Any]) -> dict[str, Any] | None:
    """The member `run` of the task's arguments, if the annotations choose a provider."""
    annotations, place = _annotations(template), place_of(template)
    if place is None:
        return None
    if place == ENDPOINT:
        return {"url": annotations["url"].strip(), "headers": _object(annotations.get("headers"))}
    if place == COMMAND:
        run = {"argv": _words(annotations["command"]), "env": _object(annotations.get("env"))}
        return {**run, "cwd": annotations["cwd"]} if annotations.get("cwd") else run
    container = {"image": spec_of(template).get("image"), "env": _object(annotations.get("env"))}
    return {
        **container,
        **{name: _listed(annotations[name]) for name in ("command", "args") if annotations.get(name, "").strip()},
    }


def problems(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Problems of the annotations: pairs of an annotation's name and a message."""
    annotations, place = _annotations(template), place_of(template)
    for name in annotations:
        if name not in _KNOWN:
            yield name, f"unknown annotation {PREFIX}{name} (expected one of {', '.join(sorted(_KNOWN))})"
        elif place is None:
            yield name, f"{PREFIX}{name} has no effect without an annotation that says where the code is. {WAYS}"
        elif name not in _MEMBERS[place]:
            yield name, f"{PREFIX}{name} cannot be combined with {_TITLES[place]}"
    for name in ("env", "headers"):
        if name in annotations and not isinstance(_read(annotations[name]), dict):
            yield name, f"{PREFIX}{name} must be a JSON object"
    for name in ("command", "args"):
        if (
            name in annotations
            and annotations[name].lstrip().startswith("[")
            and not _is_words(_read(annotations[name]))
        ):
            yield name, f"{PREFIX}{name} must be a JSON list of strings"
    if "container" in annotations and annotations["container"].strip().lower() not in ("true", "false"):
        yield "container", f'{PREFIX}container must be "true" or "false"'
    if place == CONTAINER and not spec_of(template).get("image"):
        yield "container", f"{PREFIX}container runs spec.image, which is not set"
    if "url" in annotations and not annotations["url"].strip().startswith(("http://", "https://")):
        yield "url", f"{PREFIX}url must begin with http:// or https://"


_TITLES = {COMMAND: "perdure/command", ENDPOINT: "perdure/url", CONTAINER: "perdure/container"}


def _annotations(template: Mapping[str, Any]) -> dict[str, str]:
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
    value = None if text is None else _read(text)
    return value if isinstance(value, dict) else {}


def _is_words(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _words(text: str) -> list[str] | str:
    words = _read(text) if text.lstrip().startswith("[") else None
    return list(words) if _is_words(words) else text


def _listed(text: str) -> list[str]:
    words = _words(text)
    return [words] if isinstance(words, str) else words
