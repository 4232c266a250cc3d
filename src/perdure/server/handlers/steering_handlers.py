"""Runs are steered: each verb sends a control message, and answers with what became of it."""

from collections.abc import Awaitable
from hashlib import sha256
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.runs.effects import settle
from perdure.engine.runs.fork_points import ForkChanges, fork
from perdure.engine.runs.message_sending import SendResult
from perdure.engine.runs.retention import delete_run as delete
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.pause import PAUSE, RESUME
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Result, visible_run
from perdure.server.request_reading import idempotency_key
from perdure.stores.access import RequestKey, RequestKeyRow, RequestKeyTaken
from perdure.views.access import steer
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import NotReady
from perdure.views.errors import BadRequest
from perdure.views.resources.resource_changes import ResourcePatch
from perdure.views.resources.resource_changes import patch_run as patch_resource
from perdure.views.runs.batch_steering import Selection, Verb, plan, steer_piece
from perdure.views.runs.history_events import event_at

BATCH_VERBS = {"resume": Verb.UNPAUSE}


def _sent(call: ApiCall, result: SendResult) -> Answer:
    """200 once it is decided; 202 while its owner has not read it."""
    body = {"id": call.run.id, "pending": not result.is_decided, **_result_json(result)}
    return Answer(body, 200 if result.is_decided else 202)


def _result_json(result: SendResult) -> dict[str, Any]:
    return {
        "decided": result.is_decided,
        "live": result.is_live,
        "new": result.is_new,
        "remarks": list(result.remarks),
    }


def _key(call: ApiCall, key: str | None) -> str | None:
    """A key in the body counts; else the Idempotency-Key, which the run keeps."""
    return key or call.key


async def cancel_run(call: ApiCall) -> Result:
    body: m.CancelBody = call.body
    return _sent(
        call, await call.engine.cancel(call.run.id, body.reason, by=call.caller.identity, cascade=body.cascade)
    )


async def signal_run(call: ApiCall) -> Result:
    body: m.SignalBody = call.body
    key = _key(call, body.key)
    name = call.path["name"]
    return _sent(call, await call.engine.signal(call.run.id, name, body.value, key=key, by=call.caller.identity))


async def decide_gate(call: ApiCall) -> Result:
    """Who decided is who the token is; a name in the body counts nowhere, and stands behind the message."""
    body: m.GateBody = call.body
    name = body.by or body.updatedBy or ""
    message = f"{body.message} (givenBy: {name})".strip() if name and name != call.caller.identity else body.message
    decision = {"step": call.path["step"], "state": body.state, "message": message, "by": call.caller.identity}
    key = _key(call, body.key)
    return _sent(call, await call.engine.steer(call.run.id, "gate", decision, key=key, by=call.caller.identity))


async def patch_run(call: ApiCall) -> Result:
    body: m.PatchBody = call.body
    members = {**body.ctx, **body.set}
    if body.kind is not None or body.patch is not None:
        if members or body.kind is None or body.patch is None:
            raise BadRequest("give `kind` and `patch`, or members of `ctx`")
        patch = ResourcePatch(body.kind, body.patch, body.subresource)
        return _sent(call, await patch_resource(call.engine, call.run.id, patch, call.caller.identity))
    if not members:
        raise BadRequest("nothing to set: give members of `ctx`, or `set` with dotted names")
    about = {"ctx": members, "reason": body.reason}
    key = _key(call, body.key)
    return _sent(call, await steer(call.engine, call.run.id, "patch", about, key=key, by=call.caller.identity))


async def redrive_run(call: ApiCall) -> Result:
    body: m.RedriveBody = call.body
    key = _key(call, body.key)
    return _sent(call, await call.engine.handle(call.run.id).redrive(body.step, key=key, by=call.caller.identity))


async def fork_run(call: ApiCall) -> Result:
    body: m.ForkBody = call.body
    if (body.input is not msgspec.UNSET or body.document is not None) and not body.at_failure:
        raise BadRequest("`input` and `document` are for a fork with `at_failure`")
    changes, engine = ForkChanges(input=body.input) if body.at_failure else None, call.engine
    if body.document is not None:
        call.caller.need(AccessRole.AUTHOR)
        text = await m.text_of(body.document)
        await call.check_documents([AppliedDocument("document", text.decode())])
        changes, engine = ForkChanges(text, input=body.input), call.documents
    at = None if body.at is None else await event_at(call.engine, call.run.id, str(body.at))
    run = await fork(engine, call.run.id, at, changes, request=call.start_request(call.run.namespace))
    return Answer({"id": run, "source": call.run.id}, 201, {"Location": f"/api/v1/runs/{run}"})


