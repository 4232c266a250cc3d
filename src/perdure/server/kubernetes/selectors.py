"""Which objects a request is about: selectors of labels and fields, and pages of lists."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.kernel.errors import UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.views.api_errors import PositionExpired
from perdure.views.errors import BadRequest

Object = dict[str, Any]
Labels = Mapping[str, str]

_WORD = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_KEY = re.compile(_WORD)
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_SET = re.compile(rf"(?P<key>{_WORD})\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(rf"(?P<key>{_WORD})\s*(?P<verb>==|=|!=|>|<)\s*(?P<value>[^=!<>]*)")

_INTEGER = re.compile(r"-?[0-9]{1,18}")

NAMED = ("metadata.name", "metadata.namespace")
OF_EVENTS = (
    *(f"involvedObject.{member}" for member in ("kind", "name", "namespace", "uid", "apiVersion")),
    "reason",
    "type",
)


MOST_REQUIREMENTS = 100  # of a selector: each object is compared with all of them
PLACES = 1_024  # for objects of one change; further ones share the last place
FIRST_POSITION = 1 << 40  # smaller versions are those of entries, or numbers of events


def list_version(position: int) -> int:
    return position * PLACES + PLACES - 1


def split_version(version: int) -> tuple[int, int]:
    """The position, and the place of the last object that was seen of it."""
    return divmod(version, PLACES)


class ObjectQuery(msgspec.Struct, rename="camel"):
    """The parameters of all verbs; those that Kubernetes has and this server has no use for are ignored."""

    limit: int = 0
    continue_: str = msgspec.field(default="", name="continue")
    label_selector: str = ""
    field_selector: str = ""
    watch: bool = False
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_seconds: float | None = None
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None
    include_object: str = ""
    dry_run: list[str] = []
    field_manager: str = ""
    force: bool = False
    field_validation: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: str = ""


def is_dry(query: ObjectQuery, options: Mapping[str, Any] | None = None) -> bool:
    asked = query.dry_run or (options or {}).get("dryRun") or []
    if not asked:
        return False
    if list(asked) != ["All"]:
        raise BadRequest(f"dryRun: {asked!r} is not supported (expected All)")
    return True


def check_policy(query: ObjectQuery, options: Mapping[str, Any]) -> None:
    """What becomes of a deleted object's parts: they go with it, whatever is asked for."""
    policy = query.propagation_policy or options.get("propagationPolicy")
    if policy not in (None, "", "Orphan", "Background", "Foreground"):
        raise UnfitInput(f"propagationPolicy: {str(policy)[:40]!r} is not one of Orphan, Background and Foreground")


class LabelSelector:
    """`app=web,tier in (a, b),!old`"""

    def __init__(self, text: str) -> None:
        parts = _parts(text, "labelSelector")
        self._requirements = [self._read(part) for part in parts]
        self.equal: dict[str, str] = {}  # what a store can look for
        for part in parts:
            match = _EQUAL.fullmatch(part)
            if match is not None and match["verb"] in ("=", "=="):
                self.equal[match["key"]] = match["value"].strip()

    @staticmethod
    def _read(part: str) -> Callable[[Labels], bool]:
        if match := _SET.fullmatch(part):
            key, values = match["key"], {value.strip() for value in match["values"].split(",")}
            if match["verb"] == "in":
                return lambda labels: labels.get(key) in values
            return lambda labels: labels.get(key) not in values
        if match := _EQUAL.fullmatch(part):
            key, value = match["key"], match["value"].strip()
            if match["verb"] in "<>":
                if not _INTEGER.fullmatch(value):
                    raise BadRequest(
                        f"labelSelector: {part[:60]!r} does not compare with an integer (expected e.g. tier>2)"
                    )
                return lambda labels: _compares(labels.get(key), match["verb"], int(value))
            if not _VALUE.fullmatch(value):
                raise BadRequest(f"labelSelector: {value[:60]!r} is not a value of a label")
            if match["verb"] == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
        name = part.removeprefix("!").strip()
        if not _KEY.fullmatch(name):
            raise BadRequest(f"labelSelector: {part[:60]!r} cannot be read (expected e.g. app=web,tier in (a, b))")
        return (lambda labels: name not in labels) if part.startswith("!") else (lambda labels: name in labels)

    def matches(self, item: Object) -> bool:
        labels = item.get("metadata", {}).get("labels") or {}
        return all(fits(labels) for fits in self._requirements)


