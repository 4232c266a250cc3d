"""A step that refers to an Engram: it has a StepRun and is executed by a worker (STY-118, section 13).

requires ─▶ render `with` ─▶ defaults ─▶ schema ─▶ cache ─▶ execute ─▶ schema ─▶ postExecution ─▶ end   STY-214
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perdure.dialects.story.document.context import StoryContext, check_sub_story
from perdure.dialects.story.document.cursor import Cursor
from perdure.dialects.story.document.usage import check_step, maps
from perdure.dialects.story.plan.helper_steps import ITEMS, KEY
from perdure.dialects.story.plan.inline_stories import STAGES, inline_stories, with_stories
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.names import business_key, compose, default_key
from perdure.dialects.story.resources.resource import is_streaming, read_reference
from perdure.dialects.story.resources.step_run_names import step_run_name, step_run_uid
from perdure.dialects.story.run import attempts, concurrency, engram_lookup, map_reduce, output_cache
from perdure.dialects.story.run.engram_lookup import InvalidReference, MissingResource, ResolvedEngram
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values import materialize, offloaded_data
from perdure.dialects.story.values.references import Place, malformed, may_refer, names_secret
from perdure.dialects.story.values.schema_fit import fitted
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.events import ChildEnded
from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet

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
        if "map" in step.with_block:
            yield ITEMS

    def story_references(self, with_block: dict[str, Any]) -> Iterator[Any]:
        """References to the Stories that a map-reduce Engram runs for its items and over their results."""
        for stage in STAGES:
            if isinstance(settings := with_block.get(stage), dict):
                yield settings.get("storyRef")

    def note(self, program: Program, step: Step) -> str:
        target = read_reference(step.data.get("ref"), program.namespace)
        return f"engram {target.name}" if target is not None else "engram"

    def inner_stories(self, step: Step) -> dict[str, Any]:
        return inline_stories(step.with_block)

    def start(self, turn: Turn, step: Step) -> None:
        body: Body = turn.body
        state = body.steps.get(step.name)
        if state is not None and engram_lookup.is_held_back(state):
            engram_lookup.release_waiter(turn, state)
            return  # the step stays on the agenda: its next move looks again
        program: Program = turn.program
        engram = program.engrams.get(step.name) or engram_lookup.find_engram(turn, step)
        if isinstance(engram, MissingResource):
            if not engram_lookup.retry_lookup(turn, engram):
                engram_lookup.block(turn, step, engram)
            return
        if isinstance(engram, InvalidReference):
            end_step(turn, step.name, StoryPhase.FAILED, engram.message, reason=engram.reason)
        elif not engram.pair.has_code and engram_lookup.lacks_code(turn, engram):
            engram_lookup.block_for_code(turn, step, engram)
        elif not program.has_limits or engram.is_map or _has_permits(turn, step):  # a map needs no worker
            _prepare(turn, step, engram)

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """Start the next attempt after its delay, or continue a map."""
        if state.fan is not None:
            map_reduce.move(turn, step, state)
        else:
            attempts.repeat(turn, step, state)

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        if state.fan is not None:
            map_reduce.expire(turn, step, state)
        else:
            attempts.expire(turn, step, state)

    def on_child_end(self, turn: Turn, step: Step, state: StepState, end: ChildEnded) -> None:
        map_reduce.on_child_end(turn, step, state, end)

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        net.work(step, at)
        net.check_effects(step)


def _check_map(step: Cursor, name: str, story: StoryContext) -> None:
    """Check the Stories that a map runs for its items and over their results, named or inline (STY-271)."""
    with_block = step.value.get("with")
    for stage in STAGES:
        settings = step.at("with", stage)
        if isinstance(with_block, dict) and stage in with_block and _comes_from_data(with_block[stage]):
            message = f"step '{name}': {stage}.story must be written in the document; it cannot come from a template"
            settings.problem("InvalidConfiguration", message)
        if stage in inline_stories(with_block):
            story.validate_inline(settings.at("story"), compose("mapreduce", name), story)
        target = settings.at("storyRef")
        if target.value is not None and not any("{{" in str(text) for text in (target.value, target.at("name").value)):
            check_sub_story(target, name, story, may_be_itself=True)
            if stage == "map":
                _warn_of_streams(target, name, story)


def _warn_of_streams(target: Cursor, name: str, story: StoryContext) -> None:
    reference = read_reference(target.value, story.namespace)
    item_story = None if reference is None else story.context.find("Story", reference)
    if item_story is not None and is_streaming(item_story):
        target.warn(Reason.INVALID_CONFIGURATION, f"step '{name}': {map_reduce.STREAMING_ITEM}: the step will fail")


def _comes_from_data(settings: Any) -> bool:
    """Whether the Story of a stage, or the whole stage, would come from a template."""
    return isinstance(settings, str) or (isinstance(settings, dict) and isinstance(settings.get("story"), str))


def _has_permits(turn: Turn, step: Step) -> bool:
    """Whether the limits admit the step. A helper uses the permits of the step that waits for it, if that has any."""
    helped = turn.body.steps.get(step.helps)
    return (helped is not None and bool(helped.permits)) or concurrency.admit(turn, step)


class InputRefused(Exception):
    """The step fails before it is executed; such failures are never retried (STY-132)."""

    def __init__(self, reason: Reason, message: str, type: str = "validation_error") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.type = type


def _prepare(turn: Turn, step: Step, engram: ResolvedEngram) -> None:
    scope = Scope(turn, step)
    key, warnings = _key(turn, step, scope)
    execution = engram.execution
    try:
        inputs, text = _inputs(turn, step, engram, scope)
        arguments = _envelope(turn, step, engram, key, text)
    except InputRefused as refused:
        _warn(turn, step, warnings)
        turn.emit(created(turn, engram, key))
        error = StepError.make(refused.type, refused.message, retryable=False)
        end_step(turn, step.name, StoryPhase.FAILED, refused.message, reason=refused.reason, error=error)
        return
    if engram.is_map:
        missing = map_reduce.missing_story(turn, step, inputs)
        if missing is not None:
            if not engram_lookup.retry_lookup(turn, missing):
                engram_lookup.block(turn, step, missing)
            return
        prepared = map_reduce.prepare(turn, step, inputs)
        _warn(turn, step, warnings)
        turn.emit(created(turn, engram, key, turn.keep(arguments)))
        map_reduce.begin(turn, step, inputs, prepared, execution)
        return
    lookup, cache = None, execution.cache()
    if cache is not None and not step.purpose:
        try:
            lookup = output_cache.look_up(turn, step, engram, cache, inputs)
        except output_cache.BadCacheKey as problem:
            reason = f"the output is not cached: the cache key cannot be computed: {problem}"
            warnings.append((CACHE_KEY_FAILED, reason))
    if warnings:
        _warn(turn, step, warnings)
    if lookup is not None and lookup.found is not None:
        turn.emit(created(turn, engram, key, turn.keep(arguments)))
        turn.emit(s.CacheNoted(step.name, lookup.entry, lookup.mode, lookup.ttl, "hit"))
        end_step(turn, step.name, StoryPhase.SUCCEEDED, output_cache.HIT, output=jsontext.encode(lookup.found))
        return
    size, inline_limit = len(text), execution.inline_limit()
    is_near_limit = NEAR_LIMIT * inline_limit <= size <= inline_limit
    if lookup is None and not is_near_limit:
        attempts.launch(turn, engram, key, arguments)
        return
    turn.emit(created(turn, engram, key))
    if lookup is not None:
        turn.emit(s.CacheNoted(step.name, lookup.entry, lookup.mode, lookup.ttl, "miss"))
    if is_near_limit:
        message = f"the step's input has {size} bytes; the inline limit is {inline_limit}"
        turn.emit(s.Noted(step.name, "StepInputNearLimit", message, turn.now))
    attempts.begin(turn, step, arguments, engram.schedule)


def worker_arguments(turn: Turn, step: Step, engram: ResolvedEngram) -> tuple[str, bytes]:
    """The idempotency key and the task arguments of a streaming worker; its input is rendered once (STR-024)."""
    scope = Scope(turn, step)
    key, _ = _key(turn, step, scope)
    _, text = _inputs(turn, step, engram, scope)
    return key, _envelope(turn, step, engram, key, text)


def created(turn: Turn, engram: ResolvedEngram, key: str, arguments: Payload | None = None) -> s.StepRunCreated:
    reference, pair = engram.reference.key, engram.pair
    template, generation = pair.full_template_name, pair.template_generation
    return s.StepRunCreated(engram.step.name, key, reference, template, generation, turn.now, arguments)


def _warn(turn: Turn, step: Step, warnings: list[tuple[str, str]]) -> None:
    """Record warnings. Called late: code that may still ask for values must not have emitted anything."""
    for kind, message in warnings:
        turn.emit(s.Noted(step.name, kind, message, turn.now))


def _key(turn: Turn, step: Step, scope: Scope) -> tuple[str, list[tuple[str, str]]]:
    """The step's idempotency key (STY-016), and warnings if the author's template gives none."""
    body: Body = turn.body
    default = default_key(body.namespace, body.name, step.name)
    template = step.data.get("idempotencyKeyTemplate")
    if not isinstance(template, str) or not template:
        return default, []
    why = "the result is empty"
    try:
        rendered = scope.render_key(template, KEY)
        key = business_key(rendered if isinstance(rendered, str) else jsontext.encode(rendered).decode())
        if key:
            return key, []
    except ExpressionError as problem:
        why = error_text(problem)
    return default, [(KEY_FAILED, f"the default key is used because idempotencyKeyTemplate gives no key: {why}")]


def _inputs(turn: Turn, step: Step, engram: ResolvedEngram, scope: Scope) -> tuple[dict[str, Any], bytes]:
    """The resolved input and its JSON text.

    What `runtime` gives a streaming step for every packet counts as given: only a worker knows it (STR-014).
    """
    requires = step.data.get("requires")
    if requires and (missing := scope.unmet(requires)):
        raise InputRefused(Reason.DEPENDENCY_FAILED, missing)
    try:
        inputs = _rendered(turn, step, engram, scope)
    except ExpressionError as problem:  # every dependency has ended: missing data will not arrive later (STY-136)
        message = f"Input resolution failed after dependencies completed: {error_text(problem)}"
        raise InputRefused(Reason.EXPRESSION_FAILED, message, "execution_error") from None
    if not isinstance(inputs, dict):
        raise InputRefused(Reason.INPUT_SCHEMA_FAILED, "the step's input must be an object")
    text = jsontext.encode(inputs)
    if not may_refer(text) and engram.pair.input_schema is None and not engram.is_map:  # nearly always
        return inputs, text
    hydrated: dict[str, Any] = _hydrated(turn, inputs, engram.places) if may_refer(text) else inputs
    runtime = step.data.get("runtime") if turn.program.streams(step.block) else None
    completed, problems = fitted(engram.pair.input_schema, hydrated, runtime)
    if problems:
        raise InputRefused(Reason.INPUT_SCHEMA_FAILED, f"Step input failed schema validation: {problems}")
    if engram.is_map:
        _refuse_computed_stories(completed, engram)
    try:
        hydrated = map_reduce.with_items(turn, step, completed, engram.places) if engram.is_map else completed
    except ExpressionError as problem:
        raise InputRefused(Reason.EXECUTION_FAILED, error_text(problem), "initialization_error") from None
    return hydrated, text if hydrated is inputs else jsontext.encode(hydrated)


def _refuse_computed_stories(inputs: dict[str, Any], engram: ResolvedEngram) -> None:
    """A Story that a map runs must be written in the document: results of templates and references are data."""
    for stage in STAGES:
        stage_block = inputs.get(stage)
        if isinstance(stage_block, dict) and stage_block.get("story") is not None and stage not in engram.stories:
            message = f"{stage}.story must be written in the document; it cannot come from a template"
            raise InputRefused(Reason.INVALID_CONFIGURATION, message)


def _at(value: Any, path: Place) -> Any:
    for step in path:
        value = value[step]
    return value


def _hydrated(turn: Turn, inputs: dict[str, Any], reference_paths: list[Any]) -> dict[str, Any]:
    """The input with stored values read for the worker; its references must be valid (STY-219, STY-220)."""
    body: Body = turn.body
    for path, problem_text in malformed(inputs, body.namespace):
        if names_secret(_at(inputs, path)) and list(path) not in reference_paths:
            continue  # it only looks like a reference
        field = ".".join(map(str, path))
        raise InputRefused(Reason.INVALID_CONFIGURATION, f"{field}: {problem_text}" if field else problem_text)
    try:
        hydrated: dict[str, Any] = offloaded_data.hydrated(turn, inputs, is_last=True)
    except offloaded_data.BrokenReference as problem:
        raise InputRefused(Reason.INVALID_CONFIGURATION, str(problem), "storage_error") from None
    return hydrated


def _rendered(turn: Turn, step: Step, engram: ResolvedEngram, scope: Scope) -> Any:
    if step.purpose:  # a helper gets its templates unrendered
        return jsontext.decode(turn.text(turn.body.help_inputs[step.name]))
    rendered = scope.fill(engram.input_template, engram.input, INPUT)
    return with_stories(rendered, engram.stories) if engram.stories else rendered


def _helper_places(turn: Turn, step: Step) -> list[Any]:
    paths: list[Any] = jsontext.decode(turn.text(turn.body.help_inputs[step.name])).get(materialize.REFERENCES, [])
    return paths


def _envelope(turn: Turn, step: Step, engram: ResolvedEngram, key: str, inputs: bytes) -> bytes:
    """The task's arguments: see `engram_contract`."""
    body: Body = turn.body
    members: dict[str, Any] = {
        "step": {
            "id": step.name,
            "run": step_run_name(body, step.name),
            "uid": step_run_uid(turn.execution.id, body.life, step.name),
        },
        "storyRun": {"name": body.name, "namespace": body.namespace, "uid": turn.execution.id},
        "idempotencyKey": key,
    }
    # The paths in the input of references to secrets and config maps, as written in the document.
    if paths := _helper_places(turn, step) if step.purpose else engram.places:
        members["references"] = paths
    if turn.state.forked_from:
        members["families"] = [family_of(run) for run in turn.state.forked_from]
    return b'{"inputs":%b,%b,%b' % (inputs, jsontext.encode_finite(members)[1:-1], engram.shared_arguments)
