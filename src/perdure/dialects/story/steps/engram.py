"""A step that refers to an Engram: it has a StepRun, and a worker does it (STY-118, section 13).

requires ─▶ render `with` ─▶ defaults ─▶ schema ─▶ kept output? ─▶ execute ─▶ schema ─▶ verification ─▶ end   STY-214
"""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.story.document.context import StoryContext, check_sub_story
from perdure.dialects.story.document.cursor import Cursor
from perdure.dialects.story.document.usage import check_step, maps
from perdure.dialects.story.plan.helper_steps import ITEMS, KEY
from perdure.dialects.story.plan.inline_stories import MAP_TEMPLATE, STAGES, inline_stories, with_stories
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.names import business_key, compose, default_key
from perdure.dialects.story.resources.resource import read_reference
from perdure.dialects.story.resources.step_run_names import step_run_name, step_run_uid
from perdure.dialects.story.run import attempts, concurrency, engram_lookup, map_reduce, output_cache
from perdure.dialects.story.run.engram_lookup import InvalidReference, MissingResource, ResolvedEngram
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values import materialize, offloaded_data
from perdure.dialects.story.values.references import Place, malformed, may_refer, names_secret
from perdure.dialects.story.values.schema_fit import fitted
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel import jsontext
from perdure.kernel.events import ChildEnded
from perdure.kernel.ids import family_of
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload

INPUT = "step-input"
NEAR_LIMIT = 0.8  # STY-223
KEY_FAILED, CACHE_KEY_FAILED = "IdempotencyKeyFailed", "CacheKeyFailed"  # STY-280


class EngramStep(StepKind):
    unused_members = ()
    makes_edges = True
    purposes = (INPUT,)
    checks_requires = True
    has_step_run = True

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        if maps(step.value.get("ref"), story.namespace, story.context):
            _check_map(step, name, story)
        check_step(step, name, story.namespace, story.streams(block), story.context)

    def required_purposes(self, step: Step) -> Iterator[str]:
        if "map" in step.given:
            yield ITEMS

    def story_references(self, given: dict[str, Any]) -> Iterator[Any]:
        """The Stories that a map-reduce Engram runs for its items and over their results."""
        for stage in STAGES:
            if isinstance(settings := given.get(stage), dict):
                yield settings.get("storyRef")

    def note(self, program: Program, step: Step) -> str:
        target = read_reference(step.data.get("ref"), program.namespace)
        return f"engram {target.name}" if target is not None else "engram"

    def start(self, turn: Turn, step: Step) -> None:
        body: Body = turn.body
        state = body.steps.get(step.name)
        if state is not None and engram_lookup.is_held_back(state):
            engram_lookup.release_waiter(turn, state)
            return  # the step is still due: its next move looks
        found = engram_lookup.find_engram(turn, step)
        if isinstance(found, MissingResource):
            if not engram_lookup.retry_lookup(turn, found):
                engram_lookup.block(turn, step, found)
            return
        if isinstance(found, InvalidReference):
            end_step(turn, step.name, Phase.FAILED, found.message, reason=found.reason)
        elif engram_lookup.lacks_code(turn, found):
            engram_lookup.block_for_code(turn, step, found)
        elif found.template_name == MAP_TEMPLATE or _has_place(turn, step):  # a map holds no worker
            _prepare(turn, step, found)

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """A retry's wait is over, or a map goes on."""
        if state.fan is not None:
            map_reduce.move(turn, step, state)
        else:
            attempts.repeat(turn, step, state)

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        if state.fan is not None:
            map_reduce.expire(turn, step, state)
        else:
            attempts.expire(turn, step, state)

    def on_child_end(self, turn: Turn, step: Step, state: StepState, ended: ChildEnded) -> None:
        map_reduce.on_child_end(turn, step, state, ended)


def _check_map(step: Cursor, name: str, story: StoryContext) -> None:
    """The Stories that a map runs for its items and over their results, named or inline (STY-271)."""
    given = step.value.get("with")
    for stage in STAGES:
        settings = step.at("with", stage)
        if isinstance(given, dict) and stage in given and _comes_from_data(given[stage]):
            message = f"step '{name}': {stage}.story must be written in the document; a template would run data"
            settings.problem("InvalidConfiguration", message)
        if stage in inline_stories(given):
            story.validate_inline(settings.at("story"), compose("mapreduce", name), story)
        target = settings.at("storyRef")
        if target.value is not None and not any("{{" in str(text) for text in (target.value, target.at("name").value)):
            check_sub_story(target, name, story, may_be_itself=True)


