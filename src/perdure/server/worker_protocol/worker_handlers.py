"""The worker protocol: tasks leave the server under a lease, and are answered once. See docs/guide/workers.md."""

import asyncio
from functools import partial
from typing import Any

import msgspec

from perdure.engine.decision_threads import done_aside
from perdure.engine.tasks.lease_errors import LeaseGone
from perdure.engine.tasks.leased_tasks import LeasedTasks, answer_digest, parcel_of
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Ref, digest
from perdure.kernel.outcomes import Outcome, Succeeded
from perdure.kernel.secrets.sealed_arguments import REDACTED
from perdure.kernel.tasks.assignments import decode_pipeline
from perdure.kernel.tasks.crash_attribution import StartPlace
from perdure.server.calls import Answer, ApiCall, Caller, Result
from perdure.server.problems import status_of
from perdure.server.request_reading import idempotency_key
from perdure.server.worker_protocol import worker_types as w
from perdure.server.worker_protocol.task_bodies import describe_tasks, encode_value, read_failure
from perdure.stores.pool_tasks import LeaseRequest, TaskLease
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.administration.worker_pools import LONGEST_OFFER, SYSTEM
from perdure.views.api_errors import AccessDenied, LargeValueNotFound
from perdure.views.errors import BadRequest
from perdure.views.times import iso

LONGEST_WAIT = 60.0  # seconds
SLICE = 1.0  # seconds after which it is asked again whether the token is valid
LINES_AT_ONCE = 100  # that are logged, before other work has its turn
PLACES = {"beside": StartPlace.BESIDE_OTHERS, "alone": StartPlace.ALONE, "apart": StartPlace.APART}


def _tasks(call: ApiCall) -> LeasedTasks:
    tasks: LeasedTasks = call.server.tasks
    return tasks


def may_work(caller: Caller, pool: str) -> bool:
    """A token for its pools; an admin for all but the system's, for which a token of that pool is needed."""
    return pool in caller.pools or (caller.role is AccessRole.ADMIN and pool != SYSTEM)


def _sees(call: ApiCall, lease: TaskLease) -> bool:
    return may_work(call.caller, lease.pool) and call.caller.sees(lease.namespace)


async def _lease(call: ApiCall, *, is_open: bool = True) -> TaskLease:
    """The lease of the path; it opens its task only together with a token for its pool and namespace."""
    tasks = _tasks(call)
    lease = await (tasks.find_open if is_open else tasks.find)(call.path["lease"])
    if not _sees(call, lease):
        raise LeaseGone("this lease is unknown, or no longer yours")
    return lease


async def lease_tasks(call: ApiCall) -> Result:
    body: w.LeaseBody = call.body
    for pool in body.pools:
        if not may_work(call.caller, pool):
            raise AccessDenied(f"this token is not for the pool {pool!r}", hint="Use a token with --pool.")
    if sum(map(len, body.providers or ())) > LONGEST_OFFER:
        raise BadRequest(f"the names of `providers` have more than {LONGEST_OFFER:,} characters")
    call.server.presence.note(body, call.caller.name)
    pools, most = list(dict.fromkeys(body.pools)), min(body.max, w.MOST_TASKS)
    filters = (body.providers, body.opens, call.caller.namespaces)
    request = LeaseRequest(pools, body.worker, most, 0, *filters, call.caller.name, call.key or "", call.body_digest)
    leases = await _wait_for_tasks(call, request, min(body.wait, LONGEST_WAIT))
    offered = None if body.providers is None else frozenset(body.providers)
    return Answer(msgspec.json.encode({"tasks": await describe_tasks(call, leases, body.opens, offered)}))


async def _wait_for_tasks(call: ApiCall, request: LeaseRequest, wait: float) -> list[TaskLease]:
    tasks, tokens = _tasks(call), call.server.authentication.tokens
    loop = asyncio.get_running_loop()
    end = loop.time() + wait
    while True:
        with call.server.presence.waiting(request):
            leases = await tasks.lease(request, min(SLICE, end - loop.time()), call.is_gone)
        is_valid = await tokens.is_in_force(call.caller) if leases else tokens.is_valid(call.caller)
        if leases and (not is_valid or await call.is_gone()):  # nobody is to hear of them, or does
            for lease in leases:
                await tasks.release(lease)
            return []
        if leases or loop.time() >= end or call.server.is_stopping or not is_valid:
            return leases
        if await call.is_gone():
            return []


