"""Kinds of resources: their names in a language, and how people write them."""

import msgspec

# Annotation of Stories in the catalog: JSON, where each step is in the text applied last.
STEP_LINES = "perdure.dev/step-lines"


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of tables of a kind."""

    title: str  # `Phase`
    path: str  # `status.phase`
    type: str = "string"  # integer, date, as the Kubernetes API has them


class ResourceKind(msgspec.Struct, frozen=True):
    name: str  # `Story`
    plural: str  # `stories`
    group: str  # `bubustack.io`
    short: tuple[str, ...] = ()
    has_namespace: bool = False
    has_paths: bool = False  # a slash is part of a name
    can_run: bool = False  # an entry of this kind is a document that can be started
    of_runs: bool = False  # a view of runs: not kept in the catalog
    is_request: bool = False  # applying one is a request, which is answered once
    new_status: str = ""  # the initial status of a new entry, as JSON
    version: str = ""  # `v1alpha1`, of its group in the Kubernetes API; empty: it is not served there
    categories: tuple[str, ...] = ()  # what `kubectl get CATEGORY` lists together
    columns: tuple[PrinterColumn, ...] = ()  # besides the name

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def is_called(self, text: str) -> bool:
        """Whether a typed name means this kind; `stories.bubustack.io` is the full form."""
        typed = text.lower()
        names = (self.name.lower(), self.plural, *self.short)
        return typed in names or typed in (f"{name}.{self.group}" for name in names[:2])

    def title(self, name: str) -> str:
        """`story.bubustack.io/deploy`: the name of an entry for people and scripts."""
        return f"{self.name.lower()}.{self.group}/{name}"
