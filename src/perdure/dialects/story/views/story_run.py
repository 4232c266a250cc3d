"""A run as a StoryRun resource with its StepRuns, and why steps wait (section 1.7)."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.durations import write_rounded
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.names import input_hash
from perdure.dialects.story.resources.resource import version_of
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.run.concurrency import queue_labels
from perdure.dialects.story.run.story_end import allowed_failures
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.triggers.requests import trigger_tokens
from perdure.dialects.story.values import offloaded_data
from perdure.dialects.story.values.storage_addresses import StorageAddress, offloaded
from perdure.dialects.story.views import step_logs
from perdure.dialects.story.views.resource_status import conditions
from perdure.dialects.story.views.step_runs import TextReader, effect_claims, step_runs
from perdure.dialects.story.views.stream_views import stream_of, transport_bindings
from perdure.kernel.errors import ReferenceNotAvailable
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext

NAMED_PER_KIND = 5


def show(execution: Execution, texts: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The StoryRun with everything that belongs to it."""
    resource = show_itself(execution, texts)
    if execution.body.cleaned_at is not None:
        return resource
    text = TextReader(texts)
    resource["stepRuns"] = step_runs(execution, text)
    claims = effect_claims(execution, text)
    if claims:
        resource["effectClaims"] = claims
    if bindings := transport_bindings(execution):
        resource["transportBindings"] = bindings
    if not execution.state.status.is_final:
        resource["waiting"] = waiting(execution)
    return resource


def show_itself(execution: Execution, texts: Mapping[bytes, bytes]) -> dict[str, Any]:
    text = TextReader(texts)
    resource: dict[str, Any] = {
        "apiVersion": RESOURCE_KINDS["StoryRun"].api_version,
        "kind": "StoryRun",
        "metadata": _metadata(execution, text),
        "spec": _spec(execution, text),
        "status": _status(execution, text),
        "stepRuns": {},
    }
    if execution.body.cleaned_at is not None:
        _keep_results(resource, step_runs(execution, text))
    return resource


def _keep_results(resource: dict[str, Any], removed: dict[str, Any]) -> None:
    """Keep the output and error of each step after its StepRun was removed (STY-190)."""
    for name, run in removed.items():
        status = run["status"]
        results = {
            member: status[member]
            for member in ("output", "error", "exitCode", "retries", "duration", "logs")
            if member in status
        }
        resource["status"]["stepStates"].get(name, {}).update(results)


def body_of(execution: Execution, texts: Mapping[bytes, bytes], ref: str) -> Any:
    body: Body = execution.body
    text = TextReader(texts)
    if not ref:
        return {} if body.output is None else text.data(body.output)
    logs = step_logs.log_at(body, ref, text)
    if logs is not None:
        return logs
    try:
        address = StorageAddress.read(ref)
        if address is not None and not address.step and address.run == f"{body.namespace}/{body.name}":
            return offloaded_data.at_path(text.data(execution.state.input), address.path)
        return offloaded_data.body_at(body, ref, text)
    except offloaded_data.BrokenReference as problem:
        raise ReferenceNotAvailable(str(problem)) from None


def awaited_gates(execution: Execution) -> list[str]:
    """The gates that wait for a decision, each with the command that makes it, and waits whose condition does not
    hold.
    """
    body: Body = execution.body
    program: Program = execution.program
    paused = [
        (name, program.steps[name].kind) for name, state in body.steps.items() if state.phase is StoryPhase.PAUSED
    ]
    awaited = []
    for kind in sorted({kind for _, kind in paused}):
        names = [name for name, step_kind in paused if step_kind == kind][:NAMED_PER_KIND]
        awaited += [text for name in names if (text := STEP_KINDS[kind].awaited(execution.id, name))]
    return awaited


