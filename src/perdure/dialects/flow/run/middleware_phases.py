"""How one middleware entry is entered, receives a Result and is left (section 10 of MWL).

onEntry ──▶ INSIDE ──Result rises──▶ onSuccess | onFailure ──▶ LEAVING ──▶ onAlways ──▶ gone
              ▲                              │ run again                      └─ CLEANING, while its call runs
              └────────── WAITING ◀──────────┘
"""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.middleware.protocol import (
    Again,
    Cleanup,
    Emit,
    Middleware,
    MiddlewareDirective,
    PhaseContext,
    SetBound,
)
from perdure.dialects.flow.plan.instants import clamp
from perdure.dialects.flow.plan.program import MiddlewareEntry as EntryProgram
from perdure.dialects.flow.plan.program import MiddlewarePhase
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.run.scope import Scope
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Frame, MiddlewareScope, ScopePosition
from perdure.dialects.flow.state.failures import Envelope, Fault, checked_member, failure
from perdure.dialects.flow.state.values import NOTHING, RISING, Carried, Cell, Result
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import NULL, Payload

FIRST_BOUND_RANK = 1  # ends of waits have rank 0; bounds follow, the outermost first (O-23)


def open_entry(move: Move, program: EntryProgram) -> None:
    """Run `onEntry`; afterwards the entry is established, or its failure rises from its position."""
    frame, now = move.frame, move.now
    trial = MiddlewareScope(program.site, now, frame.value, frame.value)
    trial.metadata = _metadata(dict(program.provider.metadata))
    phase = program.phase("onEntry")
    try:
        scope = move.phase_scope(trial, now, None)
        context = _phase_context(move, program, "onEntry", phase, scope, trial, None)
        directive = _run_action(program.provider, program.provider.on_entry, context)
        if directive.reveals:
            trial.metadata = _metadata({**context.metadata, **directive.reveals})
            scope = move.phase_scope(trial, now, None)
        output = scope.evaluate_to_carry(phase.shape)
        bound = scope.bindings(phase.assign)
    except Fault as fault:
        move.emit(f.EntryRefused(move.number, program.site, move.encode(fault.envelope)))
        return
    metadata = {**program.provider.metadata, **directive.reveals, **directive.becomes}
    facts: dict[str, Any] = {
        "config": _encoded(directive.config),
        "memory": _encoded(directive.memory),
        "metadata": _encoded(metadata or None),
    }
    match directive:
        case SetBound(deadline=deadline, failure=explanation):
            facts["timer"] = move.turn.set_timer(deadline, bound_rank(frame, len(frame.stack)))
            facts["explanation"] = move.encode(explanation)
        case Emit(result=result):
            facts["emits"] = True
            if result is not None:
                facts["ok"], content = _split_result(result)
                facts["content"] = move.encode(content)
        case _:
            pass
    move.emit(f.EntryOpened(move.number, program.site, now, output, bound, **facts))


def bound_rank(frame: Frame, depth: int) -> int:
    return FIRST_BOUND_RANK + frame.depth + depth


def begin_anew(move: Move, entry: MiddlewareScope) -> MiddlewareDirective | None:
    """What `onEntry` says now of an entry around a step that is redriven; None where nothing begins anew."""
    program = move.program.entries[entry.site]
    if not program.provider.renews:
        return None
    trial = MiddlewareScope(program.site, move.now, entry.input, entry.output)
    trial.metadata = _metadata(dict(program.provider.metadata))
    try:
        scope = move.phase_scope(trial, move.now, None)
        context = _phase_context(move, program, "onEntry", program.phase("onEntry"), scope, trial, None)
        return _run_action(program.provider, program.provider.on_entry, context)
    except Fault:
        return None  # it was accepted before; what it said then stays


def rise(move: Move, entry: MiddlewareScope) -> None:
    """A Result has reached the entry."""
    program = move.program.entries[entry.site]
    if entry.position is ScopePosition.INSIDE:
        if entry.timer:
            move.turn.drop_timer(entry.timer)  # accepted: the bound can no longer fire (MWL-421)
        else:
            _ascend(move, entry, program)
    elif entry.position is ScopePosition.LEAVING:
        leave(move, entry)
    else:
        _finish_cleanup(move, entry, program)