async def heartbeat(call: ApiCall) -> Result:
    body: w.HeartbeatBody = call.body
    tasks = _tasks(call)
    asked = list(dict.fromkeys(beat.lease for beat in body.leases))
    leases = await tasks.find_many(asked)
    own = [lease for lease in asked if lease in leases and leases[lease].answer is None and _sees(call, leases[lease])]
    call.server.presence.seen(body.worker, {leases[lease].pool for lease in own})
    until, renewal = await tasks.renew(own)
    lost = sorted(renewal.lost | (set(asked) - set(own)))
    return Answer({"lease_until": iso(until), "recalled": sorted(renewal.recalled), "lost": lost})


async def complete_task(call: ApiCall) -> Result:
    lease = await _lease(call, is_open=False)
    await _end(call, lease, await _output(call, lease, call.body.output))
    return Answer({"lease": lease.lease})


async def _end(call: ApiCall, lease: TaskLease, outcome: Outcome, *, was_alone: bool = False) -> None:
    """What is recorded is masked with what this task was sent; the same answer is recognized as it was said."""
    hidden = await call.server.secrets.hide_outcome(lease, outcome)
    await _tasks(call).end(lease, hidden, was_alone=was_alone, answer=await answer_digest(outcome))


async def _output(call: ApiCall, lease: TaskLease, output: Any) -> Outcome:
    """The value; one that was put before is named by its digest, and has the size that it has."""
    if isinstance(output, dict) and output.keys() == {"$large", "bytes"}:
        name = _digest(output["$large"])
        sizes = {} if name is None else await call.engine.store.value_sizes(lease.run, [name])
        if name is not None and name in sizes:
            return Succeeded(Ref(name, sizes[name]))
    return Succeeded(await encode_value(output))


async def _hidden_text(call: ApiCall, lease: TaskLease, value: Any) -> bytes:
    text: bytes = await call.server.secrets.hide_json(lease, await encode_value(value))
    return text


def _digest(text: Any) -> bytes | None:
    try:
        name = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return None
    return name if len(name) == 32 else None


async def fail_task(call: ApiCall) -> Result:
    lease = await _lease(call, is_open=False)
    await _end(call, lease, await read_failure(call.body), was_alone=call.body.alone)
    return Answer({"lease": lease.lease})


async def answer_tasks(call: ApiCall) -> Result:
    """Many answers at once; each has the status that it would have had alone."""
    body: w.AnswersBody = call.body
    leases = await _tasks(call).find_many([answer.lease for answer in body.answers])

    async def end(answer: w.AnsweredTask) -> w.AnswerResult:
        try:
            lease = leases.get(answer.lease)
            if (answer.output is msgspec.UNSET) == (answer.failure is None):
                raise BadRequest("an answer has either `output` or `failure`")
            if lease is None or not _sees(call, lease):
                raise LeaseGone("this lease is unknown, or no longer yours")
            if answer.failure is not None:
                await _end(call, lease, await read_failure(answer.failure), was_alone=answer.failure.alone)
            else:
                await _end(call, lease, await _output(call, lease, answer.output))
        except PerdureError as error:
            return w.AnswerResult(answer.lease, status_of(error), error.code)
        return w.AnswerResult(answer.lease, 200)

    results = await asyncio.gather(*map(end, body.answers))
    return Answer(msgspec.json.encode(w.AnswersAnswer(results)))


async def release_task(call: ApiCall) -> Result:
    lease = await _lease(call)
    await _tasks(call).release(lease, has_begun=call.body.begun)
    return Answer({"lease": lease.lease})


async def begin_task(call: ApiCall) -> Result:
    """Where a task begins that was lost before; a worker that does not say so is charged with nothing."""
    body: w.BeginBody = call.body
    if body.cleared is False:
        await _tasks(call).clear_lost(call.path["lease"])  # it is none any more: who knows its name has had it
    else:
        await _tasks(call).begin(await _lease(call), PLACES[body.place], is_cleared=bool(body.cleared))
    return Answer({"lease": call.path["lease"]})


