"""MWL as a language. Every command creates it, so it imports its own modules only when a Flow is used."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import DeclaredResource, Validated, ValidationContext
from perdure.kernel.execution import Execution
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_methods import lazy

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.provider_catalog import ProviderCatalog, ProviderDescription
    from perdure.kernel.graphs.net import Net

_FLOW = "perdure.dialects.flow"

NAMESPACES_KEPT = 100


class Flow(Dialect):
    """The language. `find` and `names` look up the providers that its documents may call."""

    name = "flow"
    version = 3
    edition = 1
    call_markers = (b"perdure/run/",)
    reopens_at_failure = True
    tells_steps_by_events = True
    kinds: tuple[ResourceKind, ...] = (
        ResourceKind("Flow", "flows", "mwl.dev", has_namespace=True, has_paths=True, can_run=True),
    )

    def __init__(
        self,
        find: "Callable[[str], ProviderDescription | None]" = lambda name: None,
        names: Callable[[], Iterable[str]] = lambda: (),
        refusal: Callable[[str, str], str | None] = lambda name, namespace: None,
        repeats: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`refusal`: why the operator does not allow a provider in a namespace; None if it is allowed.

        `repeats`: whether a second attempt of a provider repeats its side effects.
        """
        self._repeats = repeats
        self._find = find
        self._names = names
        self._refusal = refusal

        self._catalogs: dict[str, ProviderCatalog] = {}

    def _catalog(self, namespace: str) -> "ProviderCatalog":
        """What documents of a namespace can use: the operator's policy may depend on it."""
        from perdure.dialects.flow.plan.provider_catalog import ProviderCatalog

        if len(self._catalogs) > NAMESPACES_KEPT:
            self._catalogs.clear()
        return self._catalogs.setdefault(
            namespace, ProviderCatalog(self._find, self._names, lambda name: self._refusal(name, namespace))
        )

    # Documents.

    def recognizes(self, text: bytes) -> bool:
        """By its `$schema`, or else by the two members that every Flow has and no other document does."""
        return b"mwl.dev/" in text or (b'"entrypoint"' in text and b'"steps"' in text)

    def title(self, program: Any) -> str:
        return ""  # a Flow has no name of its own

    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        """A Flow has no name of its own: it gets the name of its file."""
        name = file.rpartition("/")[2].partition(".")[0]
        try:
            document = jsontext.read_strict(text)
        except jsontext.NotJson:
            return []
        body = {"apiVersion": "mwl.dev/v1", "kind": "Flow", "metadata": {"name": name}, "spec": document}
        return [DeclaredResource("Flow", "", name, body, text)] if name else []

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        from perdure.dialects.flow.document.reader import read

        return Validated(*read(text, self._catalog(around.namespace if around else DEFAULT_NAMESPACE)), pinned=text)

    def load(self, text: bytes) -> Any:
        from perdure.dialects.flow.plan.compiler import compile_program

        return compile_program(jsontext.decode(text), self._catalog(DEFAULT_NAMESPACE))

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    graph = lazy(f"{_FLOW}.views.graph:draw")
    document_schema = lazy(f"{_FLOW}.document.flow_schema:document_schema")
    tracer = lazy(f"{_FLOW}.views.trace:FlowTracer")
    find_places = lazy(f"{_FLOW}.document.reader:find_places")

    def net(self, program: Any) -> "Net":
        from perdure.dialects.flow.views.net import FlowNet

        return FlowNet(program, self._repeats).net

    # Runs.

    @cached_property
    def events(self) -> Any:
        from perdure.dialects.flow.state.events import OWN_EVENTS

        return OWN_EVENTS

    begin = lazy(f"{_FLOW}.state.body:Body")
    accept = lazy(f"{_FLOW}.run.inputs:accept")
    advance = lazy(f"{_FLOW}.run.moves:advance")
    exhausted = lazy(f"{_FLOW}.run.inputs:end_exhausted")
    evolve = lazy(f"{_FLOW}.state.folding:evolve")
    freeze = lazy(f"{_FLOW}.state.body:freeze")
    thaw = lazy(f"{_FLOW}.state.body:thaw")
    show = lazy(f"{_FLOW}.views.result:show")
    ended_steps = lazy(f"{_FLOW}.views.ended_steps:ended_steps")
    obstacles = lazy(f"{_FLOW}.run.migration:obstacles")
    moved = lazy(f"{_FLOW}.run.migration:moved")
    missing_places = lazy(f"{_FLOW}.run.redrive:missing_places")
    step_reader = lazy(f"{_FLOW}.views.steps:FlowStepReader")
    has_scope = lazy(f"{_FLOW}.views.evaluation:has_scope")
    evaluate = lazy(f"{_FLOW}.views.evaluation:evaluate")
    value_tracer = lazy(f"{_FLOW}.views.provenance:FlowValues")
    schemas = lazy(f"{_FLOW}.views.evaluation:schemas")
    written_arguments = lazy(f"{_FLOW}.views.evaluation:written_arguments")
    delays = lazy(f"{_FLOW}.views.steps:delays")
    line_of = lazy(f"{_FLOW}.views.steps:line_of")

    def refusal(self, execution: Execution, input: i.Signal | i.Steer | i.Reopen) -> str | None:
        match input:
            case i.Signal():
                return "a Flow does not accept signals"
            case i.Steer("redrive"):
                return "the run is open; only a run that has ended can be redriven"
            case i.Steer(verb):
                return f"a Flow does not support {verb!r}"
            case _:
                from perdure.dialects.flow.run.redrive import why_not_reopened

                return why_not_reopened(execution, input)
