"""StepRuns and EffectClaims as resources (sections 1.8 and 1.9), computed from a run's state."""

from typing import Any

from perdure.dialects.story.plan.execution_policy import ExecutionPolicy
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.durations import write_duration, write_rounded
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.names import claim_name, default_key
from perdure.dialects.story.resources.resource import Resource, annotations_of, read_reference, spec_of, version_of
from perdure.dialects.story.resources.step_run_names import step_run_name, step_run_uid
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.run.concurrency import queue_labels
from perdure.dialects.story.run.signals_and_effects import shown_signals, unfit
from perdure.dialects.story.state.body import Body, SignalsAndEffects, StepRun, StepState
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.values.offloaded_data import address_of
from perdure.dialects.story.values.storage_addresses import offloaded
from perdure.dialects.story.views import step_logs
from perdure.dialects.story.views.resource_status import conditions
from perdure.dialects.story.views.stream_views import handoff_of, stream_of
from perdure.kernel.execution import Execution as Run
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.tasks.effects import Effect, effect_key
from perdure.kernel.turn import MissingValues

UNRESOLVED = frozenset(
    (
        Reason.REFERENCE_NOT_FOUND,
        Reason.TEMPLATE_NOT_FOUND,
        Reason.ENGRAM_REFERENCE_INVALID,
        Reason.INVALID_CONFIGURATION,
    )
)
"""Reasons why a step has a StepRun without an execution."""