def _comes_from_data(settings: Any) -> bool:
    """Whether the Story of a stage, or all of the stage, would be the result of a template."""
    return isinstance(settings, str) or (isinstance(settings, dict) and isinstance(settings.get("story"), str))


def _has_place(turn: Turn, step: Step) -> bool:
    """Under the limits. A helper works in the place of the step that waits for it, if that has one already."""
    helped = turn.body.steps.get(step.helps)
    return (helped is not None and bool(helped.permits)) or concurrency.admit(turn, step)


class _Refused(Exception):
    """The step fails before it is executed; such failures are never retried (STY-132)."""

    def __init__(self, reason: Reason, message: str, type: str = "validation_error") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.type = type


def _prepare(turn: Turn, step: Step, found: ResolvedEngram) -> None:
    scope = Scope(turn, step)
    key, warnings = _key(turn, step, scope)
    execution = found.execution
    try:
        inputs, text = _inputs(turn, step, found, scope)
        arguments = _envelope(turn, step, found, key, text)
    except _Refused as refused:
        _warn(turn, step, warnings)
        turn.emit(_created(turn, found, key))
        error = StepError.make(refused.type, refused.message, retryable=False)
        end_step(turn, step.name, Phase.FAILED, refused.message, reason=refused.reason, error=error)
        return
    if found.template_name == MAP_TEMPLATE:
        missing = map_reduce.missing_story(turn, step, inputs)
        if missing is not None:
            if not engram_lookup.retry_lookup(turn, missing):
                engram_lookup.block(turn, step, missing)
            return
        prepared = map_reduce.prepare(turn, step, inputs)
        _warn(turn, step, warnings)
        turn.emit(_created(turn, found, key, turn.keep(arguments)))
        map_reduce.begin(turn, step, inputs, prepared, execution)
        return
    lookup = None
    try:
        lookup = None if step.purpose else output_cache.look_up(turn, step, found, execution.cache(), inputs)
    except output_cache.BadCacheKey as problem:
        warnings.append((CACHE_KEY_FAILED, f"nothing is kept: the cache's key cannot be made: {problem}"))
    _warn(turn, step, warnings)
    if lookup is not None and lookup.found is not None:
        turn.emit(_created(turn, found, key, turn.keep(arguments)))
        turn.emit(s.CacheNoted(step.name, lookup.entry, lookup.mode, lookup.ttl, "hit"))
        end_step(turn, step.name, Phase.SUCCEEDED, output_cache.HIT, output=jsontext.encode(lookup.found))
        return
    size, most = len(text), execution.inline_limit()
    is_near_limit = NEAR_LIMIT * most <= size <= most
    if lookup is None and not is_near_limit:
        attempts.launch(turn, found, key, arguments)
        return
    turn.emit(_created(turn, found, key))
    if lookup is not None:
        turn.emit(s.CacheNoted(step.name, lookup.entry, lookup.mode, lookup.ttl, "miss"))
    if is_near_limit:
        message = f"the step's input has {size} bytes, {most} may stay inline"
        turn.emit(s.Noted(step.name, "StepInputNearLimit", message, turn.now))
    attempts.begin(turn, step, arguments, execution, found.pair.provider)


def _created(turn: Turn, found: ResolvedEngram, key: str, arguments: Payload | None = None) -> s.StepRunCreated:
    reference, pair = found.reference.key, found.pair
    template, generation = pair.full_template_name, pair.template_generation
    return s.StepRunCreated(found.step.name, key, reference, template, generation, turn.now, arguments)


def _warn(turn: Turn, step: Step, warnings: list[tuple[str, str]]) -> None:
    """Only now: what may still ask must not have emitted anything."""
    for kind, message in warnings:
        turn.emit(s.Noted(step.name, kind, message, turn.now))


def _key(turn: Turn, step: Step, scope: Scope) -> tuple[str, list[tuple[str, str]]]:
    """Who repeats the step's business elsewhere recognises it by this (STY-016); and why it is not the author's."""
    body: Body = turn.body
    usual = default_key(body.namespace, body.name, step.name)
    template = step.data.get("idempotencyKeyTemplate")
    if not isinstance(template, str) or not template:
        return usual, []
    why = "it gives nothing"
    try:
        rendered = scope.render_key(template, KEY)
        written = business_key(rendered if isinstance(rendered, str) else jsontext.encode(rendered).decode())
        if written:
            return written, []
    except ExpressionError as problem:
        why = error_text(problem)
    return usual, [(KEY_FAILED, f"the default key is used: idempotencyKeyTemplate gives none: {why}")]