def waiting(execution: Execution) -> list[dict[str, Any]]:
    """Every step that waits, with the reason (and until when)."""
    body: Body = execution.body
    entries = []
    for name in body.plan.order:
        state = body.steps.get(name)
        if (
            state is None
            or state.phase.is_terminal
            or (state.phase is StoryPhase.RUNNING and not (state.child or state.fan))
        ):
            continue
        entry: dict[str, Any] = {"step": name, "phase": state.phase.value, "reason": str(state.reason)}
        entry["message"] = state.message
        due_at = state.due or (state.run.next_retry_at if state.run is not None else None)
        if due_at is not None:
            entry["due"] = timestamp(due_at)
        entries.append(entry)
    for helper in body.helping:
        target = body.plan.helped[helper]
        if target not in body.steps:  # its `if`, or the run's output, is being evaluated
            message = f"Waiting for step '{step_run_name(body, helper)}' to read offloaded data"
            entries.append({"step": target, "reason": "OffloadedData", "message": message})
    for name, count in body.waiting.items():
        if name in body.unstarted and name not in body.steps and count:
            open_names = [needed for needed in body.plan.waits[name] if not _has_ended(body, needed)]
            entries.append({"step": name, "reason": "Dependencies", "message": f"Waiting for {', '.join(open_names)}"})
    return entries


def _has_ended(body: Body, name: str) -> bool:
    state = body.steps.get(name)
    return state is not None and state.phase.is_terminal


