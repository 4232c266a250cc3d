"""Paths from the root of a document to one of its values, and how messages show them."""

from collections.abc import Iterable

from perdure.kernel.lazy_regex import lazy_regex

Step = str | int
Path = tuple[Step, ...]

_PLAIN = lazy_regex(r"[A-Za-z_$][\w$-]*")


def spell(path: Iterable[Step]) -> str:
    """`steps[0].with`; a member that would be misread is quoted: `headers["x.y"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text
