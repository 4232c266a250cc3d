"""Another version of a document: what it means for open runs, and moving them to it."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import ShortTurns
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values.values import RunId
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Result, visible_run
from perdure.server.route_table import Route
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.errors import BadRequest
from perdure.views.runs.run_migration import (
    MOST_MOVED,
    MigrationPlan,
    NewDocument,
    impact,
    migrate,
    read_new_document,
    undo,
)

API = "/api/v1"
RunNames = Annotated[list[str], msgspec.Meta(max_length=MOST_MOVED)]


class ImpactBody(m.Body):
    document: m.Text
    apply: m.Documents = msgspec.field(default_factory=list)
    name: str = ""  # of the runs, where the document has no name of its own
    namespace: str | None = None
    mapping: dict[str, str | None] = msgspec.field(default_factory=dict)
    runs: RunNames = msgspec.field(default_factory=list)  # only these


class MigrationBody(m.Body):
    plan: MigrationPlan | None = None
    undo: RunNames = msgspec.field(default_factory=list)  # whose last move is undone
    dry_run: bool = False


class ImpactAnswer(msgspec.Struct):
    language: str
    namespace: str
    name: str
    document: str
    counts: dict[str, int]
    more: bool
    runs: list[dict[str, Any]]
    plan: MigrationPlan


class MigrationAnswer(msgspec.Struct):
    dry_run: bool
    counts: dict[str, int]
    runs: list[dict[str, str]]


async def judge_impact(call: ApiCall) -> Result:
    body: ImpactBody = call.body
    text, applied = await m.text_of(body.document), await m.applied_texts(body.apply)
    await call.check_documents([*applied, AppliedDocument("document", text.decode())])
    namespace = call.caller.place_of_documents(call.caller.meant_namespace(body.namespace))
    new = await _new_document(call, text, applied, namespace, body.name)
    runs = await _visible_runs(call, body.runs)
    return Answer(await impact(call.engine, new, body.mapping, runs))


async def _visible_runs(call: ApiCall, names: Sequence[str]) -> list[RunId]:
    runs, turns = [], ShortTurns()
    for name in dict.fromkeys(names):
        await turns.pause()
        runs.append((await visible_run(call.engine, call.caller, name)).id)
    return runs


async def _new_document(
    call: ApiCall, text: bytes, applied: list[AppliedDocument], namespace: str, name: str
) -> NewDocument:
    """By the policy for documents that come with requests; in a namespace that the caller sees."""
    new = await read_new_document(call.documents, "document", text, applied, namespace, name)
    call.caller.need_namespace(new.namespace)
    return new


async def migrate_runs(call: ApiCall) -> Result:
    body: MigrationBody = call.body
    if (body.plan is None) == (not body.undo):
        raise BadRequest("give a `plan`, or the runs whose move is to be undone in `undo`: one of both")

    async def acting(run: RunId) -> Client:
        return call.documents

    more: dict[str, Any] = {"dry_run": body.dry_run, "key": call.key, "by": call.caller.identity}
    if body.plan is None:
        runs = await _visible_runs(call, body.undo)
        call.audit(f"runs:migrate undo {len(runs)}")
        return Answer(await undo(call.documents, runs, acting, **more))
    plan = body.plan
    call.caller.need_namespace(plan.namespace)
    texts = [AppliedDocument("document", plan.document), *(AppliedDocument("apply", text) for text in plan.apply)]
    await call.check_documents(texts)
    call.audit(f"runs:migrate {plan.name} to {plan.to[:12]}", namespace=plan.namespace)
    return Answer(await migrate(call.documents, plan, acting, **more))


MIGRATION_ROUTES = (
    Route(
        "POST",
        f"{API}/impact",
        AccessRole.AUTHOR,
        judge_impact,
        "which open runs can continue with another version of their document",
        body=ImpactBody,
        answer=ImpactAnswer,
        is_expensive=True,
        refusals=(404,),
    ),
    Route(
        "POST",
        f"{API}/migrations",
        AccessRole.AUTHOR,
        migrate_runs,
        "move open runs to another version of their document, or undo that",
        body=MigrationBody,
        answer=MigrationAnswer,
        changes=True,
        is_expensive=True,
        refusals=(404,),
    ),
)
