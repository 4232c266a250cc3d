"""Methods of a class that are functions of other modules, imported at their first use."""

from importlib import import_module
from typing import Any


class _Lazy:
    """A function of another module, imported at its first use; afterwards an ordinary attribute."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        module, _, name = self.target.partition(":")
        value = instance.__dict__[self.name] = getattr(import_module(module), name)
        return value


lazy: Any = _Lazy
"""For the class of a language, which every command creates: `show = lazy("package.module:show")`, without `self`."""
