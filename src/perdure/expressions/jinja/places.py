"""Where in a template something stands, found again in its text once there is an error to show."""

import re

_WIDEST = 100
_BLOCK = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def fragment_around(text: str, offset: int) -> tuple[str, int, int]:
    """The `{{ … }}` or `{% … %}` that holds `offset`, without its braces; where it starts and ends."""
    for found in _BLOCK.finditer(text):
        if found.start() <= offset < found.end():
            return _shortened(found[0][2:-2].strip("-+ \n")), found.start(), found.end()
    return _shortened(text.strip()), 0, len(text)


def place_of_name(text: str, name: str, start: int, end: int) -> int | None:
    """The first place between two offsets where `name` stands as a word."""
    found = re.compile(rf"(?<!\w){re.escape(str(name))}(?!\w)").search(text, start, end)
    return found.start() if found else None


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:60]} … {text[-30:]}"