async def claim_task_effect(call: ApiCall) -> Result:
    lease = await _lease(call)
    claim = await _tasks(call).claim_effect(lease, call.path["key"])
    if claim.completed:
        unfit = {} if claim.unfit is None else {"unfit": claim.unfit}
        result = {} if claim.result is None else {"result": msgspec.Raw(claim.result)}
        return Answer(msgspec.json.encode({"state": "completed", **result, **unfit}))
    if claim.in_doubt:
        return Answer({"state": "held" if parcel_of(lease).assignment.hold_effects_in_doubt else "in_doubt"})
    return Answer({"state": "claimed"})


async def complete_task_effect(call: ApiCall) -> Result:
    body: w.EffectResultBody = call.body
    lease = await _lease(call)
    if body.unfit is not None:
        reason = await call.server.secrets.hide_text(lease, body.unfit)
        await _tasks(call).complete_effect_unfit(lease, call.path["key"], reason)
    else:
        await _tasks(call).complete_effect(lease, call.path["key"], await _hidden_text(call, lease, body.result))
    return Answer({"state": "completed"})


async def release_task_effect(call: ApiCall) -> Result:
    await _tasks(call).release_effect(await _lease(call), call.path["key"])
    return Answer({"state": "released"})


async def signal_from_task(call: ApiCall) -> Result:
    lease = await _lease(call)
    key = idempotency_key(call.headers)
    own = "" if key is None else digest(f"{lease.run}\0{lease.task}\0{lease.delivery}\0{key}".encode()).hex()[:32]
    await _tasks(call).signal(lease, call.path["name"], await _hidden_text(call, lease, call.body.value), own)
    return Answer({"lease": lease.lease})


async def log_from_task(call: ApiCall) -> Result:
    body: w.LogBody = call.body
    lease = await _lease(call)
    alone = [] if body.message is None else [w.LogLineBody(message=body.message, level=body.level, fields=body.fields)]
    lines = [*alone, *body.lines]
    if any(jsontext.is_large(line.fields) for line in lines):
        raise BadRequest(f"the fields of a line have more than {jsontext.NODES:,} values, or long texts")
    log = _tasks(call).log_of(lease)
    hidden = await call.server.secrets.hide_data(lease, [[line.level, line.message, line.fields] for line in lines])
    for number, line in enumerate(lines, 1):
        level, message, fields = hidden[number - 1] if isinstance(hidden, list) else ("info", REDACTED, {})
        log(level, message, fields if isinstance(fields, dict) else {}, line.number)
        if number % LINES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return Answer({"lease": lease.lease})


async def report_from_task(call: ApiCall) -> Result:
    if call.body.number is not None:
        return await _report_outcome(call, call.body)
    lease = await _lease(call)
    answer = await _tasks(call).report(lease, await _hidden_text(call, lease, call.body.body))
    return Answer(msgspec.json.encode({"answer": msgspec.Raw(answer or b"null")}))


async def _report_outcome(call: ApiCall, body: w.ReportBody) -> Result:
    """The outcome of a task of a pipeline; the next one comes with the answer, under the same lease."""
    assert body.number is not None
    if (body.output is msgspec.UNSET) == (body.failure is None):
        raise BadRequest("the outcome of a task has either `output` or `failure`")
    lease = await _lease(call, is_open=False)
    outcome = await (_output(call, lease, body.output) if body.failure is None else read_failure(body.failure))
    judged = None if body.judged is None else await encode_value(msgspec.to_builtins(body.judged))
    if judged is not None and len(judged) > jsontext.PIECE:
        judged = None
    answer, secrets = await answer_digest(outcome, judged), call.server.secrets
    hidden = None if judged is None else await secrets.hide_json(lease, judged)
    outcome = await secrets.hide_outcome(lease, outcome)
    following = await _tasks(call).report_outcome(lease, body.number, outcome, hidden, answer)
    if following is None:
        recalled = {"recalled": True} if lease.is_recalled else {}
        return Answer({"ctx": None, "goes_on": False, "next": None, **recalled})
    pipeline = decode_pipeline(following.pipeline)
    assert pipeline is not None
    language = parcel_of(following).assignment.language
    (task,) = await describe_tasks(call, [following], [language], None)
    ctx = jsontext.decode(pipeline.body)["ctx"]
    return Answer(msgspec.json.encode({"ctx": ctx, "goes_on": True, "next": task}))


