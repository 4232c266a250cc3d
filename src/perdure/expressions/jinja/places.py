"""Where in a template something stands, found again in its text once there is an error to show."""

import re

_WIDEST = 100


def fragment_around(text: str, offset: int) -> tuple[str, int, int]:
    """The `{{ … }}` or `{% … %}` that holds `offset`, without its braces; where it starts and ends."""
    start = max(text.rfind("{{", 0, offset + 2), text.rfind("{%", 0, offset + 2))
    if start < 0:
        return _shortened(text.strip()), 0, len(text)
    end = text.find("}}" if text[start + 1] == "{" else "%}", start)
    end = len(text) if end < 0 else end
    return _shortened(text[start + 2 : end].strip("-+ \n")), start, end


def place_of_name(text: str, name: str, start: int, end: int) -> int | None:
    """The first place between two offsets where `name` stands as a word."""
    found = re.compile(rf"(?<!\w){re.escape(str(name))}(?!\w)").search(text, start, end)
    return found.start() if found else None


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:60]} … {text[-30:]}"
