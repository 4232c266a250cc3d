"""Addresses of what is too large to stand in a StepRun (STY-219, STY-221): how it is shown, and what one leads to.

    <namespace>/<storyrun>/steps/<step>/output.json            all that the step gave
    <namespace>/<storyrun>/steps/<step>/report.rows.json       what stands at `report.rows` in it
    <namespace>/<storyrun>/steps/<step>/input/report.json      the same of its input; all of it is input/input.json
    <namespace>/<storyrun>/inputs/report.json                  the same of the run's inputs; all: inputs/inputs.json

Nothing is stored for an address: input and output of a step live once, as values of the run, and an address names a
place in one of them. So it holds as long as the run is kept, and leads nowhere outside of it.
"""

from typing import Any

import msgspec

from perdure.dialects.story.values.references import STORAGE
from perdure.kernel import jsontext
from perdure.kernel.lazy_regex import lazy_regex

CONTENT_TYPE = "$bubuStorageContentType"
LARGEST_CONTAINER = 256 * 1024  # one with references inside that is larger goes whole
DEEPEST = 32  # STY-080

_ADDRESS = lazy_regex(r"(?P<run>[^/]+/[^/]+)/steps/(?P<step>[^/]+)/(?P<input>input/)?(?P<path>[^/]+)\.json")
_OF_RUN = lazy_regex(r"(?P<run>[^/]+/[^/]+)/inputs/(?P<path>[^/]+)\.json")
_KEY = lazy_regex(r"[^.\[\]/]+")


class StorageAddress(msgspec.Struct, frozen=True):
    """Where a value is: the run, the step (empty: the run's own inputs), whether in its input, and the path there.

    Without a path it is all of it.
    """

    run: str
    step: str
    in_input: bool = False
    path: str = ""

    def __str__(self) -> str:
        if not self.step:
            return f"{self.run}/inputs/{self.path or self._word}.json"
        return f"{self.run}/steps/{self.step}/{'input/' if self.in_input else ''}{self.path or self._word}.json"

    @property
    def _word(self) -> str:
        """What stands in the place of a path to all of it."""
        return ("input" if self.in_input else "output") if self.step else "inputs"

    @classmethod
    def read(cls, text: str) -> "StorageAddress | None":
        if ".." in text:
            return None
        if (found := _OF_RUN.fullmatch(text)) is not None:
            address = cls(found["run"], "", True, found["path"])
        elif (found := _ADDRESS.fullmatch(text)) is not None:
            address = cls(found["run"], found["step"], found["input"] is not None, found["path"])
        else:
            return None
        return msgspec.structs.replace(address, path="") if address.path == address._word else address

    def reference(self, value: Any) -> dict[str, str]:
        return {STORAGE: str(self), CONTENT_TYPE: "raw" if isinstance(value, str) else "json"}

    def inside(self, key: str) -> "StorageAddress | None":
        """Of a member; None where no path can be written to it."""
        path = f"{self.path}.{key}" if self.path else key
        fits = _KEY.fullmatch(key) is not None and path != self._word
        return StorageAddress(self.run, self.step, self.in_input, path) if fits else None

    def item(self, index: int) -> "StorageAddress | None":
        return StorageAddress(self.run, self.step, self.in_input, f"{self.path}[{index}]") if self.path else None


def is_of_workers(reference: str) -> bool:
    """Whether a reference names no place in a run, and so perhaps a file that workers share (STY-007)."""
    if _OF_RUN.fullmatch(reference) is not None:
        return False
    parts = reference.split("/")
    return not reference.startswith("/") and "steps" not in parts and not any(p in ("", ".", "..") for p in parts)


def offloaded(value: Any, size: int, limit: int, address: StorageAddress) -> Any:
    """The value as a StepRun shows it: from the bottom up, what is larger than the limit is a reference."""
    if size <= limit or value in ({}, []):
        return value
    return address.reference(value) if limit <= 0 else _lightened(value, limit, address, 0)[0]


def _lightened(value: Any, limit: int, address: StorageAddress | None, depth: int) -> tuple[Any, int, bool]:
    """The value, its size as JSON, and whether something in it is a reference."""
    if not isinstance(value, dict | list) or depth >= DEEPEST:
        return _judged(value, value, len(jsontext.encode(value)), limit, address, False)
    size, holds = 2, False
    shown: Any = {} if isinstance(value, dict) else []
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        here = None if address is None else address.inside(key) if isinstance(key, str) else address.item(key)
        light, weight, inner = _lightened(member, limit, here, depth + 1)
        holds = holds or inner
        size += weight + 1
        if isinstance(shown, dict):
            shown[key] = light
            size += len(jsontext.encode(key)) + 1
        else:
            shown.append(light)
    return _judged(value, shown, size, LARGEST_CONTAINER if holds else limit, address, holds)


def _judged(
    value: Any, shown: Any, size: int, limit: int, address: StorageAddress | None, holds: bool
) -> tuple[Any, int, bool]:
    if size <= limit or address is None:
        return shown, size, holds
    reference = address.reference(value)
    return reference, len(jsontext.encode(reference)), True
