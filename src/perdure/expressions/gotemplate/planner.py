"""From a tree to closures: names are resolved once, a rendering only calls them.

An expression's closure returns a value, a statement's closure writes and returns whether a loop is to be left.
"""

from collections.abc import Callable, Iterator

from perdure.expressions.errors import EvaluationFault, Failure
from perdure.expressions.gotemplate.access import look_up
from perdure.expressions.gotemplate.formatting import write_output
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.library import Library
from perdure.expressions.gotemplate.syntax import (
    ActionNode,
    Block,
    CommandNode,
    ConditionNode,
    Dot,
    Literal,
    LoopControl,
    Name,
    Nil,
    Operand,
    Path,
    Pipeline,
    Range,
    Statement,
    Text,
    Variable,
)
from perdure.expressions.gotemplate.values import Value, describe, is_true, require_present, sorted_keys

ANSWERS = frozenset({"default", "coalesce", "dig", "empty", "exists"})

Expression = Callable[[Frame], Value]
Stage = Callable[..., Value]  # takes a frame and, from the second stage on, the piped value
Performer = Callable[[Frame], str | None]


def plan(block: Block, library: Library) -> Performer:
    """The closure that writes this block. Every function it names is in the library."""
    return _Planner(library).block(block)


class _Planner:
    __slots__ = ("_library",)

    def __init__(self, library: Library) -> None:
        self._library = library

    def block(self, block: Block) -> Performer:
        performers = tuple(self._statement(statement) for statement in block)
        price = len(performers) + sum(map(_count_operands, block)) // 2

        def perform(frame: Frame) -> str | None:
            frame.budget.charge(price)
            for performer in performers:
                leaving = performer(frame)
                if leaving is not None:
                    return leaving
            return None

        return perform

    def _statement(self, statement: Statement) -> Performer:
        match statement:
            case Text(text=text):
                return lambda frame: frame.write(text)
            case ActionNode():
                return self._action(statement)
            case ConditionNode():
                return self._choice(statement)
            case Range():
                return self._range(statement)
            case LoopControl(keyword=keyword):
                return lambda _: keyword

    def _action(self, action: ActionNode) -> Performer:
        evaluate = self._pipeline(action.pipeline)
        is_silent = bool(action.pipeline.slots)

        def perform(frame: Frame) -> None:
            value = evaluate(frame)
            if is_silent:
                return
            with _blaming(action.pipeline):
                frame.write(write_output(value, frame.budget))

        return perform

    def _choice(self, choice: ConditionNode) -> Performer:
        arms = tuple((condition, self._pipeline(condition), self.block(body)) for condition, body in choice.arms)
        otherwise = self.block(choice.otherwise)
        moves_dot = choice.keyword == "with"

        def perform(frame: Frame) -> str | None:
            for condition, evaluate, body in arms:
                with _blaming(condition):
                    value = evaluate(frame)
                    chosen = is_true(value)
                if chosen and moves_dot:
                    outer, frame.dot = frame.dot, value
                    leaving = body(frame)
                    frame.dot = outer
                    return leaving
                if chosen:
                    return body(frame)
            return otherwise(frame)

        return perform

    def _range(self, loop: Range) -> Performer:
        evaluate = self._pipeline(loop.pipeline)
        body, otherwise = self.block(loop.body), self.block(loop.otherwise)
        slots = loop.pipeline.slots

        def perform(frame: Frame) -> str | None:
            with _blaming(loop.pipeline):
                pairs = _pairs(frame, evaluate(frame), len(slots))
            outer, ran = frame.dot, False
            for index, element in pairs:
                ran = True
                frame.budget.charge(1)
                for slot, value in zip(slots, (index, element) if len(slots) == 2 else (element,), strict=False):
                    frame.slots[slot] = value
                frame.dot = element
                if body(frame) == "break":
                    break
            frame.dot = outer
            return None if ran else otherwise(frame)

        return perform

    def _pipeline(self, pipeline: Pipeline) -> Expression:
        first, *others = (self._command(command) for command in pipeline.commands)
        slots = pipeline.slots
        if not others and not slots:
            return first
        is_answered = len(pipeline.commands) > 1 and _handles_absence(pipeline.commands[1])

        def evaluate(frame: Frame) -> Value:
            absent = frame.absent
            value = first(frame)
            if is_answered and value is None:
                frame.absent = absent  # the next stage provides a default
            for stage in others:
                value = stage(frame, value)
            for slot in slots:
                frame.slots[slot] = value
            return value

        return evaluate

    def _command(self, command: CommandNode) -> Stage:
        function, *further_operands = command.operands
        arguments = tuple(self._operand(other) for other in further_operands)
        match function:
            case Name(name="and" | "or" as name):
                return _plan_short_circuit(name == "or", arguments, command)
            case Name(name=name):
                return self._call(name, arguments, command)
            case Nil():
                return _plan_failure("nil is not a command", command)
        evaluate = self._operand(function)
        if arguments:
            return _plan_failure("this is not a function, so it takes no arguments", command)

        def stage(frame: Frame, *piped: Value) -> Value:
            if piped:
                _fail("this is not a function, so nothing can be piped into it", command)
            return evaluate(frame)

        return stage

    def _call(self, name: str, arguments: tuple[Expression, ...], command: CommandNode) -> Stage:
        call = self._library.functions[name].call
        is_answer = _handles_absence(command)

        def stage(frame: Frame, *piped: Value) -> Value:
            absent = frame.absent
            values = [argument(frame) for argument in arguments]
            values += piped
            try:
                result = call(frame, values)
                if is_answer:
                    frame.absent = absent if result is not None else frame.absent or name
                return result
            except EvaluationFault as fault:
                raise EvaluationFault(f"{name}: {fault.message}", command) from None
            except Failure as failure:
                failure.blame(command)
                raise

        return stage

    def _operand(self, operand: Operand) -> Expression:
        match operand:
            case Dot():
                return lambda frame: frame.dot
            case Nil():
                return lambda _: None
            case Literal(value=value):
                return lambda _: value
            case Variable(slot=slot):
                return lambda frame: frame.slots[slot]
            case Name():
                return self._command(CommandNode(operand.start, operand.end, (operand,)))
            case Pipeline():
                return self._pipeline(operand)
            case Path():
                return self._path(operand)

    def _path(self, path: Path) -> Expression:
        receiver = self._operand(path.receiver)
        steps = path.steps

        def evaluate(frame: Frame) -> Value:
            value = receiver(frame)
            try:
                for step in steps:
                    value = look_up(frame, value, step)
            except Failure as failure:
                failure.blame(path)
                raise
            return value

        return evaluate