def _ascend(move: Move, entry: MiddlewareScope, program: EntryProgram) -> None:
    risen = move.frame.rising
    assert risen is not None
    name = "onSuccess" if risen.ok else "onFailure"
    phase = program.phase(name)
    try:
        scope = move.phase_scope(entry, move.now, risen)
        context = _phase_context(move, program, name, phase, scope, entry, risen)
        act = program.provider.on_success if risen.ok else program.provider.on_failure
        directive = _run_action(program.provider, act, context)
        match directive:
            case Again():
                _run_again(move, entry, phase, scope, directive, risen)
            case Emit(result=result) if result is not None:
                ok, content = _split_result(result)
                new = move.encode(content) if ok else move.carry_failure(content)
                _emit(move, entry, phase, Result(ok, Cell(NULL, content)), directive, new)
            case _:
                _emit(move, entry, phase, risen, directive)
    except Fault as fault:
        superseded = _supersede(move, risen, fault)
        move.emit(f.PhaseRan(move.number, move.now, False, superseded))


class _PhaseFault(Fault):
    """A fault after the action substituted the Result: what is chained is the substitute (MWL-372)."""

    def __init__(self, envelope: Envelope, risen: Result) -> None:
        super().__init__(envelope)
        self.risen = risen


def _supersede(move: Move, risen: Result, fault: Fault) -> Carried:
    return move.supersede(fault.envelope, fault.risen if isinstance(fault, _PhaseFault) else risen)


def _emit(
    move: Move,
    entry: MiddlewareScope,
    phase: MiddlewarePhase,
    risen: Result,
    directive: MiddlewareDirective,
    new: Carried | None = None,
) -> None:
    """Shape what the entry emits, then `assign`; `new` carries a Result that the action put in place of what rose."""
    revealed = entry
    if directive.reveals:
        revealed = MiddlewareScope(entry.site, entry.at, entry.input, entry.output)
        revealed.metadata = _metadata({**(entry.metadata.read(move.turn) or {}), **directive.reveals})
    scope = move.phase_scope(revealed, move.now, risen)
    try:
        if risen.ok:
            content = scope.evaluate_to_carry(phase.shape)
        elif phase.envelope:
            content = move.carry_failure(_transform_failure(scope, phase, risen.cell.read(move.turn)))
        else:
            content = None
        bound = scope.bindings(phase.assign)
    except Fault as fault:
        raise _PhaseFault(fault.envelope, risen) from None
    if content is None:
        content = new
    if new is not None and risen.ok and move.frame.rising is not None and not move.frame.rising.ok:
        move.turn.caught += 1
    move.emit(f.PhaseRan(move.number, move.now, risen.ok, content, bound))


def _transform_failure(scope: Scope, phase: MiddlewarePhase, superseded: Envelope) -> Envelope:
    """A new failure: written members as evaluated, the others inherited, the old one linked (MWL-365)."""
    evaluated = {name: checked_member(name, scope.member(field), field.site) for name, field in phase.envelope.items()}
    inherited = {name: value for name, value in superseded.items() if name != "previous"}
    return {**inherited, "previous": superseded, **evaluated}


def _run_again(
    move: Move, entry: MiddlewareScope, phase: MiddlewarePhase, scope: Scope, directive: Again, risen: Result
) -> None:
    """Consume the Result: the shaping key has a destination only after a success (MWL-383)."""
    carried = None
    if risen.ok:
        carried = scope.evaluate_to_carry(phase.shape)
        carried = RISING if carried is None else carried
    bound = scope.bindings(phase.assign)
    metadata = {**(entry.metadata.read(move.turn) or {}), **directive.reveals, **directive.becomes}
    facts = (bound, directive.restore, _encoded(directive.memory), _encoded(metadata or None))
    if not risen.ok:
        move.turn.caught += 1
    if directive.delay > 0 and carried is None:
        timer = move.turn.set_timer(clamp(move.now + directive.delay))
        move.emit(f.GapBegan(move.number, move.now, timer, *facts))
    else:
        move.emit(f.RunAgain(move.number, move.now, carried, *facts))


