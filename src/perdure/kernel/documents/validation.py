"""A document is validated in its context: what was applied with it, and what the catalog holds.

A language looks things up as if everything were available. What was not fetched yet counts as absent and is noted in
`open`; the caller fetches it and validates the same text again, until nothing is open.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.kernel.documents.lookups import Lookup, LookupAnswers, ResourceKey, ResourcesInNamespace
from perdure.kernel.documents.problems import Problem, Severity
from perdure.kernel.documents.resource_kinds import ResourceKind

Resource = dict[str, Any]
"""A document as data: `apiVersion`, `kind`, `metadata`, `spec` and whatever else its language has."""


class AppliedDocument(msgspec.Struct, frozen=True):
    """A text applied together with a document, and the file it is in.

    `labels` are given to what the text declares, besides its own: not every language has a place for them. `managers`:
    who has set which fields of the one entry that it declares, as JSON; None: whoever applies it sets what it changes.
    """

    file: str
    text: str
    labels: tuple[tuple[str, str], ...] = ()
    managers: bytes | None = None


class DeclaredResource(msgspec.Struct, frozen=True):
    """A resource in a text. Its source is kept where the exact text counts, as for a document that can be run."""

    kind: str
    namespace: str
    name: str
    body: Resource
    source: bytes = b""
    line: int = 1

    @property
    def key(self) -> ResourceKey:
        return ResourceKey(self.kind, self.namespace, self.name)

    def placed(self, kind: ResourceKind, namespace: str) -> "DeclaredResource":
        """As it is kept: in its own namespace, or in this one if it names none.

        Where the wording counts, the document stays as it was written, and a namespace in it means something else.
        """
        if not kind.has_namespace:
            return self
        if self.source:
            return msgspec.structs.replace(self, namespace=namespace)
        metadata = self.body.get("metadata", {})
        own = str(metadata.get("namespace") or namespace)
        if not own:
            return self
        body = {**self.body, "metadata": {**metadata, "namespace": own}}
        return msgspec.structs.replace(self, namespace=own, body=body)


class Validated(msgspec.Struct, frozen=True):
    """The result for a text: a program, if it contains one that can be run, and every problem."""

    program: Any | None
    problems: list[Problem]
    pinned: bytes = b""  # what a run keeps, and `load` reads again: the text itself, or a bundle of everything it needs
    identity: bytes | None = None  # what two starts with one token are compared by; None: what is pinned
    refusal: str = ""  # why it cannot be started here, although it has no problems

    @property
    def has_errors(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)


class ConvertedConstruct(msgspec.Struct, frozen=True):
    """A construct of an earlier form of a language: where it is written, what became of it or why it stays."""

    path: str
    message: str
    is_done: bool = True


class ConvertedDocument(msgspec.Struct, frozen=True):
    """A document in the present form of its language. Without `text`: nothing was changed."""

    text: str | None = None
    constructs: tuple[ConvertedConstruct, ...] = ()


class ValidationContext:
    """What a document is validated against.

    `chosen` names the document that is meant where a text contains several that can be run; `namespace` is where
    documents live that do not name one.
    """

    def __init__(
        self,
        declared: Iterable[DeclaredResource] = (),
        *,
        applied: Sequence[AppliedDocument] = (),
        chosen: str = "",
        namespace: str = "default",
        answers: LookupAnswers | None = None,
    ) -> None:
        self.applied = tuple(applied)
        self.chosen = chosen
        self.namespace = namespace
        self.answers: LookupAnswers = {} if answers is None else answers
        self.unanswered: set[Lookup] = set()
        self.reading: Any = None  # what the language has parsed of the text, for its next pass of the same validation
        self._companions = {
            resource.key: resource.body for resource in declared
        }  # of two with one name the later counts

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        """The resource of that name: the one applied with the document, otherwise the catalog's."""
        key = ResourceKey(kind, namespace, name)
        companion = self._companions.get(key)
        return self._answer(key, None) if companion is None else companion

    def find_in_catalog(self, kind: str, namespace: str, name: str) -> Resource | None:
        """The catalog's resource of that name, whatever was applied with the document."""
        resource: Resource | None = self._answer(ResourceKey(kind, namespace, name), None)
        return resource

    def list_resources(self, kind: str, namespace: str) -> list[Resource]:
        """All resources of a kind in a namespace, in order of name."""
        resources = {_name(resource): resource for resource in self._answer(ResourcesInNamespace(kind, namespace), [])}
        for key, body in self._companions.items():
            if (key.kind, key.namespace) == (kind, namespace):
                resources[key.name] = body
        return [resources[name] for name in sorted(resources)]

    def _answer(self, lookup: Lookup, default: Any) -> Any:
        if lookup in self.answers:
            return self.answers[lookup]
        self.unanswered.add(lookup)
        return default


def _name(resource: Resource) -> str:
    return str(resource["metadata"]["name"])
