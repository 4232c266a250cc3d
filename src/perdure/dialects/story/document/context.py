"""What a resource is judged in: the others that are known, and the operator's settings."""

from typing import Any

import msgspec

from perdure.dialects.story.document.cursor import Cursor
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.resources.reference_grants import refuse
from perdure.dialects.story.resources.resource import NOTHING, Known, Reference, Resource, name_of, namespace_of


class Context(msgspec.Struct, frozen=True):
    known: Known = NOTHING
    settings: Settings = DEFAULTS
    uses: dict[Reference, Any] = msgspec.field(default_factory=dict)  # by `usage`: what was found out of an Engram

    def may_name(self, cursor: Cursor, referrer: str, namespace: str, kind: str, target: Reference, code: str) -> bool:
        """Whether a reference into another namespace is allowed; reports if not (STY-042, STY-250)."""
        refusal = refuse(referrer, namespace, kind, target, self.known, self.settings)
        if refusal is not None:
            hint = "Set references.cross-namespace-policy, or put both into one namespace."
            cursor.problem(code, refusal, hint=hint)
        return refusal is None

    def find(self, kind: str, target: Reference) -> Resource | None:
        return self.known.find(kind, target.namespace, target.name)


class Case(msgspec.Struct, frozen=True):
    """One resource before the judge: as it was written, and as it is kept. `stored` is what it would replace."""

    root: Cursor
    resource: Resource
    around: Context
    stored: Resource | None = None

    @property
    def spec(self) -> Cursor:
        return self.root.at("spec")

    @property
    def name(self) -> str:
        return name_of(self.resource)

    @property
    def namespace(self) -> str:
        return namespace_of(self.resource)
