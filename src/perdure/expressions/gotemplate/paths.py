"""Paths known without data: `inputs.a['b'][0]`, `index steps "x" "output"`, `(index .steps "x").output`.

They are used by the planner, because a template that is only a path keeps its value's type (STY-198), and by the
analysis of references, because such a path names the step it needs (STY-054).
"""

from perdure.expressions.gotemplate.syntax import (
    ROOT_SLOT,
    CommandNode,
    Dot,
    Literal,
    Name,
    Operand,
    Path,
    Pipeline,
    Variable,
)

Steps = tuple[str | int, ...]


def known_path(operand: Operand, dot_is_root: bool) -> Steps | None:
    """The steps from `$` to this value, or None when they are not constants."""
    match operand:
        case Variable(slot=slot):
            return () if slot == ROOT_SLOT else None
        case Dot():
            return () if dot_is_root else None
        case Path(receiver=receiver, steps=steps):
            start = known_path(receiver, dot_is_root)
            return None if start is None else (*start, *steps)
        case Pipeline(commands=(command,), slots=()):
            return _path_of_command(command, dot_is_root)
    return None


def _path_of_command(command: CommandNode, dot_is_root: bool) -> Steps | None:
    if len(command.operands) == 1:
        return known_path(command.operands[0], dot_is_root)
    indexed = indexed_path(command, dot_is_root)
    return indexed[0] if indexed is not None and not indexed[1] else None


def indexed_path(command: CommandNode, dot_is_root: bool) -> tuple[Steps, tuple[Operand, ...]] | None:
    """For a call of `index` on a known path: how far the path is known, and the remaining operands."""
    match command.operands:
        case (Name(name="index"), target, *keys):
            start = known_path(target, dot_is_root)
            if start is None:
                return None
            constants: list[str | int] = []
            for at, key in enumerate(keys):
                if not isinstance(key, Literal) or isinstance(key.value, bool | float):
                    return (*start, *constants), tuple(keys[at:])
                constants.append(key.value)
            return (*start, *constants), ()
    return None


def write_path(steps: Steps) -> str:
    """As an author would write it: `steps.a.list[0]`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
