"""Closures for function and method calls: the overload is found by the exact types of the arguments."""

from perdure.expressions.cel.frame import Closure, Frame
from perdure.expressions.cel.functions.library import Function, no_overload
from perdure.expressions.cel.functions.patterns import compile_at_run_time, compile_checked, search_compiled
from perdure.expressions.cel.planner.paths import unknown
from perdure.expressions.cel.syntax import CallExpression
from perdure.expressions.cel.values import Optional, Value, type_name
from perdure.expressions.errors import EvaluationFault, Failure

# Closures for `matches`: a constant pattern is compiled with the expression, any other at its first use.


def match_constant(node: CallExpression, text: Closure, pattern: str) -> Closure:
    try:
        compiled = compile_checked(pattern)
    except EvaluationFault as refusal:
        return unknown(refusal.message, node)

    def run(frame: Frame) -> bool:
        value = text(frame)
        try:
            if type(value) is not str:
                raise no_overload("matches", (value, pattern), is_method=True)
            return search_compiled(frame, value, compiled)
        except Failure as failure:
            failure.blame(node)
            raise

    return run


def match_variable(node: CallExpression, text: Closure, pattern: Closure, slot: int) -> Closure:
    def run(frame: Frame) -> Value:
        value, pattern_text = text(frame), pattern(frame)
        try:
            if type(value) is not str or type(pattern_text) is not str:
                raise no_overload("matches", (value, pattern_text), is_method=True)
            cached = frame[slot]
            if cached is None or cached[0] != pattern_text:
                cached = frame[slot] = (pattern_text, compile_at_run_time(frame, pattern_text))
            return search_compiled(frame, value, cached[1])
        except Failure as failure:
            failure.blame(node)
            raise

    return run


def call(node: CallExpression, name: str, function: Function, args: list[Closure], *, is_method: bool) -> Closure:
    """A call of `function`; for a method the target is the first of `args`."""
    if is_method and name in ("or", "orValue") and len(args) == 2:
        return _alternative(node, args[0], args[1])
    find, variadic = function.overloads.get, function.variadic
    if len(args) == 1:
        (only,) = args

        def call_one(frame: Frame) -> Value:
            value = only(frame)
            serve = find((type(value),)) or variadic
            try:
                if serve is None:
                    raise no_overload(name, (value,), is_method=is_method)
                return serve(frame, value)
            except Failure as failure:
                failure.blame(node)
                raise

        return call_one
    if len(args) == 2:
        first, second = args

        def call_two(frame: Frame) -> Value:
            first_value, second_value = first(frame), second(frame)
            serve = find((type(first_value), type(second_value))) or variadic
            try:
                if serve is None:
                    raise no_overload(name, (first_value, second_value), is_method=is_method)
                return serve(frame, first_value, second_value)
            except Failure as failure:
                failure.blame(node)
                raise

        return call_two

    def call_many(frame: Frame) -> Value:
        values = tuple([argument(frame) for argument in args])
        serve = find(tuple(map(type, values))) or variadic
        try:
            if serve is None:
                raise no_overload(name, values, is_method=is_method)
            return serve(frame, *values)
        except Failure as failure:
            failure.blame(node)
            raise

    return call_many


def _alternative(node: CallExpression, target: Closure, other: Closure) -> Closure:
    """`or` and `orValue` evaluate their argument only when it is needed."""

    def run(frame: Frame) -> Value:
        optional = target(frame)
        if type(optional) is not Optional:
            raise EvaluationFault(f"no such overload: {type_name(optional)}.{node.function}(…)", node)
        if optional.has_value:
            return optional if node.function == "or" else optional.value
        value = other(frame)
        if node.function == "or" and type(value) is not Optional:
            raise EvaluationFault(no_overload(node.function, (optional, value), is_method=True).message, node)
        return value

    return run
