"""Storage addresses of values that are too large for a StepRun (STY-219, STY-221).

    <namespace>/<storyrun>/steps/<step>/output.json            the whole output of the step
    <namespace>/<storyrun>/steps/<step>/report.rows.json       the value at `report.rows` in it
    <namespace>/<storyrun>/steps/<step>/input/report.json      the same for its input; the whole is input/input.json
    <namespace>/<storyrun>/inputs/report.json                  the same for the run's inputs; whole:
    inputs/inputs.json

Nothing is stored for an address: input and output of a step are stored once, as values of the run, and an address
names a part of one of them. So it is valid as long as the run is kept, and only within it.
"""

from typing import Any

import msgspec

from perdure.dialects.story.values.references import STORAGE
from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex

CONTENT_TYPE = "$bubuStorageContentType"
LARGEST_CONTAINER = 256 * 1024  # a larger container with references inside is offloaded as a whole
DEEPEST = 32  # STY-080
OBJECT = "s3://"  # how references to objects of a bucket begin

_ADDRESS = lazy_regex(r"(?P<run>[^/]+/[^/]+)/steps/(?P<step>[^/]+)/(?P<input>input/)?(?P<path>[^/]+)\.json")
_OF_RUN = lazy_regex(r"(?P<run>[^/]+/[^/]+)/inputs/(?P<path>[^/]+)\.json")
_KEY = lazy_regex(r"[^.\[\]/]+")


class StorageAddress(msgspec.Struct, frozen=True):
    """Where a value is: the run, the step (empty: the run's inputs), whether in its input, and the path (empty: all of
    it).
    """

    run: str
    step: str
    in_input: bool = False
    path: str = ""

    def __str__(self) -> str:
        if not self.step:
            return f"{self.run}/inputs/{self.path or self._whole_name}.json"
        return f"{self.run}/steps/{self.step}/{'input/' if self.in_input else ''}{self.path or self._whole_name}.json"

    @property
    def _whole_name(self) -> str:
        """The file name that stands for the whole value."""
        return ("input" if self.in_input else "output") if self.step else "inputs"

    @classmethod
    def read(cls, text: str) -> "StorageAddress | None":
        if ".." in text:
            return None
        if (match := _OF_RUN.fullmatch(text)) is not None:
            address = cls(match["run"], "", True, match["path"])
        elif (match := _ADDRESS.fullmatch(text)) is not None:
            address = cls(match["run"], match["step"], match["input"] is not None, match["path"])
        else:
            return None
        return msgspec.structs.replace(address, path="") if address.path == address._whole_name else address

    def reference(self, value: Any) -> dict[str, str]:
        return {STORAGE: str(self), CONTENT_TYPE: "raw" if isinstance(value, str) else "json"}

    def inside(self, key: str) -> "StorageAddress | None":
        """The address of a member; None if no path can express it."""
        path = f"{self.path}.{key}" if self.path else key
        fits = _KEY.fullmatch(key) is not None and path != self._whole_name
        return StorageAddress(self.run, self.step, self.in_input, path) if fits else None

    def item(self, index: int) -> "StorageAddress | None":
        return StorageAddress(self.run, self.step, self.in_input, f"{self.path}[{index}]") if self.path else None


def is_of_workers(reference: str) -> bool:
    """Whether a reference does not name a part of a run, so that it may be a file or an object that workers share
    (STY-007).
    """
    reference = reference.removeprefix(OBJECT)
    if _OF_RUN.fullmatch(reference) is not None:
        return False
    parts = reference.split("/")
    return not reference.startswith("/") and "steps" not in parts and not any(part in ("", ".", "..") for part in parts)


def offloaded(value: Any, size: int, limit: int, address: StorageAddress) -> Any:
    """The value as a StepRun shows it: bottom-up, parts above the limit become references."""
    if size <= limit or value in ({}, []):
        return value
    return address.reference(value) if limit <= 0 else _shortened(value, limit, address, 0)[0]


def _shortened(value: Any, limit: int, address: StorageAddress | None, depth: int) -> tuple[Any, int, bool]:
    """The value with references, its size as JSON, and whether it contains a reference."""
    if not isinstance(value, dict | list) or depth >= DEEPEST:
        return _replace_if_large(value, value, len(jsontext.encode(value)), limit, address, False)
    size, has_reference = 2, False
    short: Any = {} if isinstance(value, dict) else []
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        member_address = None if address is None else address.inside(key) if isinstance(key, str) else address.item(key)
        short_member, member_size, member_has_reference = _shortened(member, limit, member_address, depth + 1)
        has_reference = has_reference or member_has_reference
        size += member_size + 1
        if isinstance(short, dict):
            short[key] = short_member
            size += len(jsontext.encode(key)) + 1
        else:
            short.append(short_member)
    return _replace_if_large(value, short, size, LARGEST_CONTAINER if has_reference else limit, address, has_reference)


def _replace_if_large(
    value: Any, short: Any, size: int, limit: int, address: StorageAddress | None, has_reference: bool
) -> tuple[Any, int, bool]:
    if size <= limit or address is None:
        return short, size, has_reference
    reference = address.reference(value)
    return reference, len(jsontext.encode(reference)), True
