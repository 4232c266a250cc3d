"""Shapes of values: what a field may contain, and its normal form.

`validate` reports problems; `tidy` returns the value as it is stored: null members are dropped, and a bare name
becomes a reference.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor, Report, listed
from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.values.schemas import BadSchema, CompiledSchema
from perdure.kernel.documents.problems import guess
from perdure.kernel.lazy_regex import lazy_regex

NAME = lazy_regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NAME_RULE = "lowercase letters, digits and dashes, with a letter or digit at both ends"


class Shape(Protocol):
    def validate(self, cursor: Cursor) -> None: ...

    def tidy(self, value: Any) -> Any: ...


class _Plain:
    """A shape whose values are stored unchanged."""

    __slots__ = ()

    def tidy(self, value: Any) -> Any:
        return value


class TextShape(_Plain, msgspec.Struct, frozen=True):
    least: int = 0
    most: int | None = None

    def validate(self, cursor: Cursor) -> None:
        if not isinstance(cursor.value, str):
            cursor.problem(INVALID, f"must be a string, not {shown(cursor.value)}")
        elif len(cursor.value.strip()) < self.least:
            cursor.problem(INVALID, "must not be empty")
        elif self.most is not None and len(cursor.value) > self.most:
            cursor.problem(INVALID, f"must have at most {self.most} characters, not {len(cursor.value)}")


class NameShape(_Plain, msgspec.Struct, frozen=True):
    """A name that others may refer to (STY-002)."""

    most: int = 63

    def validate(self, cursor: Cursor) -> None:
        value = cursor.value
        if not isinstance(value, str):
            cursor.problem(INVALID, f"must be a name, not {shown(value)}")
        elif not 1 <= len(value) <= self.most:
            cursor.problem(INVALID, f"a name has 1 to {self.most} characters, not {len(value)}")
        elif not NAME.fullmatch(value):
            cursor.problem(
                INVALID, f"{value!r} is not a valid name: it must match ^{NAME.pattern}$", hint=f"Use {NAME_RULE}."
            )


class IntegerShape(_Plain, msgspec.Struct, frozen=True):
    least: int | None = None
    most: int | None = None

    def validate(self, cursor: Cursor) -> None:
        value = cursor.value
        if isinstance(value, bool) or not isinstance(value, int):
            cursor.problem(INVALID, f"must be an integer, not {shown(value)}")
        elif self.least is not None and self.most is not None and not self.least <= value <= self.most:
            cursor.problem(INVALID, f"must be between {self.least} and {self.most}, not {value}")
        elif self.least is not None and value < self.least:
            cursor.problem(INVALID, f"must be {self.least} or more, not {value}")


class BooleanShape(_Plain, msgspec.Struct, frozen=True):
    def validate(self, cursor: Cursor) -> None:
        if not isinstance(cursor.value, bool):
            cursor.problem(INVALID, f"must be true or false, not {shown(cursor.value)}")


class ChoiceShape(_Plain, msgspec.Struct, frozen=True):
    """One of a few values. `other` maps accepted aliases to the stored value. Blank means absent."""

    words: tuple[str, ...]
    other: tuple[tuple[str, str], ...] = ()

    def validate(self, cursor: Cursor) -> None:
        allowed = (*self.words, *(word for word, _ in self.other))
        if cursor.value in allowed or cursor.value == "":
            return
        near = guess(cursor.value, allowed) if isinstance(cursor.value, str) else ""
        cursor.problem(INVALID, f"unsupported value {shown(cursor.value)} (expected {listed(allowed)}){near}")

    def tidy(self, value: Any) -> Any:
        return dict(self.other).get(value, value) if isinstance(value, str) else value


class DurationShape(_Plain, msgspec.Struct, frozen=True):
    """A duration that a run ignores if it is invalid (STY-127, STY-133), so an invalid one is only a warning."""

    def validate(self, cursor: Cursor) -> None:
        if not isinstance(cursor.value, str):
            cursor.problem(INVALID, f"must be a string such as 30s, not {shown(cursor.value)}")
            return
        try:
            read_duration(cursor.value)
        except BadDuration as refusal:
            cursor.warn(DOUBTFUL, f"{refusal}; it is ignored")


class TimestampShape(_Plain, msgspec.Struct, frozen=True):
    """A timestamp in RFC 3339 format."""

    def validate(self, cursor: Cursor) -> None:
        if read_timestamp(cursor.value) is None:
            cursor.problem(INVALID, f"must be a time such as 2026-01-31T12:00:00Z, not {shown(cursor.value)}")


def read_timestamp(text: Any) -> datetime | None:
    if not isinstance(text, str) or not _MOMENT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_MOMENT = lazy_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class AnyShape(_Plain, msgspec.Struct, frozen=True):
    """Free-form: any value, members of any name (STY-003)."""

    def validate(self, cursor: Cursor) -> None:
        pass


class ObjectShape(_Plain, msgspec.Struct, frozen=True):
    """A free-form object."""

    def validate(self, cursor: Cursor) -> None:
        cursor.is_object()


class JsonSchemaShape(_Plain, msgspec.Struct, frozen=True):
    """A JSON schema (STY-039). `what` names it in messages."""

    what: str

    def validate(self, cursor: Cursor) -> None:
        try:
            CompiledSchema(cursor.value)
        except BadSchema as refusal:
            cursor.problem(INVALID, f"error validating {self.what} schema: {refusal}")


class ListShape(msgspec.Struct, frozen=True):
    item: Shape
    least: int = 0
    most: int | None = None

    def validate(self, cursor: Cursor) -> None:
        if not isinstance(cursor.value, list):
            cursor.problem(INVALID, f"must be a list, not {shown(cursor.value)}")
            return
        count = len(cursor.value)
        if count < self.least or (self.most is not None and count > self.most):
            bounds = f"between {self.least} and {self.most}" if self.most is not None else f"at least {self.least}"
            cursor.problem(INVALID, f"must have {bounds} items, not {count}")
        for item in cursor.items():
            self.item.validate(item)

    def tidy(self, value: Any) -> Any:
        return [self.item.tidy(item) for item in value] if isinstance(value, list) else value


class MapShape(msgspec.Struct, frozen=True):
    member: Shape

    def validate(self, cursor: Cursor) -> None:
        if cursor.is_object():
            for _, member in cursor.members():
                self.member.validate(member)

    def tidy(self, value: Any) -> Any:
        return {name: self.member.tidy(member) for name, member in value.items()} if isinstance(value, dict) else value


class FieldsShape(msgspec.Struct, frozen=True):
    """An object with known members. Null means absent, as everywhere in Kubernetes."""

    members: Mapping[str, Shape]
    required: Sequence[str] = ()

    def validate(self, cursor: Cursor) -> None:
        if not cursor.is_object():
            return
        for name in self.required:
            if cursor.value.get(name) is None:
                cursor.problem(INVALID, f"{cursor.at(name).spelled} is required")
        for name, member in cursor.members():
            shape = self.members.get(name)
            if shape is None:
                cursor.unknown(name, tuple(self.members))
            elif member.value is not None:
                shape.validate(member)

    def tidy(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: self.members[name].tidy(member) if name in self.members else member
            for name, member in value.items()
            if member is not None
        }


class KubernetesShape(msgspec.Struct, frozen=True):
    """A field that only Kubernetes uses (STY-004)."""

    shape: Shape = ObjectShape()

    def validate(self, cursor: Cursor) -> None:
        cursor.ignore()
        self.shape.validate(cursor)

    def tidy(self, value: Any) -> Any:
        return self.shape.tidy(value)


class EitherShape(msgspec.Struct, frozen=True):
    """One of two shapes."""

    first: Shape
    second: Shape
    what: str

    def validate(self, cursor: Cursor) -> None:
        for shape in (self.first, self.second):
            trial = Cursor(Report(), cursor.value, cursor.path)
            shape.validate(trial)
            if not trial.report.has_errors:
                return
        cursor.problem(INVALID, f"must be {self.what}, not {shown(cursor.value)}")

    def tidy(self, value: Any) -> Any:
        return value


REFERENCE = FieldsShape(
    {"name": NameShape(253), "namespace": NameShape(63), "version": TextShape(most=64), "uid": TextShape()}
)


class ReferenceShape(msgspec.Struct, frozen=True):
    """A name, or an object with a name (STY-002). The caller reports a missing name, with its own message."""

    def validate(self, cursor: Cursor) -> None:
        if isinstance(cursor.value, str):
            if cursor.value.strip():
                NameShape(253).validate(cursor)
        elif isinstance(cursor.value, dict):
            members = {name: member for name, member in cursor.value.items() if member != ""}
            REFERENCE.validate(Cursor(cursor.report, members, cursor.path))
        else:
            cursor.problem(INVALID, f"must be a name or an object with one, not {shown(cursor.value)}")

    def tidy(self, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else REFERENCE.tidy(value)


def shown(value: Any) -> str:
    """A value in a message, shortened."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}…"
