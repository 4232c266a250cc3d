"""A run as the StoryRun resource, with its StepRuns, and why what waits does (section 1.7)."""

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
from perdure.dialects.story.run.concurrency import marks_of
from perdure.dialects.story.run.run_end import allowed_failures
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Phase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.triggers.requests import trigger_tokens
from perdure.dialects.story.values import offloaded_data
from perdure.dialects.story.values.storage_addresses import StorageAddress, offloaded
from perdure.dialects.story.views import step_logs
from perdure.dialects.story.views.conditions import conditions
from perdure.dialects.story.views.step_runs import TextReader, effect_claims, step_runs
from perdure.kernel import jsontext
from perdure.kernel.errors import ReferenceNotAvailable
from perdure.kernel.execution import Execution

NAMED_PER_KIND = 5


def show(execution: Execution, texts: Mapping[bytes, bytes]) -> dict[str, Any]:
    text = TextReader(texts)
    shown: dict[str, Any] = {
        "apiVersion": RESOURCE_KINDS["StoryRun"].api_version,
        "kind": "StoryRun",
        "metadata": _metadata(execution, text),
        "spec": _spec(execution, text),
        "status": _status(execution, text),
        "stepRuns": {},
    }
    if execution.body.cleaned_at is not None:
        _keep_evidence(shown, step_runs(execution, text))
        return shown
    shown["stepRuns"] = step_runs(execution, text)
    claims = effect_claims(execution, text)
    if claims:
        shown["effectClaims"] = claims
    if not execution.state.status.is_final:
        shown["waiting"] = waiting(execution)
    return shown


def _keep_evidence(shown: dict[str, Any], gone: dict[str, Any]) -> None:
    """What each step has produced and why it failed survives its StepRun (STY-190)."""
    for name, run in gone.items():
        status = run["status"]
        kept = {
            word: status[word]
            for word in ("output", "error", "exitCode", "retries", "duration", "logs")
            if word in status
        }
        shown["status"]["stepStates"].get(name, {}).update(kept)


def body_of(execution: Execution, texts: Mapping[bytes, bytes], ref: str) -> Any:
    body: Body = execution.body
    text = TextReader(texts)
    if not ref:
        return {} if body.output is None else text.data(body.output)
    logged = step_logs.log_at(body, ref, text)
    if logged is not None:
        return logged
    try:
        address = StorageAddress.read(ref)
        if address is not None and not address.step and address.run == f"{body.namespace}/{body.name}":
            return offloaded_data.at_path(text.data(execution.state.input), address.path)
        return offloaded_data.body_at(body, ref, text)
    except offloaded_data.BrokenReference as problem:
        raise ReferenceNotAvailable(str(problem)) from None


def awaited_gates(execution: Execution) -> list[str]:
    """The gates that wait for a decision, each with the command that makes it, and waits whose condition is open."""
    body: Body = execution.body
    program: Program = execution.program
    paused = [(name, program.steps[name].kind) for name, state in body.steps.items() if state.phase is Phase.PAUSED]
    awaited = []
    for kind in sorted({kind for _, kind in paused}):
        names = [name for name, own in paused if own == kind][:NAMED_PER_KIND]
        awaited += [text for name in names if (text := STEP_KINDS[kind].awaited(execution.id, name))]
    return awaited


def waiting(execution: Execution) -> list[dict[str, Any]]:
    """Every step that has begun to be and does not work, with the reason (and until when)."""
    body: Body = execution.body
    found = []
    for name in body.plan.order:
        state = body.steps.get(name)
        if (
            state is None
            or state.phase.is_terminal
            or (state.phase is Phase.RUNNING and not (state.child or state.fan))
        ):
            continue
        entry: dict[str, Any] = {"step": name, "phase": state.phase.value, "reason": str(state.reason)}
        entry["message"] = state.message
        due = state.due or (state.run.next_retry_at if state.run is not None else None)
        if due is not None:
            entry["due"] = timestamp(due)
        found.append(entry)
    for helper in body.helping:
        target = body.plan.helped[helper]
        if target not in body.steps:  # its `if`, or the run's output, is being evaluated
            message = f"Waiting for step '{step_run_name(body, helper)}' to read offloaded data"
            found.append({"step": target, "reason": "OffloadedData", "message": message})
    for name, count in body.waiting.items():
        if name in body.unstarted and name not in body.steps and count:
            open_ones = [one for one in body.plan.waits[name] if not _has_ended(body, one)]
            found.append({"step": name, "reason": "Dependencies", "message": f"Waiting for {', '.join(open_ones)}"})
    return found