def _metadata(execution: Execution, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    program: Program = execution.program
    state = execution.state
    notes: dict[str, str] = {}
    options = jsontext.decode(state.options)
    annotations = options.get("annotations")
    if isinstance(annotations, dict):
        notes |= {name: value for name, value in annotations.items() if isinstance(value, str)}
    for step, token in body.redriven:
        if step:
            notes[labels.REDRIVE_FROM] = notes[labels.REDRIVE_FROM_OBSERVED] = f"{step}:{token}"
        else:
            notes[labels.REDRIVE] = notes[labels.REDRIVE_OBSERVED] = token
    if body.canceled_before:
        notes[labels.CANCEL_CONSUMED] = "true"
    if labels.TOKEN in state.labels:
        notes[labels.TOKEN] = state.labels[labels.TOKEN]
    if labels.TOKEN in state.labels or options.get("inputsOfAnySize"):
        notes[labels.INPUT_HASH] = input_hash(text.data(state.input) or {})
    run_labels = {name: value for name, value in state.labels.items() if name != labels.TOKEN}
    run_labels = _changed(run_labels, body.labels)
    notes = _changed(notes, body.annotations)
    return {
        "name": body.name or state.labels.get(labels.RUN, ""),
        "namespace": body.namespace or program.namespace,
        "uid": execution.id,
        "labels": {labels.STORY: program.name, **queue_labels(program, options), **run_labels},
        "annotations": notes,
        "creationTimestamp": timestamp(state.started_at),
        "generation": 1,
    }


def _changed(before: dict[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**before, **changes}.items() if value is not None} if changes else before


def _spec(execution: Execution, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    program: Program = execution.program
    options = jsontext.decode(execution.state.options)
    reference = {"name": program.name}
    if body.namespace and body.namespace != program.namespace:
        reference["namespace"] = program.namespace
    spec: dict[str, Any] = {
        "storyRef": options.get("storyRef") or reference,
        "inputs": _inputs(execution, text),
    }
    if options.get("impulseRef"):
        spec["impulseRef"] = options["impulseRef"]
    if execution.state.cancel_requested or body.canceled_before:
        spec["cancelRequested"] = True
    return spec


def _inputs(execution: Execution, text: TextReader) -> Any:
    """The inputs; above the limit, with references in place of large parts (STY-151)."""
    payload = execution.state.input
    size = len(payload) if isinstance(payload, bytes) else payload.size
    limit = execution.program.settings.max_inline_inputs_size
    return offloaded(
        text.data(payload) or {}, size, limit, offloaded_data.address_of(execution.body, "", in_input=True)
    )


def _status(execution: Execution, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    program: Program = execution.program
    plan = body.plan
    steps = [(name, body.steps[name]) for name in plan.order if name in body.steps and name not in plan.helped]
    since = execution.state.started_at if body.since is None else body.since
    by_phase: dict[StoryPhase, int] = {}
    for _, state in steps:
        by_phase[state.phase] = by_phase.get(state.phase, 0) + 1
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "phase": body.phase.value,
        "message": body.message,
        "attempts": body.attempts,
        "active": [
            name for name, state in steps if state.phase in (StoryPhase.RUNNING, StoryPhase.PAUSED, StoryPhase.PENDING)
        ],
        "completed": [name for name, state in steps if state.phase is StoryPhase.SUCCEEDED],
        "primitiveChildren": {
            name: [
                step_run_name(body, branch) for branch in branches if branch in body.steps and body.steps[branch].run
            ]
            for name, branches in plan.branches.items()
            if name in body.steps and body.steps[name].has_begun and body.steps[name].phase is not StoryPhase.SKIPPED
        },
        "stepStates": {name: _state(execution, name, state) for name, state in steps},
        "gates": {name: _gate(body, name) for name in body.gates},
        "conditions": conditions(body.phase, body.reason, body.message, since, body.finished_at, body.degraded),
        "stepsTotal": sum(map(len, plan.blocks.values())),
        "stepsComplete": by_phase.get(StoryPhase.SUCCEEDED, 0),
        "stepsFailed": by_phase.get(StoryPhase.FAILED, 0),
        "stepsSkipped": by_phase.get(StoryPhase.SKIPPED, 0),
        "allowedFailures": allowed_failures(body),
        "trace": _trace(execution),
    }
    if tokens := trigger_tokens(jsontext.decode(execution.state.options)):
        status["triggerTokens"] = tokens
    if body.started_at is not None:
        status["startedAt"] = timestamp(body.started_at)
    if body.finished_at is not None:
        status["finishedAt"] = timestamp(body.finished_at)
        status["duration"] = write_rounded(body.finished_at - (body.started_at or body.finished_at))
    if body.cleaned_at is not None:
        status["childrenCleanedAt"] = timestamp(body.cleaned_at)
    if body.output is not None:
        status["output"] = text.data(body.output)
    if body.error is not None:
        status["error"] = jsontext.decode(body.error)
    for end, schema, prefix in (("inputs", "inputsSchema", "input"), ("output", "outputsSchema", "output")):
        if program.spec.get(schema) is not None:
            reference = f"bubu://story/{program.namespace}/{program.name}/{end}"
            status[f"{prefix}SchemaRef"] = {"ref": reference, "version": version_of(program.story)}
    return status


def _state(execution: Execution, name: str, state: StepState) -> dict[str, Any]:
    view: dict[str, Any] = {
        "phase": state.phase.value,
        "message": state.message,
        "startedAt": timestamp(state.started_at),
    }
    if state.finished_at is not None:
        view["finishedAt"] = timestamp(state.finished_at)
    if state.sub_run:
        view["subStoryRunName"] = state.sub_run
    if execution.body.topology is not None and (stream := stream_of(execution, name, state)) is not None:
        view["stream"] = stream
    return view


def _gate(body: Body, name: str) -> dict[str, Any]:
    gate = body.gates[name]
    view = {"state": gate.state, "updatedAt": timestamp(gate.at)}
    if gate.message:
        view["message"] = gate.message
    if gate.by:
        view["updatedBy"] = gate.by
    return view


def _trace(execution: Execution) -> dict[str, str]:
    """The same for every view of the run, so that traces of different processes match (STY-262)."""
    digest = sha256(execution.id.partition(".")[0].encode()).hexdigest()
    return {"traceId": digest[:32], "spanId": sha256(execution.id.encode()).hexdigest()[:16]}
