"""The answer, on stdout: exactly one JSON value, or text for people."""

import sys
from typing import Any

import msgspec

from perdure.cli.console import harmless, harmless_json
from perdure.kernel.json_values import jsontext

_has_given = False


def give_json(value: Any) -> None:
    text = msgspec.json.format(jsontext.encode(value), indent=2) if sys.stdout.isatty() else jsontext.encode(value)
    _write(harmless_json(text.decode()))


def give_value(text: bytes) -> None:
    """What a run returned: a string as it is, everything else as readable JSON."""
    value = jsontext.decode(text)
    if isinstance(value, str) and not sys.stdout.isatty():
        _write(value)  # for a program, which gets it as it is
    else:
        shown = value if isinstance(value, str) else harmless_json(msgspec.json.format(text, indent=2).decode())
        give_text(shown)


def give_text(text: str) -> None:
    _write(harmless(text))


def _write(text: str) -> None:
    global _has_given
    _has_given = True
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def interrupted(message: str, hint: str = "", run: str = "") -> dict[str, Any]:
    """What stands in the place of an answer when a signal came first."""
    return {"error": {"code": "INTERRUPTED", "message": message, "hint": hint, **({"run": run} if run else {})}}


def has_given() -> bool:
    """Whether there has been an answer since the last `forget`."""
    return _has_given


def forget() -> None:
    """Another command begins."""
    global _has_given
    _has_given = False