def _inputs(turn: Turn, step: Step, found: ResolvedEngram, scope: Scope) -> tuple[dict[str, Any], bytes]:
    """The resolved input, and its text."""
    if missing := scope.unmet(step.data.get("requires")):
        raise _Refused(Reason.DEPENDENCY_FAILED, missing)
    try:
        inputs = _rendered(turn, step, found, scope)
    except ExpressionError as problem:  # every dependency has ended: what is missing now will not come (STY-136)
        message = f"Input resolution failed after dependencies completed: {error_text(problem)}"
        raise _Refused(Reason.EXPRESSION_FAILED, message, "execution_error") from None
    if not isinstance(inputs, dict):
        raise _Refused(Reason.INPUT_SCHEMA_FAILED, "the step's input must be an object")
    text = jsontext.encode(inputs)
    whole: dict[str, Any] = _hydrated(turn, inputs, found.places) if may_refer(text) else inputs
    completed, problems = fitted(found.pair.input_schema, whole)
    if problems:
        raise _Refused(Reason.INPUT_SCHEMA_FAILED, f"Step input failed schema validation: {problems}")
    if found.template_name == MAP_TEMPLATE:
        _keep_to_document(completed, found)
    try:
        is_map = found.template_name == MAP_TEMPLATE
        whole = map_reduce.with_items(turn, step, completed, found.places) if is_map else completed
    except ExpressionError as problem:
        raise _Refused(Reason.EXECUTION_FAILED, error_text(problem), "initialization_error") from None
    return whole, text if whole is inputs else jsontext.encode(whole)


def _keep_to_document(inputs: dict[str, Any], found: ResolvedEngram) -> None:
    """A Story that a map runs stands in the document: what a template or a reference gives is data, and never run."""
    for stage in STAGES:
        told = inputs.get(stage)
        if isinstance(told, dict) and told.get("story") is not None and stage not in found.stories:
            message = f"{stage}.story must be written in the document; it cannot come from a template"
            raise _Refused(Reason.INVALID_CONFIGURATION, message)


def _at(value: Any, path: Place) -> Any:
    for step in path:
        value = value[step]
    return value


def _hydrated(turn: Turn, inputs: dict[str, Any], known: list[Any]) -> dict[str, Any]:
    """With what lies in storage, for the worker; references must be as they have to be (STY-219, STY-220)."""
    body: Body = turn.body
    for path, wrong in malformed(inputs, body.namespace):
        if names_secret(_at(inputs, path)) and list(path) not in known:
            continue  # it only looks like a reference
        where = ".".join(map(str, path))
        raise _Refused(Reason.INVALID_CONFIGURATION, f"{where}: {wrong}" if where else wrong)
    try:
        whole: dict[str, Any] = offloaded_data.hydrated(turn, inputs, is_last=True)
    except offloaded_data.BrokenReference as problem:
        raise _Refused(Reason.INVALID_CONFIGURATION, str(problem), "storage_error") from None
    return whole


def _rendered(turn: Turn, step: Step, found: ResolvedEngram, scope: Scope) -> Any:
    if step.purpose:  # a helper is given templates as they are
        return jsontext.decode(turn.text(turn.body.help_inputs[step.name]))
    rendered = scope.fill(found.written, found.input, INPUT)
    return with_stories(rendered, found.stories) if found.stories else rendered


def _places(turn: Turn, step: Step, found: ResolvedEngram) -> list[Any]:
    """Where in the input references to secrets and config maps stand, as the document has them."""
    if not step.purpose:
        return found.places
    known: list[Any] = jsontext.decode(turn.text(turn.body.help_inputs[step.name])).get(materialize.REFERENCES, [])
    return known


def _envelope(turn: Turn, step: Step, found: ResolvedEngram, key: str, inputs: bytes) -> bytes:
    """The task's arguments: see `engram_contract`."""
    body: Body = turn.body
    own: dict[str, Any] = {
        "step": {
            "id": step.name,
            "run": step_run_name(body, step.name),
            "uid": step_run_uid(turn.execution.id, body.life, step.name),
        },
        "storyRun": {"name": body.name, "namespace": body.namespace, "uid": turn.execution.id},
        "idempotencyKey": key,
    }
    if known := _places(turn, step, found):
        own["references"] = known
    if turn.state.forked_from:
        own["families"] = [family_of(run) for run in turn.state.forked_from]
    return b'{"inputs":%b,%b,%b' % (inputs, jsontext.encode(own)[1:-1], found.shared_arguments)