async def get_task_value(call: ApiCall) -> Result:
    """A large value of the run; no other run's."""
    lease, name = await _lease(call), _digest(call.path["digest"])
    values = {} if name is None else await call.engine.store.values(lease.run, [name])
    if name is None or name not in values:
        raise LargeValueNotFound(f"the run of this lease has no value {call.path['digest'][:64]!r}")
    return Answer(values[name])


async def put_task_value(call: ApiCall) -> Result:
    """A large output is put first, and named by its digest in the answer."""
    lease, name = await _lease(call), _digest(call.path["digest"])
    text = call.raw_body
    if name is None or await asyncio.to_thread(digest, text) != name:
        raise BadRequest("the body does not have this digest", hint="The name is the SHA-256 of the body, in hex.")
    await done_aside(len(text), partial(_check_value, text))
    hidden = await call.server.secrets.hide_json(lease, text)
    if hidden is not text:  # the answer names what is kept
        text, name = hidden, await asyncio.to_thread(digest, hidden)
    call.server.put_values.add(lease, name, len(text))
    await call.engine.store.put_value(lease.run, name, text)
    return Answer({"$large": name.hex(), "bytes": len(text)}, 201)


def _check_value(text: bytes) -> None:
    try:
        if jsontext.has_too_many_values(text):
            raise BadRequest(f"the body contains more than {jsontext.MOST_VALUES:,} values")
        jsontext.read_strict(text)
    except jsontext.NotJson as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


async def get_task_document(call: ApiCall) -> Result:
    """A pinned document that opening the task's arguments asks for."""
    lease, name = await _lease(call), _digest(call.path["digest"])
    row = await call.engine.store.find(lease.run)
    arguments = await _tasks(call).text(lease.run, parcel_of(lease).arguments)
    is_named = name is not None and ((row is not None and row.program == name) or name.hex().encode() in arguments)
    pinned = await call.engine.store.program(name) if is_named and name is not None else None
    if pinned is None or not (parcel_of(lease).assignment.sealed or lease.pipeline):
        raise LargeValueNotFound(f"the task of this lease asks for no document {call.path['digest'][:64]!r}")
    return Answer({"language": pinned[0], "text": pinned[1].decode()})


async def send_task_secrets(call: ApiCall) -> Result:
    """What the store keeps of the secrets that the task asks for (SRV-073); each sending is in the audit log."""
    body: w.SecretsBody = call.body
    lease = await _lease(call)
    _check_sending(call, lease.pool)
    sent = await call.server.secrets.find(lease, body.names)
    if sent:
        call.begin_act("send_task_secrets")
        call.audit(f"secrets/{','.join(sorted(sent))}", run=lease.run, namespace=lease.namespace)
    return Answer(msgspec.json.encode(w.SecretsAnswer(sent)), headers={"Cache-Control": "no-store"})


def _check_sending(call: ApiCall, pool: str) -> None:
    """To a pool that the operator has named, and where nobody between listens."""
    if not call.server.secrets.sends_to(pool):
        raise AccessDenied(f"the pool {pool!r} is sent no secrets", hint=f'[pools.{pool}] secrets = "send" sends them.')
    if not (call.server.is_tls or call.server.authentication.is_local(call.headers, call.source)):
        raise AccessDenied("secrets are sent under TLS or on loopback only", hint="Serve with --tls auto.")


async def leave_pools(call: ApiCall) -> Result:
    """A worker that stops in order says so, for whoever looks."""
    body: w.LeaveBody = call.body
    own = [pool for pool in body.pools if may_work(call.caller, pool)]
    call.server.presence.left(body.worker, own, call.caller.name)
    return Answer({})


async def connect_stream_worker(call: ApiCall) -> Result:
    """A WebSocket is accepted by the application; whoever comes here did not ask for one."""
    raise BadRequest("this is a WebSocket", hint="Connect with ws:// or wss://; see docs/guide/stream-workers.md.")