def _count_operands(statement: Statement) -> int:
    """What a statement itself evaluates, at most: operands and the steps of paths, without the blocks inside it."""
    match statement:
        case ActionNode(pipeline=pipeline) | Range(pipeline=pipeline):
            waiting: list[Operand] = [pipeline]
        case ConditionNode(arms=arms):
            waiting = [condition for condition, _ in arms]
        case _:
            return 0
    count = 0
    while waiting:
        match waiting.pop():
            case Pipeline(commands=commands):
                waiting.extend(operand for command in commands for operand in command.operands)
            case Path(receiver=receiver, steps=steps):
                count += len(steps)
                waiting.append(receiver)
            case _:
                count += 1
    return count


def _handles_absence(command: CommandNode) -> bool:
    """Whether a function provides a default for, or tests for, a value that may be missing (STY-200)."""
    function = command.operands[0]
    return isinstance(function, Name) and function.name in ANSWERS


def _plan_short_circuit(stops_at: bool, arguments: tuple[Expression, ...], command: CommandNode) -> Stage:
    """The first argument that decides, or the last; later ones are not evaluated."""

    def stage(frame: Frame, *piped: Value) -> Value:
        if not arguments and not piped:
            _fail("it takes at least 1 argument", command)
        value: Value = None
        for argument in arguments:
            value = argument(frame)
            with _blaming(command):
                if is_true(value) is stops_at:
                    return value
        return piped[0] if piped else value

    return stage


def _plan_failure(message: str, command: CommandNode) -> Stage:
    return lambda *_: _fail(message, command)


def _fail(message: str, command: CommandNode) -> Value:
    raise EvaluationFault(message, command)


class _blaming:  # noqa: N801  reads as a verb where it is used
    """Failures inside refer to this part of the template, unless they name a smaller one."""

    __slots__ = ("_culprit",)

    def __init__(self, culprit: Pipeline | CommandNode) -> None:
        self._culprit = culprit

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, Failure):
            problem.blame(self._culprit)


def _pairs(frame: Frame, value: Value, variables: int) -> Iterator[tuple[Value, Value]]:
    """What a loop iterates over: maps in the order of their keys, an integer as the numbers below it."""
    if type(value) is list:
        return enumerate(value)
    if isinstance(value, dict):
        frame.budget.charge_elements(len(require_present(value)))
        return ((key, value[key]) for key in sorted_keys(value))
    if value is None:
        return iter(())
    if type(value) is int:
        if variables > 1:
            raise EvaluationFault("a range over an integer has one variable")
        return ((None, number) for number in range(value))
    raise EvaluationFault(f"range cannot iterate over {describe(value)}")
