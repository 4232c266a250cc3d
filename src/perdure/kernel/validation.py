"""A document is judged among its surroundings: what was given beside it, and what the catalog holds.

A language looks things up as if everything were at hand. What nobody has fetched yet reads as absent and is noted in
`open`; whoever asked for the judgement fetches it and has the same text judged again, until nothing is open.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.kernel.lookups import Lookup, LookupAnswers, ResourceKey, ResourcesInNamespace
from perdure.kernel.problems import Problem, Severity

Resource = dict[str, Any]
"""A document as data: `apiVersion`, `kind`, `metadata`, `spec` and what else its language writes."""


class AppliedDocument(msgspec.Struct, frozen=True):
    """A text given beside a document, and the file it stands in."""

    file: str
    text: str


class DeclaredResource(msgspec.Struct, frozen=True):
    """A resource that a text holds. Its source is kept where the wording counts, as for a document that can be run."""

    kind: str
    namespace: str
    name: str
    body: Resource
    source: bytes = b""
    line: int = 1

    @property
    def key(self) -> ResourceKey:
        return ResourceKey(self.kind, self.namespace, self.name)


class Validated(msgspec.Struct, frozen=True):
    """What came of a text: a program, if it holds one that can be run, and every problem it has."""

    program: Any | None
    problems: list[Problem]
    pinned: bytes = b""  # what a run keeps, and `load` reads again: the text itself, or a bundle of all it needs
    identity: bytes | None = None  # what makes two starts with one token the same; None: what is pinned
    refusal: str = ""  # why it cannot be started here, although nothing is wrong with it

    @property
    def has_errors(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)


class ValidationContext:
    """`chosen` names the document that is meant where a text holds several that can be run; `namespace` is where
    documents live that do not say so themselves.
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
        self.reading: Any = None  # what the language has read of the text, for its next look in the same judgement
        self._companions = {
            resource.key: resource.body for resource in declared
        }  # of two with one name the later counts

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        """The resource of that name: the one given beside the document, else the catalog's."""
        key = ResourceKey(kind, namespace, name)
        companion = self._companions.get(key)
        return self._answer(key, None) if companion is None else companion

    def find_in_catalog(self, kind: str, namespace: str, name: str) -> Resource | None:
        """What the house has under that name, whatever was given beside the document."""
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
