"""Applying requests: StoryRuns become runs, StoryTriggers are decided; everything else goes into the catalog.

All texts are validated before anything is stored or started.
"""

import secrets
from collections.abc import Sequence
from typing import cast

from perdure.dialects.story.document.validation import tidied
from perdure.dialects.story.language import Story
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.labels import REDRIVE, REDRIVE_FROM
from perdure.dialects.story.resources.resource import Resource, annotations_of, spec_of
from perdure.dialects.story.triggers.requests import LANGUAGE, read_start
from perdure.engine.client import Client
from perdure.engine.random_ids import run_id_for_name
from perdure.engine.resources.catalog_changes import Change, Entry, Finding, Outcome
from perdure.engine.runs.message_sending import need_engine
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.services.story.triggers import counted_runs
from perdure.services.story.triggers.requests import Requests

RUN, TRIGGER = RESOURCE_KINDS["StoryRun"], RESOURCE_KINDS["StoryTrigger"]
_NAME_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"  # without vowels and easily confused characters


async def asks_for_runs(client: Client, texts: Sequence[AppliedDocument], namespace: str = "") -> bool:
    """Whether applying these texts needs an engine."""
    entries, _ = await client.catalog.declared(texts, namespace)
    return any(entry.kind.is_request for entry in entries)


async def apply(
    client: Client, texts: Sequence[AppliedDocument], namespace: str = ""
) -> tuple[list[Change], list[Finding]]:
    """Like `Client.apply`; requested runs are started as well."""
    entries, _ = await client.catalog.declared(texts, namespace)
    requested_runs = [entry for entry in entries if entry.kind == RUN]
    if requested_runs and client.runtime is None:
        raise PerdureError("a StoryRun can only be applied with an engine", hint="Open `perdure.Engine` on the store.")
    await need_engine(client)
    changes, findings = await Client.apply(client, texts, namespace)
    requests = Requests(client)
    for change in changes:
        if change.kind == TRIGGER:
            await requests.settle(change.key)
    changes += [await _start_run(client, requests, entry) for entry in requested_runs]
    return changes, findings


async def _start_run(client: Client, requests: Requests, entry: Entry) -> Change:
    resource: Resource = tidied(jsontext.decode(entry.body))
    name = entry.key.name or _generate_name(resource)
    resource["metadata"] = {**resource["metadata"], "name": name}
    resource["metadata"].pop("generateName", None)
    existing = await requests.find_run(resource)
    outcome = Outcome.CREATED
    if existing is None:
        mark = await counted_runs.mark(client, resource)
        await requests.start(read_start(resource))
        if mark is not None:
            await counted_runs.count(client, mark)
    else:
        outcome = Outcome.UNCHANGED
    if await _update_run(client, resource):
        outcome = Outcome.CREATED if existing is None else Outcome.CONFIGURED
    return Change(entry.kind, ResourceKey(RUN.name, entry.key.namespace, name), outcome, 1, entry.file)


async def _update_run(client: Client, resource: Resource) -> bool:
    """Apply the changes that an existing run accepts: cancel and redrive (STY-049, STY-183)."""
    patch: Resource = {}
    if spec_of(resource).get("cancelRequested"):
        patch["spec"] = {"cancelRequested": True}
    notes = {name: value for name, value in annotations_of(resource).items() if name in (REDRIVE, REDRIVE_FROM)}
    if notes:
        patch["metadata"] = {"annotations": notes}
    if not patch:
        return False
    metadata = resource["metadata"]
    run = run_id_for_name(LANGUAGE, metadata.get("namespace", "default"), metadata["name"])
    execution = await client.execution(run)
    messages = cast(Story, client.languages[LANGUAGE]).patched(execution, RUN.name, patch)
    if execution.state.cancel_requested:
        messages = [message for message in messages if type(message).__name__ != "Cancel"]
    for message in messages:
        await client.tell(run, message)
    return bool(messages)


def _generate_name(resource: Resource) -> str:
    ending = "".join(secrets.choice(_NAME_CHARACTERS) for _ in range(5))
    return f"{str(resource['metadata'].get('generateName'))[:58]}{ending}"