def _compares(text: str | None, verb: str, value: int) -> bool:
    if text is None or not _INTEGER.fullmatch(text):
        return False
    return int(text) > value if verb == ">" else int(text) < value


def _parts(text: str, parameter: str) -> list[str]:
    """Split at commas that are not in brackets."""
    parts, begin, depth = [], 0, 0
    for place, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(0, depth - 1)
        elif character == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    written = [part.strip() for part in (*parts, text[begin:]) if part.strip()]
    if len(written) > MOST_REQUIREMENTS:
        raise BadRequest(f"{parameter}: has {len(written)} requirements (expected at most {MOST_REQUIREMENTS})")
    return written


class FieldSelector:
    """`metadata.name=x,metadata.namespace!=y`; of Events also what they are about."""

    def __init__(self, text: str, known: Sequence[str] = NAMED) -> None:
        self.equal: dict[str, str] = {}
        self._unequal: list[tuple[str, str]] = []
        for part in _parts(text, "fieldSelector"):
            match = re.fullmatch(r"([A-Za-z.]+)\s*(==|=|!=)\s*(.*)", part)
            if match is None or match[1] not in known:
                raise BadRequest(f"fieldSelector: {part[:60]!r} is not supported (expected {', '.join(known)})")
            if match[2] == "!=":
                self._unequal.append((match[1], match[3]))
            elif self.equal.setdefault(match[1], match[3]) != match[3]:
                self._unequal.append((match[1], self.equal[match[1]]))  # both cannot be

    def matches(self, item: Object) -> bool:
        return all(value_at(item, field) == value for field, value in self.equal.items()) and all(
            value_at(item, field) != value for field, value in self._unequal
        )


def value_at(item: Any, path: str) -> Any:
    """The value of a dotted path; empty where there is none."""
    for name in path.split("."):
        item = item.get(name) if isinstance(item, dict) else None
        if item is None:
            return ""
    return item


class ObjectSelection:
    """What a list or a watch asks for."""

    def __init__(self, query: ObjectQuery, known: Sequence[str] = NAMED) -> None:
        self.labels = LabelSelector(query.label_selector)
        self.fields = FieldSelector(query.field_selector, known)

    def matches(self, item: Object) -> bool:
        return self.labels.matches(item) and self.fields.matches(item)


NO_PLACE = "continue: this is not the `continue` of such a list"


class ListPlace(msgspec.Struct, frozen=True):
    """Where a list goes on: `continue`."""

    position: int  # of the feed, when the first page began
    behind: list[Any]


def write_place(place: ListPlace) -> str:
    return base64.urlsafe_b64encode(jsontext.encode([place.position, *place.behind])).decode().rstrip("=")


def read_place(text: str) -> ListPlace:
    try:
        position, *behind = jsontext.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return ListPlace(int(position), behind)
    except (ValueError, TypeError, OverflowError, binascii.Error):
        raise BadRequest(NO_PLACE) from None


def check_behind(behind: Sequence[Any], *kinds: type) -> None:
    """It came from the caller, who may have written anything into it."""
    if behind and [type(part) for part in behind] != list(kinds):
        raise BadRequest(NO_PLACE)


def check_place(place: ListPlace, floor: int) -> None:
    if place.position < floor:
        raise PositionExpired("the list that this continues is too old", hint="Begin it again, without `continue`.")


def check_match(query: ObjectQuery, last: int) -> None:
    """What a list is asked to show: the present, of the feed's last position, is all there is."""
    match, version = query.resource_version_match, query.resource_version
    if match not in ("", "Exact", "NotOlderThan"):
        raise UnfitInput(f"resourceVersionMatch: {match[:40]!r} is not supported (expected Exact or NotOlderThan)")
    if match and not version:
        raise UnfitInput("resourceVersionMatch: is forbidden without resourceVersion")
    if not version or version == "0":
        return
    position = split_version(read_number(version))[0]
    if position > last or (match == "Exact" and position != last):
        raise PositionExpired(f"there is no list of resource version {version}", hint="List without a version.")


def read_number(version: str) -> int:
    if not (version.isascii() and version.isdigit() and len(version) < 20):
        raise BadRequest(f"resourceVersion: {version[:40]!r} is not a version")
    return int(version)
