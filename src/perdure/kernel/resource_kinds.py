"""Kinds of resources: how a language calls them, and how people write them."""

import msgspec


class ResourceKind(msgspec.Struct, frozen=True):
    name: str  # `Story`
    plural: str  # `stories`
    group: str  # `bubustack.io`
    short: tuple[str, ...] = ()
    has_namespace: bool = False
    can_run: bool = False  # an entry of this kind is a document that can be started
    of_runs: bool = False  # a view of runs: it is not kept in the catalog
    is_request: bool = False  # to apply one is to ask for something, which is answered once
    new_status: str = ""  # what stands in the status of a new entry, as JSON

    def is_called(self, word: str) -> bool:
        """Whether somebody who types this means the kind; `stories.bubustack.io` is said in full."""
        typed = word.lower()
        names = (self.name.lower(), self.plural, *self.short)
        return typed in names or typed in (f"{name}.{self.group}" for name in names[:2])

    def title(self, name: str) -> str:
        """`story.bubustack.io/deploy`: how an entry is named to people and scripts."""
        return f"{self.name.lower()}.{self.group}/{name}"
