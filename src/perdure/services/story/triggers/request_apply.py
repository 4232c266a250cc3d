"""Applying requests: StoryRuns become runs, StoryTriggers are decided; everything else goes into the catalog.

All texts are judged before anything is stored or started.
"""

import secrets
from collections.abc import Sequence
from typing import cast

from perdure.dialects.story.document.validation import tidied
from perdure.dialects.story.language import Story
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.labels import REDRIVE, REDRIVE_FROM
from perdure.dialects.story.resources.resource import Resource, annotations_of, spec_of
from perdure.dialects.story.triggers.requests import read_start
from perdure.engine.catalog_entries import Change, Entry, Finding, Outcome
from perdure.engine.client import Client
from perdure.engine.random_ids import run_id_for_name
from perdure.kernel import jsontext
from perdure.kernel.errors import PerdureError
from perdure.kernel.lookups import ResourceKey
from perdure.kernel.validation import AppliedDocument
from perdure.services.story.triggers import counted_runs
from perdure.services.story.triggers.requests import LANGUAGE, Requests

RUN, TRIGGER = RESOURCE_KINDS["StoryRun"], RESOURCE_KINDS["StoryTrigger"]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no words, nothing that reads like something else


async def asks_for_runs(client: Client, texts: Sequence[AppliedDocument], namespace: str = "") -> bool:
    """Whether an engine is needed to apply these."""
    entries, _ = await client.catalog.declared(texts, namespace)
    return any(entry.kind.is_request for entry in entries)


async def apply(
    client: Client, texts: Sequence[AppliedDocument], namespace: str = ""
) -> tuple[list[Change], list[Finding]]:
    """As `Client.apply`, and what is asked for begins."""
    entries, _ = await client.catalog.declared(texts, namespace)
    wanted = [entry for entry in entries if entry.kind == RUN]
    if wanted and client.runtime is None:
        raise PerdureError("a StoryRun can only be applied with an engine", hint="Open `perdure.Engine` on the store.")
    changes, findings = await Client.apply(client, texts, namespace)
    requests = Requests(client)
    for change in changes:
        if change.kind == TRIGGER:
            await requests.settle(change.key)
    changes += [await _begin(client, requests, entry) for entry in wanted]
    return changes, findings


async def _begin(client: Client, requests: Requests, entry: Entry) -> Change:
    resource: Resource = tidied(jsontext.decode(entry.body))
    name = entry.key.name or _generated(resource)
    resource["metadata"] = {**resource["metadata"], "name": name}
    resource["metadata"].pop("generateName", None)
    found = await requests.find_run(resource)
    outcome = Outcome.CREATED
    if found is None:
        mark = await counted_runs.mark(client, resource)
        await requests.start(read_start(resource))
        if mark is not None:
            await counted_runs.count(client, mark)
    else:
        outcome = Outcome.UNCHANGED
    if await _steer(client, resource):
        outcome = Outcome.CREATED if found is None else Outcome.CONFIGURED
    return Change(entry.kind, ResourceKey(RUN.name, entry.key.namespace, name), outcome, 1, entry.file)


async def _steer(client: Client, resource: Resource) -> bool:
    """What may change of a run that is there: it is cancelled, or driven again (STY-049, STY-183)."""
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
    told = cast(Story, client.languages[LANGUAGE]).patched(execution, RUN.name, patch)
    if execution.state.cancel_requested:
        told = [one for one in told if type(one).__name__ != "Cancel"]
    for given in told:
        await client.tell(run, given)
    return bool(told)


def _generated(resource: Resource) -> str:
    ending = "".join(secrets.choice(_LETTERS) for _ in range(5))
    return f"{str(resource['metadata'].get('generateName'))[:58]}{ending}"
