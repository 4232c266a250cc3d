"""A recorded run as a scenario of `perdure test`: its document, its input, what tasks answered and what was sent to it.

    NAME.json|yaml           the document as it was pinned; NAME.resources.yaml: what it refers to
    NAME.recorded.json       what the tasks of the run, and of those below it, answered
    NAME.test.json           input, control messages at their times, and how the run ended

What was redacted in a capsule is redacted here. Control messages that scenarios do not have are named, and left out.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.private_files import write_private
from perdure.engine.runs import run_views
from perdure.kernel.codec import Turns
from perdure.kernel.errors import PerdureError
from perdure.kernel.events import RunStarted, TaskEnded, TaskScheduled
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Failed, Status, Succeeded
from perdure.kernel.pause import PAUSE, RESUME
from perdure.services.scenarios.replay import Replayer
from perdure.stores.protocol import RunFilter, RunRow


class ScenarioFiles(msgspec.Struct):
    """What was written, and what of the run could not be."""

    files: list[Path]
    left_out: list[str]


async def write_scenario(client: Client, run: RunId, folder: Path) -> ScenarioFiles:
    """Files of a scenario in the folder, which is created; those of the same name are replaced. Others cannot read
    them, because they have the input and the results of the run.
    """
    row = await client.find(run)
    dialect = run_views.dialect_of(client.languages, row.language)
    turns = await run_views.turns(client.store, dialect, run)
    start = turns[0][1][0]
    if not isinstance(start, RunStarted):
        raise PerdureError(f"the history of run {run} does not begin with its start")
    pinned = await client.store.program(row.program)
    assert pinned is not None, "a run keeps its document"
    document, resources = dialect.unpin(pinned[1])
    reader = Replayer(client, row.name, document)
    options = jsontext.decode(start.options)
    resources += [item["text"].encode() for item in options.pop("applied", ())]
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in row.name) or "run"
    paths = [folder / f"{name}.{'json' if document.lstrip()[:1] == b'{' else 'yaml'}"]
    contents: list[bytes] = [document]
    if resources:
        paths.append(folder / f"{name}.resources.yaml")
        contents.append(b"\n---\n".join(resources) + b"\n")
    paths.append(folder / f"{name}.recorded.json")
    contents.append(jsontext.encode([event async for event in _answers(client, reader, row, turns)]))
    actions, left_out = await _actions(reader, run, turns)
    test = {
        "document": paths[0].name,
        **({"apply": [paths[1].name]} if resources else {}),
        "recorded": f"{name}.recorded.json",
        "scenarios": [
            {
                "name": f"as run {run}",
                "input": await reader.value_of(run, start.input),
                **({"options": options} if options else {}),
                "namespace": row.namespace,
                "actions": actions,
                "to_end": row.status.is_final,
                "expect": await _expectation(client, row),
            }
        ],
    }
    paths.append(folder / f"{name}.test.json")
    contents.append(msgspec.json.format(jsontext.encode(test), indent=2) + b"\n")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, content in zip(paths, contents, strict=True):
        write_private(path, content)
    return ScenarioFiles(paths, left_out)


async def _answers(client: Client, reader: Replayer, row: RunRow, turns: Turns) -> AsyncIterator[dict[str, Any]]:
    """Each task as `history --raw` tells of it, with its whole result; also those of runs below."""
    paths: set[str] = set()
    for _, events in turns:
        for event in events:
            if isinstance(event, TaskScheduled):
                paths.add(key := f"{row.id}/{event.task}")
                yield {"event": "TaskScheduled", "task": key, "path": event.path}
            elif isinstance(event, TaskEnded) and (key := f"{row.id}/{event.task}") in paths:
                match await reader.whole_outcome(row.id, event.outcome):
                    case Succeeded(bytes() as value):
                        outcome = {"type": "Succeeded", "value": jsontext.decode(value)}
                    case Failed(code, message, retryable):
                        outcome = {"type": "Failed", "code": code, "message": message, "retryable": retryable}
                    case _:
                        continue
                yield {"event": "TaskEnded", "task": key, "outcome": outcome}
    for child in await client.search(RunFilter(parent=row.id)):
        dialect = run_views.dialect_of(client.languages, child.language)
        below = await run_views.turns(client.store, dialect, child.id)
        async for event_below in _answers(client, reader, child, below):
            yield event_below


async def _actions(reader: Replayer, run: RunId, turns: Turns) -> tuple[list[Any], list[str]]:
    actions: list[Any] = []
    left_out: list[str] = []
    async for action in reader.actions(run, turns):
        match action.verb, action.body:
            case "advance", int(span):
                actions.append({"advance": _span(span)})
            case "signal", body:
                actions.append({"signal": body})
            case "cancel", body:
                actions.append({"cancel": body["reason"]})
            case "steer", {"verb": "gate", "body": dict(body), "by": by}:
                verb = "approve" if body.get("state") == "Approved" else "reject"
                actions.append({verb: {"step": body.get("step"), "message": body.get("message") or "", "by": by}})
            case "steer", {"verb": "patch", "body": {"ctx": members}}:
                actions.append({"patch": members})
            case "steer", {"verb": "pause" | "resume" as verb}:
                actions.append({{PAUSE: "pause", RESUME: "unpause"}[verb]: ""})
            case "steer", {"verb": verb}:
                left_out.append(f"the control message {verb!r}")
    return actions, left_out


def _span(span: Instant) -> str:
    return f"{span // SECOND}s" if span % SECOND == 0 else f"{span / 1_000:.3f}ms"


async def _expectation(client: Client, row: RunRow) -> dict[str, Any]:
    """How the run ended; a result that names the run itself is not expected of another."""
    expectation: dict[str, Any] = {"status": row.status.value}
    if row.status is Status.SUCCEEDED:
        result = await client.handle(row.id).result()
        if row.id.encode() not in jsontext.encode(result):
            expectation["result"] = result
    return expectation
