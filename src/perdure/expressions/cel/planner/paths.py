"""Closures that read variables and their members.

Most expressions read `a.b.c` from data, so a path of constant keys is one closure. It only handles plain data that
exist; everything else is left to the general closure, which handles the errors.
"""

from perdure.expressions.cel import access
from perdure.expressions.cel.frame import READ_LEAF, ROOTS, Closure, Frame
from perdure.expressions.cel.syntax import Node
from perdure.expressions.cel.values import Value
from perdure.expressions.errors import EvaluationFault, Failure


def variable(name: str, node: Node) -> Closure:
    def read(frame: Frame) -> Value:
        try:
            value = frame[ROOTS][name]
        except KeyError:
            raise EvaluationFault(f"`{name}` has no value here", node) from None
        if type(value) is int:
            try:
                return frame[READ_LEAF](value)
            except Failure as failure:
                failure.blame(node)
                raise
        return value

    return read


def local(slot: int) -> Closure:
    def read(frame: Frame) -> Value:
        return frame[slot]

    return read


def unknown(message: str, node: Node) -> Closure:
    """An unknown name is an error when it is evaluated: `&&` and `||` may absorb it."""

    def fail(frame: Frame) -> Value:
        raise EvaluationFault(message, node)

    return fail


def root_path(name: str, keys: tuple[str, ...], general: Closure) -> Closure:
    """`name.key.key…` for constant keys, by reference."""
    if len(keys) == 1:
        (key,) = keys

        def one(frame: Frame) -> Value:
            try:
                holder = frame[ROOTS][name]
                if type(holder) is dict:
                    value = holder[key]
                    return frame[READ_LEAF](value) if type(value) is int else value
            except (KeyError, Failure):
                pass
            return general(frame)

        return one
    if len(keys) == 2:
        first, second = keys

        def two(frame: Frame) -> Value:
            try:
                holder = frame[ROOTS][name]
                if type(holder) is dict:
                    holder = holder[first]
                    if type(holder) is dict:
                        value = holder[second]
                        return frame[READ_LEAF](value) if type(value) is int else value
            except (KeyError, Failure):
                pass
            return general(frame)

        return two

    def many(frame: Frame) -> Value:
        try:
            value = frame[ROOTS][name]
            for key in keys:
                if type(value) is not dict:
                    return general(frame)
                value = value[key]
            return frame[READ_LEAF](value) if type(value) is int else value
        except (KeyError, Failure):
            pass
        return general(frame)

    return many


def local_field(slot: int, field: str, general: Closure) -> Closure:
    """`variable.field` for a variable of a comprehension."""

    def read(frame: Frame) -> Value:
        holder = frame[slot]
        if type(holder) is dict:
            try:
                value = holder[field]
                if type(value) is not int:
                    return value
            except KeyError:
                pass
        return general(frame)

    return read


def select(operand: Closure, field: str, node: Node) -> Closure:
    def read(frame: Frame) -> Value:
        holder = operand(frame)
        if type(holder) is dict:
            try:
                value = holder[field]
                if type(value) is not int:
                    return value
            except KeyError:
                pass
        try:
            return access.select(frame, holder, field)
        except Failure as failure:
            failure.blame(node)
            raise

    return read


def select_optional(operand: Closure, field: str, node: Node) -> Closure:
    def read(frame: Frame) -> Value:
        holder = operand(frame)
        try:
            return access.select_optional(frame, holder, field)
        except Failure as failure:
            failure.blame(node)
            raise

    return read


def has(operand: Closure, field: str, node: Node) -> Closure:
    def test(frame: Frame) -> bool:
        holder = operand(frame)
        if type(holder) is dict:
            return field in holder
        try:
            return access.has_field(frame, holder, field)
        except Failure as failure:
            failure.blame(node)
            raise

    return test


def index(operand: Closure, key: Closure, *, optional: bool, node: Node) -> Closure:
    reach = access.index_optional if optional else access.index

    def read(frame: Frame) -> Value:
        holder = operand(frame)
        at = key(frame)
        try:
            return reach(frame, holder, at)
        except Failure as failure:
            failure.blame(node)
            raise

    return read
