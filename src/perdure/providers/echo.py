"""`echo`: returns its input. For examples, tests and measurements."""

from typing import Any

import msgspec

from perdure.providers.registry import Mode, Provider


def echo(input: Any, value: Any = msgspec.UNSET) -> Any:
    """Return `value` if it is set, otherwise the input."""
    return input if value is msgspec.UNSET else value


PROVIDER = Provider.of("echo", echo, mode=Mode.INLINE, side_effects=False)
