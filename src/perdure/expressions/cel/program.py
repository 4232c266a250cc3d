"""The interface of this package: compile once, evaluate many times."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from perdure.expressions.cel.checks import check
from perdure.expressions.cel.frame import (
    BYTES,
    DEFAULT_LIMITS,
    LATER,
    STEPS,
    STEPS_AT_ONCE,
    WORK_OF_A_STEP,
    Closure,
    Frame,
    Limits,
    SharedBudget,
    charge,
    read_int,
)
from perdure.expressions.cel.functions import STANDARD, Library
from perdure.expressions.cel.names import Scope
from perdure.expressions.cel.parser import parse
from perdure.expressions.cel.planner.planner import plan
from perdure.expressions.cel.values import Value
from perdure.expressions.errors import Failure, LimitExceeded, OutOfStack, SyntaxFault
from perdure.expressions.source import ExpressionProblem, Source
from perdure.kernel.evaluation_trace import current_trace
from perdure.kernel.turn_budget import TurnTooExpensive, begin_compiling, current


class Environment:
    """What every expression of one host shares: functions, limits, and how numbers in data are read."""

    __slots__ = ("library", "limits", "read_leaf")

    def __init__(
        self,
        library: Library = STANDARD,
        limits: Limits = DEFAULT_LIMITS,
        read_leaf: Callable[[int], Value] = read_int,
    ) -> None:
        self.library = library
        self.limits = limits
        self.read_leaf = read_leaf


DEFAULT = Environment()
_SMALL = 32  # parts of an expression that cost nothing besides the call
_WORK_OF_A_CALL = 30  # of the turn, not of the expression


class Program:
    """A compiled expression. Holds no data; safe to share and to evaluate any number of times."""

    __slots__ = ("_at_most", "_library", "_locals", "_run", "_scope", "_weight", "findings", "source")

    def __init__(self, text: str, scope: Scope, environment: Environment) -> None:
        self.source = Source(text)
        limits = environment.limits
        if len(text) > limits.source:
            raise SyntaxFault(
                (ExpressionProblem.at(self.source, 0, f"the expression is longer than {limits.source} characters"),)
            )
        begin_compiling(len(text))
        try:
            tree = parse(self.source, limits.depth)
            self.findings = check(tree, self.source, scope, environment.library)
            planned = plan(tree, scope, environment.library)
        except RecursionError:
            raise OutOfStack((ExpressionProblem.at(self.source, 0, "the expression is nested too deeply"),)) from None
        self._run = planned.run
        self._weight = tree.size if tree.size > _SMALL else 0
        self._scope = scope
        self._library = environment.library
        self._at_most = limits.steps, limits.memory, limits, environment.read_leaf
        self._locals = planned.locals

    def evaluate(self, roots: Mapping[str, Any], clock: object = None, budget: SharedBudget | None = None) -> Value:
        """The value for these roots, which are read in place and never changed.

        Raises `EvaluationFault` or `LimitExceeded`. `clock` is passed to functions that ask for it. Expressions that
        share a `budget` may together use no more than one of them could alone.
        """
        most, memory, limits, read_leaf = self._at_most
        if budget is not None:
            if budget.steps < most:
                most = budget.steps
            if budget.memory < memory:
                memory = budget.memory
        steps, later = most, 0
        work = current.get()
        if work is not None:
            steps = work.allow(most, WORK_OF_A_STEP)
            if work.rest is not None and steps > STEPS_AT_ONCE:
                steps, later = STEPS_AT_ONCE, steps - STEPS_AT_ONCE
        frame: list[Any] = [roots, steps, limits, read_leaf, clock, memory, later]
        run, local_variables = self._run, self._locals
        if current_trace.get() is not None:
            run, local_variables = self._tracing()
        if local_variables:
            frame += (None,) * local_variables
        try:
            if self._weight:
                charge(frame, self._weight)
            return run(frame)
        except Failure as failure:
            if frame[STEPS] < 0 and steps + later < most:
                raise TurnTooExpensive("an expression exceeds the budget of the turn") from None
            failure.locate(self.source)
            raise
        except RecursionError:
            raise LimitExceeded("the data are nested too deeply") from None
        except MemoryError:
            raise LimitExceeded("there is not enough memory") from None
        finally:
            used = steps + later - frame[STEPS] - frame[LATER]
            if work is not None:
                work.left -= WORK_OF_A_STEP * used + _WORK_OF_A_CALL
            if budget is not None:
                budget.steps -= used
                budget.memory -= memory - frame[BYTES]

    def _tracing(self) -> tuple[Closure, int]:
        """The same program, which reports to the current trace what it reads."""
        tree = parse(self.source, self._at_most[2].depth)
        planned = plan(tree, self._scope, self._library, traces=True)
        trace = current_trace.get()
        assert trace is not None

        def run(frame: Frame) -> Value:
            with trace.evaluating(self.source.text) as evaluation:
                value = evaluation.value = planned.run(frame)
                return value

        return run, planned.locals


def compile_program(
    text: str, names: frozenset[str] | None = None, *, container: str = "", environment: Environment = DEFAULT
) -> Program:
    """Compile, or find the program compiled earlier if it is not very long. Raises `SyntaxFault`.

    `names` are the variables in scope; without them every name is treated as a variable.
    """
    scope = Scope(names, container)
    if len(text) > _LONGEST_REMEMBERED:
        return Program(text, scope, environment)
    return _compile(text, scope, environment)


_LONGEST_REMEMBERED = 2000  # so that the memory of programs is bounded in bytes, not only in number


@lru_cache(maxsize=1024)
def _compile(text: str, scope: Scope, environment: Environment) -> Program:
    return Program(text, scope, environment)