def leave(move: Move, entry: MiddlewareScope) -> None:
    """Run `onAlways` with the Result in flight, on a normal ascent as in an unwind."""
    program = move.program.entries[entry.site]
    risen = move.frame.rising
    assert risen is not None
    phase = program.phase("onAlways")
    scope = move.phase_scope(entry, move.now, risen)
    try:
        context = _phase_context(move, program, "onAlways", phase, scope, entry, risen)
        directive = _run_action(program.provider, program.provider.on_always, context)
        if isinstance(directive, Cleanup):
            event: f.CleanupBegan | f.EntryLeft = f.CleanupBegan(move.number, move.now)
        else:
            event = f.EntryLeft(move.number, None, scope.bindings(phase.assign))
    except Fault as fault:
        event = f.EntryLeft(move.number, move.supersede(fault.envelope, risen))
    if entry.timer:
        move.turn.drop_timer(entry.timer)  # of a bound or a gap that was interrupted
    move.emit(event)


def _finish_cleanup(move: Move, entry: MiddlewareScope, program: EntryProgram) -> None:
    """The cleanup's Result is discarded, unless it is a failure: then the phase has failed (MWL-443)."""
    cleaned, pending = move.frame.rising, entry.pending
    assert cleaned is not None and pending is not None
    try:
        if not cleaned.ok:
            raise Fault(cleaned.cell.read(move.turn))
        bound = move.phase_scope(entry, entry.at, pending).bindings(program.phase("onAlways").assign)
    except Fault as fault:
        move.emit(f.EntryLeft(move.number, move.supersede(fault.envelope, pending)))
    else:
        move.emit(f.EntryLeft(move.number, None, bound))


def _phase_context(
    move: Move,
    program: EntryProgram,
    name: str,
    phase: MiddlewarePhase,
    scope: Scope,
    entry: MiddlewareScope,
    risen: Result | None,
) -> PhaseContext:
    """Check `when`, evaluate and validate: (1) and (2) of MWL-360."""
    arguments: dict[str, Any] | None = None
    if scope.holds(phase.when):
        arguments = scope.arguments(phase.arguments)
        if not (program.provider.dispatches and name == "onAlways"):
            program.provider.parameters_of(name).validate(arguments, f"{program.provider.uri} {name}")
    turn = move.turn
    return PhaseContext(
        entry.at if name == "onEntry" else move.now,
        arguments,
        None if risen is None else risen.read(turn),
        None if entry.config is None else entry.config.read(turn),
        None if entry.memory is None else entry.memory.read(turn),
        entry.metadata.read(turn) or {},
        _random_source(move, entry),
    )


def _run_action(
    provider: Middleware, act: Callable[[PhaseContext], MiddlewareDirective], context: PhaseContext
) -> MiddlewareDirective:
    """Run the action. Built-in ones do not fail; an exception of a custom one is a failure of its phase."""
    if provider.is_ours:
        return act(context)
    try:
        directive = act(context)
        for data in (directive.config, directive.memory, dict(directive.reveals), dict(directive.becomes)):
            jsontext.encode(data)
    except Exception as error:
        code = f"Provider.Middleware.{provider.prefix}.Errors.{type(error).__name__}"
        raise Fault(failure(code, str(error))) from None
    return directive


def _random_source(move: Move, entry: MiddlewareScope) -> Callable[[], float]:
    counter = iter(range(1, 1_000_000))
    return lambda: move.turn.draw(f"{move.path}{entry.site}/{move.turn.state.seq}", next(counter))


def _split_result(result: dict[str, Any]) -> tuple[bool, Any]:
    return (True, result["value"]) if result["type"] == "success" else (False, result)


def _metadata(members: dict[str, Any]) -> Cell:
    return Cell(jsontext.encode_finite(members), members) if members else NOTHING


def _encoded(data: Any) -> Payload | None:
    return None if data is None else jsontext.encode(data)
