"""The base class of workflow languages: what each must define, and what it may define.

    text ──parse──▶ Program          once, validated; `load` reads a pinned text again and never validates it
    accept(turn, input)              an input was recorded: react to it
    advance(turn) ──▶ moved?         one internal move; False when the run needs something from outside
    evolve(body, event)              total, constant time; sees the kernel's events and its own

A dialect works on two things only: the `Turn`, through which it asks and emits, and its `body`, which only
`evolve` changes. Within one `accept` or `advance` it asks (`turn.text`, `turn.resource`, `turn.cached`) before it
emits, so that the move can be made again with the answer.

Optional methods have a default that means "nothing". Where there is none, it raises, and a flag says who overrides it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.problems import Problem
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import ConvertedDocument, DeclaredResource, Validated, ValidationContext
from perdure.kernel.graphs.graph import Graph
from perdure.kernel.inputs import Reopen, Signal, Steer
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Outcome, Retention, Status

if TYPE_CHECKING:
    from perdure.kernel.document_change import DocumentChange
    from perdure.kernel.evaluation_trace import ValueTracer
    from perdure.kernel.events import Event
    from perdure.kernel.execution import Execution
    from perdure.kernel.graphs.net import Net
    from perdure.kernel.graphs.run_trace import RunTracer
    from perdure.kernel.graphs.step_overview import DocumentPath, StepDelay, StepReader
    from perdure.kernel.inputs import Input
    from perdure.kernel.secrets.sealed_arguments import SecretRequests
    from perdure.kernel.turn import Turn


class Obstacle(msgspec.Struct, frozen=True):
    """Why a run cannot be moved to another document."""

    place: str  # a step, as people write it; empty: the whole run
    reason: str
    needs_mapping: bool = False  # it can, once somebody says which step of the new document this one is


class Dialect(ABC):
    """Base class of all languages."""

    name: ClassVar[str]  # the language, as `ps` shows it
    version: ClassVar[int]  # of the snapshot; a snapshot of another version is ignored
    edition: ClassVar[int]
    """Edition of the language: raised when documents may contain what an older program would misread."""
    name_label: ClassVar[str] = ""  # the label that holds a run's own name; empty where runs have only ids
    label_verb: ClassVar[str] = ""  # the control message that changes labels: `{"labels": {name: value or null}}`
    call_markers: ClassVar[tuple[bytes, ...]] = ()  # a text that contains none of these starts no other document
    is_for_tests: ClassVar[bool] = False
    pauses_itself: ClassVar[bool] = False
    """A paused run makes moves, and holds back those that its language says; otherwise the kernel makes none at all."""
    tells_steps_by_events: ClassVar[bool] = False  # which steps have ended is not in a run's state, only in its events
    reopens_at_failure: ClassVar[bool] = False
    """A redrive goes on at what failed: finished work, and effects, stay. Otherwise work is done again."""
    ignores_late_cancel: ClassVar[bool] = False  # to cancel a run that has ended changes nothing; else it is a conflict
    shown_events: frozenset[type["Event"]] = frozenset()
    """Those that change what runs show as resources, or in their histories. Nobody sees a commit of others alone."""

    names_runs: ClassVar[bool]
    shows_resources: ClassVar[bool]
    has_own_history: ClassVar[bool]
    has_references: ClassVar[bool]
    has_retention: ClassVar[bool]
    opens_envelopes: ClassVar[bool]
    draws_graphs: ClassVar[bool]
    provides_resources: ClassVar[bool]
    hides_inputs: ClassVar[bool]
    has_entries: ClassVar[bool]
    evaluates: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        cls.names_runs = cls.assign_name is not Dialect.assign_name
        cls.shows_resources = cls.resources is not Dialect.resources
        cls.has_own_history = cls.history_teller is not Dialect.history_teller
        cls.has_references = cls.body_of is not Dialect.body_of
        cls.has_retention = cls.retention is not Dialect.retention
        cls.opens_envelopes = cls.open is not Dialect.open
        cls.draws_graphs = cls.graph is not Dialect.graph
        cls.provides_resources = cls.provided is not Dialect.provided
        cls.has_entries = cls.check_entry is not Dialect.check_entry
        cls.evaluates = cls.evaluate is not Dialect.evaluate
        cls.hides_inputs = cls.has_secret_inputs is not Dialect.has_secret_inputs

    # Documents.

    @property
    @abstractmethod
    def kinds(self) -> tuple[ResourceKind, ...]:
        """What its documents declare, and how its runs are shown as resources."""

    @abstractmethod
    def recognizes(self, text: bytes) -> bool: ...

    @abstractmethod
    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        """The resources in a text, as far as it can be read; a document that can be run is one too."""

    @abstractmethod
    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        """Every problem of the text, and the program that can be run, if there is one."""

    @abstractmethod
    def load(self, text: bytes) -> Any:
        """The program of a pinned document: parsed, not validated."""

    def convert(self, text: bytes) -> ConvertedDocument:
        """A document of an earlier form of the language, in its present form."""
        return ConvertedDocument()

    def unpin(self, pinned: bytes) -> tuple[bytes, list[bytes]]:
        """The document in a pinned text, and what was pinned with it, as texts to be applied."""
        return pinned, []

    @abstractmethod
    def title(self, program: Any) -> str:
        """The name that the document gives itself; empty if it has none."""

    def foresee(self, text: bytes, around: ValidationContext) -> None:  # noqa: B027  (nothing to foresee is an answer)
        """Look up in the context what `parse` will look up, as far as the text tells, so that most are parsed once."""

    def labels(self, program: Any, run: RunId, token: str | None) -> dict[str, str]:
        """Labels by which a run of the program is found, besides its id."""
        return {}

    def secret_names(self, program: Any) -> tuple[str, ...]:
        """The secrets of the host that a document names."""
        return ()

    def namespace_of(self, program: Any) -> str:
        """The namespace that a document belongs to, where documents say so; otherwise empty."""
        return ""

    def check_entry(self, program: Any, step: str) -> Problem | None:
        """What is wrong with the step at which a start asks to begin, where the language allows to choose one."""
        raise NotImplementedError

    def apply_rules(self, document: bytes, pipeline: Any, outcome: "Outcome", began: Instant, ended: Instant) -> Any:
        """At a worker: what follows from the outcome of a task of a pipeline; None: the server is to decide."""
        return None

    def graph(self, program: Any) -> Graph:
        """The document as a graph."""
        raise NotImplementedError

    def tracer(self, program: Any) -> "RunTracer":
        """What finds out what a run made of the graph; for languages that draw graphs."""
        raise NotImplementedError

    def net(self, program: Any) -> "Net | None":
        """What may happen in a run of the document, whatever its data are; None: that is not known."""
        return None

    def find_places(self, text: bytes, program: Any, places: Sequence[Any]) -> Iterable[tuple[str, int | None]]:
        """Of each part of the net: its path, as people write it, and its line in the text of the program."""
        return [("", None)] * len(places)

    def schemas(self, program: Any) -> dict[str, Any]:
        """What a start may say, as JSON Schema: `input` and `arguments`; one that is left out may be anything."""
        return {}

    def document_schema(self) -> dict[str, Any] | None:
        return None  # what documents may contain, as JSON Schema 2020-12, for editors

    def why_unfit(self, program: Any, input: Any) -> str | None:
        """What is wrong with the input of a run, before anything of it is stored; None when it is accepted."""
        return None

    # Runs.

    @property
    @abstractmethod
    def events(self) -> tuple[type["Event"], ...]:
        """The dialect's own events, tags from 100."""

    @abstractmethod
    def begin(self, program: Any) -> Any:
        """The body of a run before its first event."""

    @abstractmethod
    def accept(self, turn: "Turn", input: "Input") -> None:
        """React to an input whose fact is already recorded."""

    @abstractmethod
    def advance(self, turn: "Turn") -> bool:
        """Make one internal move, if there is one to make."""

    @abstractmethod
    def exhausted(self, turn: "Turn", reason: str, count: int) -> None:
        """This many moves, or caught failures (`reason`), without outside input, or bytes at once: end the run."""

    @abstractmethod
    def refusal(self, execution: "Execution", message: Signal | Steer | Reopen) -> str | None:
        """Why an operator's input cannot be accepted now; None when it can."""

    def missing_places(self, execution: "Execution") -> list[str]:
        """Where a run, if it were redriven with a newer document, would go on that it does not have: a phrase each."""
        raise NotImplementedError

    def obstacles(self, execution: "Execution", move: "DocumentChange") -> list["Obstacle"]:
        """What keeps an open run from going on with another document; none: it is safe to move."""
        return [Obstacle("", f"runs of language {self.name!r} are not moved to other documents")]

    def moved(self, body: Any, program: Any, mapping: Mapping[str, str]) -> Any:
        """The body of a run that goes on with this program; called where there were no obstacles."""
        raise NotImplementedError

    @abstractmethod
    def evolve(self, body: Any, event: "Event") -> None:
        """Apply an event to the body."""

    @abstractmethod
    def freeze(self, body: Any) -> bytes:
        """The body as a snapshot."""

    @abstractmethod
    def thaw(self, program: Any, frozen: bytes) -> Any:
        """The body from which a snapshot was made."""

    @abstractmethod
    def show(self, execution: "Execution", texts: Mapping[bytes, bytes]) -> Any:
        """The run as JSON data, in the language's own terms. `texts` holds large values by digest."""

    def show_itself(self, execution: "Execution", texts: Mapping[bytes, bytes]) -> Any:
        """The same for lists of runs, which are long: without what `resources` makes parts of."""
        return self.show(execution, texts)

    def has_streams(self, execution: "Execution") -> bool:
        """Whether streams of the run keep rows beside its log, which `show` wants to see (`Execution.stream_rows`)."""
        return False

    def awaits(self, execution: "Execution") -> list[str]:
        """What the run waits for from people: a phrase each, such as `signal 'go'`."""
        return []

    def delays(self, execution: "Execution") -> dict[int, "StepDelay"]:
        """Whose delays the run's timers are: retries, sleeps. By timer, from the state alone; bounds are not listed."""
        return {}

    def step_reader(self, run: RunId, program: Any) -> "StepReader | None":
        """What makes the run's steps, as people look at them, from its events and its state; None: it has none."""
        return None

    def cause(self, execution: "Execution") -> str:
        return ""  # what made a run fail, in a few words, where its outcome does not say it

    def has_scope(self, execution: "Execution", step: str) -> bool:
        """Whether the state has what expressions of this step read; asked where the language `evaluates`."""
        return False

    def evaluate(self, turn: "Turn", step: str, expression: str, hide: Callable[[Any], Any]) -> Any:
        """The value of an expression as the step would read it now; `hide` masks. May raise `ExpressionFailed`."""
        raise NotImplementedError

    def with_all_code(self) -> "Dialect":
        """The same, as if all code were loaded: for views that decide again what a process that has it decided."""
        return self

    def value_tracer(self) -> "ValueTracer | None":
        """What tells where values come from, for one history that is decided again; None: the language does not."""
        return None

    def written_arguments(self, program: Any, step: str) -> Any:
        """What the document passes to the task of a step, with its expressions; None where it passes nothing."""
        return None

    def line_of(self, text: bytes, place: "DocumentPath") -> int | None:
        """The line of a step in the pinned document; None where that is not the text that somebody wrote."""
        return None

    def brief(self, execution: "Execution") -> dict[str, Any] | None:
        """The state of a run without its results: JSON data with `status`; None: the kernel's status."""
        return None

    def ended_steps(self, execution: "Execution", turns: Iterable[tuple[Instant, list["Event"]]]) -> frozenset[str]:
        """The names of steps that have ended at least once; `turns` is empty unless `tells_steps_by_events`."""
        return frozenset()

    def exit_status(self, status: Status, outcome: Outcome) -> Status:
        """The status that scripts see at the end of a run."""
        return status

    def remarks(self, execution: "Execution", verb: str, body: Any) -> list[str]:
        """What the sender of an accepted control message should know: a phrase each."""
        return []

    def body_of(self, execution: "Execution", texts: Mapping[bytes, bytes], ref: str, now: Instant) -> Any:
        """The value behind a reference, or the run's result if `ref` is empty; raises `ReferenceNotAvailable`."""
        raise NotImplementedError

    def history_teller(self, run: RunId) -> "Callable[[Instant, Event], Iterable[dict[str, Any]]]":
        """Tells each event in the language's names: JSON data with `seq` (no gaps), `event_type` and `timestamp`."""
        raise NotImplementedError

    def history(self, run: RunId, turns: Iterable[tuple[Instant, list["Event"]]]) -> Iterable[dict[str, Any]]:
        tell = self.history_teller(run)  # takes the next event when what is shown of this one was yielded
        return (shown for at, events in turns for event in events for shown in tell(at, event))

    # Messages to runs.

    def subjects(self, message: Signal | Steer | Reopen) -> frozenset[str]:
        """What a message sets; of two that set the same thing the later one wins."""
        return frozenset({f"signal {message.name}"}) if isinstance(message, Signal) else frozenset()

    def phrase(self, message: Signal | Steer | Reopen) -> str | None:
        """The message as a short phrase, such as `gate 'ok' approved`; None: the kernel's phrase."""
        return None

    def unreached(self, execution: "Execution", message: Signal | Steer | Reopen) -> str:
        """What the run has to reach before the message applies, such as `gate 'ok'`."""
        return ""

    # Secrets.

    def has_secret_inputs(self, program: Any, options: Mapping[str, Any]) -> bool:
        """Whether a document may declare parts of its run's input secret: no view of the run shows them."""
        return False

    def secret_inputs(self, program: Any, input: Any, options: Mapping[str, Any]) -> Iterable[str]:
        """The secrets in the run's input, as texts."""
        return ()

    def open(self, body: Any, run: RunId) -> "SecretRequests[dict[str, Any]]":
        """At a worker: the provider's arguments in an envelope; asks for what is missing. May raise `EnvelopeError`."""
        raise NotImplementedError

    # Names of runs.

    def find_name(self, program: Any, token: str | None, options: Mapping[str, Any]) -> str | None:
        """The name of a run that can be found again; None: it gets a new id."""
        return None

    def assign_name(self, program: Any, run: RunId, options: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        """The name of a run that is being created; no other run of its namespace has it."""
        raise NotImplementedError

    def same_start(self, program: Any, input: bytes, options: Mapping[str, Any]) -> bytes:
        """What two starts under one name must have in common."""
        raise NotImplementedError

    # Resources.

    def provided(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """A resource that stands for loaded code; used where the catalog has no entry of that name."""
        return None

    def admitted(self, resource: dict[str, Any], warnings: Sequence[str] = ()) -> dict[str, Any] | None:
        """Members of a resource's status; None for kinds without one. Also called for one that will be refused."""
        return None

    def users(self, kind: str) -> tuple[str, ...]:
        return ()  # the kinds that may use a resource of this kind; empty where this is not counted

    def with_usage(self, resource: dict[str, Any], users: Sequence[dict[str, Any]], runs: int) -> dict[str, Any]:
        """The resource, with the counts in its status. `users`: all resources of those kinds."""
        return resource

    def resource_schema(self, kind: str) -> dict[str, Any]:
        """What a resource of this kind may say besides its metadata, as an OpenAPI schema with `properties`."""
        return {}

    def resources(self, view: Any) -> list[dict[str, Any]]:
        """The resources in a view of a run: the run itself first, then its parts."""
        raise NotImplementedError

    def holders(self, kind: str, name: str) -> list[str]:
        """Names of runs that may show a resource of this kind and name; empty where any run may."""
        raise NotImplementedError

    def patched(self, execution: "Execution", kind: str, patch: dict[str, Any]) -> list["Input"]:
        """The message to a run that such a change of a resource means. Raises ValueError if it is not allowed."""
        raise NotImplementedError

    # How long runs are kept. A run is asked to `clean` before its children are removed.

    def retention(self, program: Any) -> Retention:
        raise NotImplementedError

    def is_clean(self, execution: "Execution") -> bool:
        """Whether its children may be removed: what must outlive them is in the run itself."""
        raise NotImplementedError

    def goes_with(self, execution: "Execution") -> list[ResourceKey]:
        """Entries of the catalog that are about this run alone."""
        return []

    def forget(self, runs: "Sequence[RunId]") -> None:  # noqa: B027  (no files is an answer)
        """These runs, of any language, were removed: remove files that belong to one of them alone."""