def _has_ended(body: Body, name: str) -> bool:
    state = body.steps.get(name)
    return state is not None and state.phase.is_terminal


def _metadata(execution: Execution, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    program: Program = execution.program
    state = execution.state
    notes: dict[str, str] = {}
    options = jsontext.decode(state.options)
    told = options.get("annotations")
    if isinstance(told, dict):
        notes |= {name: value for name, value in told.items() if isinstance(value, str)}
    for step, token in body.redriven:
        if step:
            notes[labels.REDRIVE_FROM_OBSERVED] = f"{step}:{token}"
        else:
            notes[labels.REDRIVE_OBSERVED] = token
    if body.canceled_before:
        notes[labels.CANCEL_CONSUMED] = "true"
    if labels.TOKEN in state.labels:
        notes[labels.TOKEN] = state.labels[labels.TOKEN]
    if labels.TOKEN in state.labels or options.get("inputsOfAnySize"):
        notes[labels.INPUT_HASH] = input_hash(text.data(state.input) or {})
    marks = {name: value for name, value in state.labels.items() if name != labels.TOKEN}
    return {
        "name": body.name or state.labels.get(labels.RUN, ""),
        "namespace": body.namespace or program.namespace,
        "uid": execution.id,
        "labels": {labels.STORY: program.name, **marks_of(program, options), **marks},
        "annotations": notes,
        "creationTimestamp": timestamp(state.started_at),
        "generation": 1,
    }


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
    """Above the limit: with references in place of what is too large (STY-151)."""
    given = execution.state.input
    size = len(given) if isinstance(given, bytes) else given.size
    limit = execution.program.settings.max_inline_inputs_size
    return offloaded(text.data(given) or {}, size, limit, offloaded_data.address_of(execution.body, "", in_input=True))


def _status(execution: Execution, text: TextReader) -> dict[str, Any]:
    body: Body = execution.body
    program: Program = execution.program
    plan = body.plan
    named = [(name, body.steps[name]) for name in plan.order if name in body.steps and name not in plan.helped]
    began = execution.state.started_at if body.since is None else body.since
    by_phase: dict[Phase, int] = {}
    for _, state in named:
        by_phase[state.phase] = by_phase.get(state.phase, 0) + 1
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "phase": body.phase.value,
        "message": body.message,
        "attempts": body.attempts,
        "active": [n for n, s in named if s.phase in (Phase.RUNNING, Phase.PAUSED, Phase.PENDING)],
        "completed": [n for n, s in named if s.phase is Phase.SUCCEEDED],
        "primitiveChildren": {
            name: [step_run_name(body, one) for one in branches if one in body.steps and body.steps[one].run]
            for name, branches in plan.branches.items()
            if name in body.steps and body.steps[name].has_begun and body.steps[name].phase is not Phase.SKIPPED
        },
        "stepStates": {name: _state(state) for name, state in named},
        "gates": {name: _gate(body, name) for name in body.gates},
        "conditions": conditions(body.phase, body.reason, body.message, began, body.finished_at, body.degraded),
        "stepsTotal": sum(map(len, plan.blocks.values())),
        "stepsComplete": by_phase.get(Phase.SUCCEEDED, 0),
        "stepsFailed": by_phase.get(Phase.FAILED, 0),
        "stepsSkipped": by_phase.get(Phase.SKIPPED, 0),
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
    for end, schema, word in (("inputs", "inputsSchema", "input"), ("output", "outputsSchema", "output")):
        if program.spec.get(schema) is not None:
            reference = f"bubu://story/{program.namespace}/{program.name}/{end}"
            status[f"{word}SchemaRef"] = {"ref": reference, "version": version_of(program.story)}
    return status


def _state(state: StepState) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "phase": state.phase.value,
        "message": state.message,
        "startedAt": timestamp(state.started_at),
    }
    if state.finished_at is not None:
        shown["finishedAt"] = timestamp(state.finished_at)
    if state.sub_run:
        shown["subStoryRunName"] = state.sub_run
    return shown


def _gate(body: Body, name: str) -> dict[str, Any]:
    gate = body.gates[name]
    shown = {"state": gate.state, "updatedAt": timestamp(gate.at)}
    if gate.message:
        shown["message"] = gate.message
    if gate.by:
        shown["updatedBy"] = gate.by
    return shown


def _trace(execution: Execution) -> dict[str, str]:
    """The same for every look at the run, so that traces of different processes meet (STY-262)."""
    digest = sha256(execution.id.partition(".")[0].encode()).hexdigest()
    return {"traceId": digest[:32], "spanId": sha256(execution.id.encode()).hexdigest()[:16]}
