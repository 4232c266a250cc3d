"""Semantic versions, and the constraints they can be tested against.

Independent of templates except for the fields an author may read: `Major`, `Minor`, `Patch`, `Prerelease`, …
"""

from dataclasses import dataclass
from functools import total_ordering

from perdure.kernel.lazy_regex import lazy_regex

_VERSION = lazy_regex(
    r"v?([0-9]{1,19})(?:\.([0-9]{1,19}))?(?:\.([0-9]{1,19}))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_CONSTRAINT = lazy_regex(
    r"\s*(=|==|!=|>|<|>=|=>|<=|=<|~|~>|\^)?\s*v?([0-9]{1,19}|[xX*])(?:\.([0-9]{1,19}|[xX*]))?(?:\.([0-9]{1,19}|[xX*]))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?\s*"
)
_LONGEST = 256
_HYPHEN_RANGE = lazy_regex(r"\s*(\S+)\s+-\s+(\S+)\s*")


class BadVersion(ValueError):
    """Neither a version nor a constraint."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    major: int
    minor: int
    patch: int
    prerelease: str = ""
    metadata: str = ""
    original: str = ""

    def __str__(self) -> str:
        core = f"{self.major}.{self.minor}.{self.patch}"
        return (
            core + (f"-{self.prerelease}" if self.prerelease else "") + (f"+{self.metadata}" if self.metadata else "")
        )

    def field(self, name: str) -> int | str | None:
        """The results of Go's methods without arguments; None for anything else."""
        fields: dict[str, int | str] = {
            "Major": self.major,
            "Minor": self.minor,
            "Patch": self.patch,
            "Prerelease": self.prerelease,
            "Metadata": self.metadata,
            "Original": self.original,
            "String": str(self),
        }
        return fields.get(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._order() == other._order()

    def __lt__(self, other: "Version") -> bool:
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash(self._order())

    def _order(self) -> tuple[object, ...]:
        """Metadata do not count; a prerelease comes before its release, numbers in it before other identifiers."""
        parts = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease.split(".") if part
        )
        return (self.major, self.minor, self.patch, not self.prerelease, parts)


def parse_version(text: str) -> Version:
    match = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise BadVersion(f"{text[:60]!r} is not a semantic version")
    major, minor, patch, prerelease, metadata = match.groups()
    return Version(int(major), int(minor or 0), int(patch or 0), prerelease or "", metadata or "", text)


def satisfies(version: Version, constraint: str) -> bool:
    """Whether the version meets one of the `||` alternatives, each a list of conditions that must all hold."""
    if len(constraint) > _LONGEST:
        raise BadVersion(f"a version constraint has at most {_LONGEST} characters")
    alternatives = [_parse_alternative(part) for part in constraint.split("||")]
    return any(all(condition.accepts(version) for condition in conditions) for conditions in alternatives)


@dataclass(frozen=True, slots=True)
class _Condition:
    """`low` is the version as written with missing numbers as 0; `given` counts the numbers that were written."""

    operator: str
    low: Version
    count: int

    def accepts(self, version: Version) -> bool:
        # A prerelease is only matched by a condition that contains one itself.
        if version.prerelease and not self.low.prerelease and self.operator != "!=":
            return False
        low, next_up = self.low, self._above()
        match self.operator:
            case "" | "=" | "==":
                return low <= version < next_up if self.count < 3 else version == low
            case "!=":
                return not (low <= version < next_up) if self.count < 3 else version != low
            case ">":
                return version >= next_up if self.count < 3 else version > low
            case "<":
                return version < low
            case ">=" | "=>":
                return version >= low
            case "<=" | "=<":
                return version < next_up if self.count < 3 else version <= low
            case "~" | "~>":
                return low <= version and (self.count == 0 or version < self._tilde())
        return low <= version and (self.count == 0 or version < self._caret())

    def _above(self) -> Version:
        """The first version beyond everything the written numbers cover."""
        low = self.low
        if self.count == 0:
            return Version(2**63, 0, 0)
        return Version(low.major + 1, 0, 0) if self.count == 1 else Version(low.major, low.minor + 1, 0)

    def _tilde(self) -> Version:
        return Version(self.low.major + 1, 0, 0) if self.count == 1 else Version(self.low.major, self.low.minor + 1, 0)

    def _caret(self) -> Version:
        low = self.low
        if low.major > 0 or self.count == 1:
            return Version(low.major + 1, 0, 0)
        if low.minor > 0 or self.count == 2:
            return Version(0, low.minor + 1, 0)
        return Version(0, 0, low.patch + 1)


def _parse_alternative(text: str) -> list[_Condition]:
    if hyphen := _HYPHEN_RANGE.fullmatch(text):
        text = f">={hyphen[1]} <={hyphen[2]}"
    conditions: list[_Condition] = []
    at = 0
    while at < len(text) or not conditions:
        match = _CONSTRAINT.match(text, at)
        if match is None:
            raise BadVersion(f"{text[:60]!r} is not a version constraint")
        operator, *numbers, prerelease = match.groups()
        count = 0
        while count < 3 and numbers[count] is not None and numbers[count] not in "xX*":
            count += 1
        major, minor, patch = (int(numbers[i]) if i < count else 0 for i in range(3))
        conditions.append(_Condition(operator or "", Version(major, minor, patch, prerelease or ""), count))
        at = match.end()
        if text[at : at + 1] == ",":
            at += 1
    return conditions