async def pause_run(call: ApiCall) -> Result:
    return await _pause(call, PAUSE)


async def resume_run(call: ApiCall) -> Result:
    return await _pause(call, RESUME)


async def _pause(call: ApiCall, verb: str) -> Result:
    body: m.PauseBody = call.body
    reason, key = {"reason": body.reason}, _key(call, body.key)
    return _sent(call, await call.engine.steer(call.run.id, verb, reason, key=key, by=call.caller.identity))


async def settle_effect(call: ApiCall) -> Result:
    body: m.SettleBody = call.body
    result = jsontext.encode(body.result) if body.done else None
    key = _key(call, body.key)
    sent = await settle(call.engine, call.run.id, call.path["key"], result, key=key, by=call.caller.identity)
    return _sent(call, sent)


async def delete_run(call: ApiCall) -> Result:
    result = await delete(call.engine, call.run.id)
    return Answer({"deleted": [call.run.id]}, 200 if result.is_decided else 202)


async def steer_batch(call: ApiCall) -> Result:
    body: m.BatchBody = call.body
    verb = BATCH_VERBS.get(body.verb) or Verb(body.verb)
    if verb is Verb.SIGNAL and not body.signal:
        raise BadRequest("a batch of signals needs `signal`, the name of the signal")
    asked, parent = m.run_filter(body.filter), body.filter.parent
    selection = Selection(
        statuses=asked.statuses,
        name=asked.name,
        language=asked.language,
        labels=asked.labels,
        created_after=asked.created_after,
        created_before=asked.created_before,
        parent=None if parent is None else (await visible_run(call.engine, call.caller, parent)).id,
        text=body.filter.q,
        namespaces=[body.filter.namespace] if body.filter.namespace else [],
        within=call.caller.narrowed(body.filter.namespace),
        with_children=body.filter.children,
        everything=body.filter.all,
    )
    call.audit(
        f"runs:{body.verb} {jsontext.encode(_plain(body.filter)).decode()}", namespace=body.filter.namespace or ""
    )
    if body.dry_run:
        answer = await plan(call.engine, selection, verb)
    else:
        await _keep_key(call)
        try:
            answer = await steer_piece(call.engine, selection, verb, _send(call, verb), cursor=body.cursor)
        except RequestKeyTaken:
            raise NotReady("another request under the same Idempotency-Key is under way") from None
    steered = [{"id": run, **_result_json(sent)} for run, sent in answer.steered if sent is not None]
    return Answer({**answer.plain(), "steered": steered})


async def _keep_key(call: ApiCall) -> None:
    """Another batch under the key is refused, also when no run that keeps the key is left; its next piece is not."""
    key = idempotency_key(call.headers)
    if key is None or call.act is None:
        return
    body: m.BatchBody = call.body
    members = {name: getattr(body, name) for name in body.__struct_fields__ if name not in ("filter", "cursor")}
    asked = sha256(jsontext.canonical(["runs:batch", members, _plain(body.filter)])).digest()
    store, who = call.server.engine.store, call.caller.owner_of_keys
    known = await store.request_key(who, key)
    if known is None:
        call.act.key = RequestKey(who, key, RequestKeyRow(asked, call.engine.clock.now()))
    elif known.digest != asked:
        raise Conflict("the Idempotency-Key was used for another request", hint="Use another key.")


def _plain(filter: m.BatchFilter) -> dict[str, Any]:
    return {name: value for name in filter.__struct_fields__ if (value := getattr(filter, name))}


def _send(call: ApiCall, verb: Verb) -> Any:
    """What is sent to each run; under one Idempotency-Key no run is steered twice."""
    body: m.BatchBody = call.body
    by = call.caller.identity

    def send(client: Client, run: RunId) -> Awaitable[SendResult]:
        match verb:
            case Verb.CANCEL:
                return client.cancel(run, body.reason, by=by, cascade=body.cascade)
            case Verb.REDRIVE:
                return client.handle(run).redrive(body.step, key=call.key, by=by)
            case Verb.PAUSE | Verb.UNPAUSE:
                name = PAUSE if verb is Verb.PAUSE else RESUME
                return client.steer(run, name, {"reason": body.reason}, key=call.key, by=by)
            case Verb.SIGNAL:
                return client.signal(run, body.signal, body.value, key=call.key, by=by)
            case Verb.DELETE:
                return delete(client, run)

    return send