class TextReader:
    """Reads values that may be stored beside the log."""

    def __init__(self, texts: Any) -> None:
        self._texts = texts

    def __call__(self, payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        stored = self._texts.get(payload.digest)
        if stored is None:
            raise MissingValues((payload.digest,))
        text: bytes = stored
        return text

    def data(self, payload: Payload) -> Any:
        return jsontext.decode(self(payload))


def step_runs(execution: Run, text: TextReader) -> dict[str, dict[str, Any]]:
    """StepRuns by step, in story order."""
    body: Body = execution.body
    runs = {name: _run_of(execution, name, body.steps[name]) for name in body.plan.order if name in body.steps}
    return {
        name: _step_run(execution, name, body.steps[name], run, text) for name, run in runs.items() if run is not None
    }


def _run_of(execution: Run, name: str, state: StepState) -> StepRun | None:
    """The StepRun of a step; a step whose Engram or template is missing or invalid has one too, to say why (STY-118,
    STY-254).
    """
    body: Body = execution.body
    program: Program = execution.program
    step = program.step(name)
    if state.run is not None or not STEP_KINDS[step.kind].has_step_run or state.reason not in UNRESOLVED:
        return state.run
    target = read_reference(step.data.get("ref"), program.namespace)
    key = default_key(body.namespace, body.name, name)
    return StepRun(body.life, key, "" if target is None else target.key, "", 0, state.started_at)


def _step_run(execution: Run, name: str, state: StepState, run: StepRun, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    program: Program = execution.program
    step = program.step(name)
    engram, template = resources_of(program, body, run, text)
    return {
        "apiVersion": RESOURCE_KINDS["StepRun"].api_version,
        "kind": "StepRun",
        "metadata": _metadata(execution, step, state, run),
        "spec": _spec(program, body, step, run, engram, template, text),
        "status": _status(execution, step, state, run, engram, template, text),
    }


def resources_of(program: Program, body: Body, run: StepRun, text: TextReader) -> tuple[Resource, Resource]:
    namespace, _, name = run.engram.partition("/")
    template = run.template.rpartition("@")[0]
    return _find_resource(program, body, "Engram", namespace, name, text), _find_resource(
        program, body, "EngramTemplate", "", template, text
    )


def _find_resource(program: Program, body: Body, kind: str, namespace: str, name: str, text: TextReader) -> Resource:
    bundled = program.resources.find(kind, namespace, name)
    if bundled is not None:
        return bundled
    recorded = body.found_resources.get(f"{kind}/{namespace}/{name}")
    return {} if recorded is None else text.data(recorded)


def _metadata(execution: Run, step: Step, state: StepState, run: StepRun) -> dict[str, Any]:
    body: Body = execution.body
    step_labels = {labels.RUN: body.name, labels.STORY: execution.program.name, labels.STEP: step.name}
    step_labels |= queue_labels(execution.program, jsontext.decode(execution.state.options))
    if step.parent:
        step_labels[labels.PARENT_STEP] = step.parent
    if labels.CORRELATION in execution.state.labels:
        step_labels[labels.CORRELATION] = execution.state.labels[labels.CORRELATION]
    notes: dict[str, str] = {}
    if body.plan.is_hybrid:
        step_labels[labels.HYBRID] = "true"
        upstream = annotations_of(execution.program.story).get(labels.UPSTREAM_STEP)
        notes |= {labels.UPSTREAM_STEP: upstream} if upstream else {}
    if run.execution:
        notes[labels.JOB_UID] = f"{execution.id}/{run.execution}"
    if run.restarts:
        notes[labels.RESTART_COUNT] = str(run.restarts)
        if run.restarted_at is not None:
            notes[labels.RESTARTED_AT] = timestamp(run.restarted_at)
    if run.recalled:
        notes[labels.CANCEL_REQUESTED] = "true"
    if run.cached is not None:
        notes |= {f"{labels.CACHE}key": run.cached.entry, f"{labels.CACHE}mode": run.cached.mode}
        if run.cached.status:
            notes[f"{labels.CACHE}status"] = run.cached.status
        if run.cached.ttl > 0:
            notes[f"{labels.CACHE}ttl-seconds"] = str(run.cached.ttl)
    return {
        "name": step_run_name(body, step.name),
        "namespace": body.namespace,
        "uid": step_run_uid(execution.id, run.life, step.name),
        "labels": step_labels,
        "annotations": notes,
        "creationTimestamp": timestamp(run.created_at),
        "generation": 1,
    }


def _spec(
    program: Program, body: Body, step: Step, run: StepRun, engram: Resource, template: Resource, text: TextReader
) -> dict[str, Any]:
    execution = ExecutionPolicy(program, step, engram, template)
    namespace, _, name = run.engram.partition("/")
    timeout, retry = execution.timeout(), execution.retry()
    spec: dict[str, Any] = {
        "storyRunRef": {"name": body.name},
        "stepId": step.name,
        "idempotencyKey": run.key,
        "engramRef": {"name": name, "namespace": namespace},
        "templateGeneration": run.generation,
        "retry": {
            "maxRetries": retry.most,
            "delay": write_duration(retry.base),
            **({} if retry.ceiling is None else {"maxDelay": write_duration(retry.ceiling)}),
            "jitter": retry.jitter,
            "backoff": retry.backoff.value,
        },
    }
    if timeout is not None and not program.streams(step.block):  # a stream has no end to wait for (STR-025)
        spec["timeout"] = write_duration(timeout)
    if run.arguments is not None:
        step_input = text.data(run.arguments).get("inputs")
        address = address_of(body, step.name, in_input=True)
        spec["input"] = offloaded(step_input, len(jsontext.encode(step_input)), execution.inline_limit(), address)
    return spec


def _status(
    execution: Run, step: Step, state: StepState, run: StepRun, engram: Resource, template: Resource, text: TextReader
) -> dict[str, Any]:
    body: Body = execution.body
    reported = body.signals_and_effects.get(step.name) or SignalsAndEffects()
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "phase": state.phase.value,
        "message": state.message,
        "retries": run.retries,
        "conditions": conditions(state.phase, state.reason, state.message, run.created_at, state.finished_at),
        "needs": [step_run_name(body, name) for name in body.plan.waits.get(step.name, ()) if _has_run(body, name)],
        "signals": {key: jsontext.decode(value) for key, value in reported.signals.items()},
        "signalEvents": shown_signals(reported),
        "effects": [
            {
                "seq": record.seq,
                "key": record.key,
                "status": record.status,
                "emittedAt": timestamp(record.at),
                "details": jsontext.decode(record.details),
            }
            for record in sorted(reported.effects, key=lambda record: record.seq)
        ],
    }
    optional: dict[str, Any] = {
        "startedAt": run.began_at,
        "finishedAt": state.finished_at,
        "nextRetryAt": run.next_retry_at,
        "lastOutputAt": run.last_output_at,
    }
    status |= {name: timestamp(instant) for name, instant in optional.items() if instant is not None}
    if state.finished_at is not None and run.began_at is not None:
        status["duration"] = write_rounded(state.finished_at - run.began_at)
    if run.exit_code is not None:
        status["exitCode"] = run.exit_code
    if run.exit_class:
        status["exitClass"] = run.exit_class
    if run.logs:
        status["logs"] = step_logs.reference(body, step.name)
    if run.last_failure:
        status["lastFailureMsg"] = run.last_failure
    if run.error is not None and state.phase is not StoryPhase.RUNNING:
        status["error"] = jsontext.decode(run.error)
    if state.output is not None:
        size = len(state.output) if isinstance(state.output, bytes) else state.output.size
        limit = ExecutionPolicy(execution.program, step, engram, template).inline_limit()
        status["output"] = offloaded(text.data(state.output), size, limit, address_of(body, step.name))
    if body.topology is not None and (stream := stream_of(execution, step.name, state)) is not None:
        status["stream"] = stream
    if state.handoff is not None:
        status["handoff"] = handoff_of(execution, step, state.handoff)
    namespace, _, name = run.engram.partition("/")
    for member, schema, end in (
        ("inputSchemaRef", "inputSchema", "input"),
        ("outputSchemaRef", "outputSchema", "output"),
    ):
        if spec_of(template).get(schema) is not None:
            version = version_of(template)
            status[member] = {"ref": f"bubu://engram/{namespace}/{name}/{end}", "version": version}
    return status


def _has_run(body: Body, name: str) -> bool:
    state = body.steps.get(name)
    return state is not None and state.run is not None


def effect_claims(execution: Run, text: TextReader) -> list[dict[str, Any]]:
    """The EffectClaims of a run: one for every effect claimed through the kernel, completed or not (section 9)."""
    body: Body = execution.body
    claims = []
    for name, state in body.steps.items():
        if state.run is None:
            continue
        prefix = effect_key(name, "")
        for key, effect in execution.state.effects.items():
            if key.startswith(prefix):
                claims.append(_claim(execution, name, state.run, key.removeprefix(prefix), effect, text))
    return claims


def _claim(execution: Run, step: str, run: StepRun, key: str, effect: Effect, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    name = step_run_name(body, step)
    spec: dict[str, Any] = {
        "stepRunRef": {"name": name, "uid": step_run_uid(execution.id, run.life, step)},
        "effectKey": key,
        "idempotencyKey": run.key,
        "holderIdentity": f"{body.namespace}:{name}:{key}"[:220] + f":{effect.task}.{effect.delivery}",
        "leaseDurationSeconds": 600,
        "leaseTransitions": effect.takeovers,
        "acquireTime": timestamp(effect.claimed_at),
        "renewTime": timestamp(effect.claimed_at),
    }
    if effect.released:  # it has no holder and did not complete (STY-167)
        for member in ("holderIdentity", "acquireTime", "renewTime"):
            del spec[member]
        spec["completionStatus"] = "released"
    elif effect.is_completed:
        assert effect.ended_at is not None
        details = unfit(effect.unfit or "") if effect.result is None else text.data(effect.result)
        spec |= {
            "completionStatus": "completed",
            "completedAt": timestamp(effect.ended_at),
            "details": details if isinstance(details, dict) else {"result": details},
        }
    return {
        "apiVersion": RESOURCE_KINDS["EffectClaim"].api_version,
        "kind": "EffectClaim",
        "metadata": {"name": claim_name(body.namespace, name, key), "namespace": body.namespace},
        "spec": spec,
        "status": {"phase": "Completed" if effect.is_completed else "Released" if effect.released else "Reserved"},
    }
