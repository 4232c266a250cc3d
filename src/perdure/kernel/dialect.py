"""What a workflow language must offer to live in this house.

    text ──parse──▶ Program          once, judged; `load` reads a pinned text again and never judges it
    accept(turn, input)              an input was recorded: react to it
    advance(turn) ──▶ moved?         one internal move; False when the run needs the world
    evolve(body, event)              total, dull, constant time; sees the kernel's events and its own

A dialect works on two things only: the `Turn`, through which it asks and emits, and its `body`,
which nothing but `evolve` changes. Within one `accept` or `advance` it asks (`turn.text`, `turn.resource`,
`turn.cached`) before it emits, so that the move can be made again with the answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from perdure.kernel.inputs import Reopen, Signal, Steer
from perdure.kernel.lookups import Named
from perdure.kernel.outcomes import Outcome, Status
from perdure.kernel.values import Instant, RunId

if TYPE_CHECKING:
    from perdure.kernel.events import Event
    from perdure.kernel.execution import Execution
    from perdure.kernel.inputs import Input
    from perdure.kernel.turn import Turn


class Dialect(Protocol):
    @property
    def name(self) -> str:
        """The language, as `ps` shows it."""

    @property
    def events(self) -> tuple[type["Event"], ...]:
        """The dialect's own events, tags from 100."""

    @property
    def edition(self) -> int:
        """Of the language. Raised when documents may say what an older program would misread; see `versions`."""

    def load(self, text: bytes) -> Any:
        """The program of a pinned document: parsed, not judged."""

    def begin(self, program: Any) -> Any:
        """The body of a run before its first event."""

    def secret_names(self, program: Any) -> tuple[str, ...]:
        """Secrets of the host that the document names."""

    def namespace_of(self, program: Any) -> str:
        """Where the document belongs; `default` in a language without namespaces."""

    def accept(self, turn: "Turn", given: "Input") -> None:
        """React to an input whose fact is already recorded."""

    def advance(self, turn: "Turn") -> bool:
        """Make one internal move, if there is one to make."""

    def exhausted(self, turn: "Turn", reason: str, count: int) -> None:
        """So many moves, or caught failures (`reason`), without outside input: end the run, in the dialect's manner."""

    def refusal(self, execution: "Execution", given: Signal | Steer | Reopen) -> str | None:
        """Why an operator's input cannot be taken now; None when it can."""

    def evolve(self, body: Any, event: "Event") -> None:
        """Apply an event to the body."""

    def freeze(self, body: Any) -> bytes:
        """The body as a snapshot."""

    def thaw(self, program: Any, frozen: bytes) -> Any:
        """The body a snapshot was made of."""

    @property
    def version(self) -> int:
        """Of the snapshot; a snapshot of another version is passed over."""

    def awaits(self, execution: "Execution") -> list[str]:
        """What somebody has to say before the run goes on: a phrase each, such as `signal 'go'`; often none."""

    def show(self, execution: "Execution", texts: Mapping[bytes, bytes]) -> Any:
        """The run as JSON data, in the dialect's own words. `texts` holds large values by digest."""


@runtime_checkable
class Stocked(Protocol):
    """A dialect may know resources that nobody applied: they stand for code that is loaded."""

    def provided(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Looked for where the catalog has no entry of that name."""


@runtime_checkable
class Admitting(Protocol):
    """A dialect may say how a resource stands once it was judged and found good."""

    def admitted(self, resource: dict[str, Any], warnings: Sequence[str] = ()) -> dict[str, Any] | None:
        """Members of its status; None for kinds without one. Also asked of what will be refused."""


@runtime_checkable
class Tallying(Protocol):
    """A language whose resources tell who uses them: others in the catalog, and runs."""

    def users(self, kind: str) -> tuple[str, ...]:
        """The kinds that may use a resource of this kind; empty where nobody asks."""

    def tallied(self, resource: dict[str, Any], users: Sequence[dict[str, Any]], runs: int) -> dict[str, Any]:
        """The resource, with what is counted in its status. `users`: all resources of those kinds."""


@runtime_checkable
class Resourceful(Protocol):
    """A dialect may show its runs as resources, of kinds that are views of runs, and understand changes to them."""

    def resources(self, shown: Any) -> list[dict[str, Any]]:
        """The resources in a run's picture (`show`): the run itself first, then its parts."""

    def holders(self, kind: str, name: str) -> list[str]:
        """Names that the run may have which shows a resource of this kind and name; empty where any run may."""

    def patched(self, execution: "Execution", kind: str, patch: dict[str, Any]) -> list["Input"]:
        """What a change of such a resource asks of its run. Raises ValueError where it may not be changed so."""


@runtime_checkable
class Particular(Protocol):
    """A language may refuse what a run is to be given, before anything is stored of it."""

    def unfit(self, program: Any, given: Any) -> str | None:
        """What is wrong with the input; None when it can be taken."""


@runtime_checkable
class Forgiving(Protocol):
    """A language in which to cancel what has ended changes nothing; elsewhere it is a conflict."""

    @property
    def late_cancel_is_nothing(self) -> bool: ...


@runtime_checkable
class Conversant(Protocol):
    """A language may say what words to its runs are about; without this, signals are about their name."""

    def subjects(self, given: Signal | Steer | Reopen) -> frozenset[str]:
        """What the word sets; of two that set the same the later one wins."""

    def phrase(self, given: Signal | Steer | Reopen) -> str:
        """The word in a few words, such as `gate 'ok' approved`."""

    def unreached(self, execution: "Execution", given: Signal | Steer | Reopen) -> str:
        """What the run has to reach before the word applies, such as `gate 'ok'`; often nothing."""


@runtime_checkable
class Telling(Protocol):
    """A language whose ends tell scripts something else than the kernel's status does."""

    def exit_status(self, status: Status, outcome: Outcome) -> Status: ...


@runtime_checkable
class Naming(Protocol):
    """A dialect may name its runs: whoever starts one under a name that is taken finds the run that has it."""

    def name_run(self, program: Any, token: str | None, options: Mapping[str, Any]) -> tuple[str, str] | None:
        """Namespace and name of a run that is to be found again; None: it gets an id that nobody has had."""

    def names(self, program: Any, run: RunId, options: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, str]:
        """Namespace and name of a run that is being created; no other run has them."""

    def same_start(self, program: Any, given: bytes, options: Mapping[str, Any]) -> bytes:
        """What two starts under one name have to agree in."""


class Keeping(msgspec.Struct, frozen=True):
    """How long a run is kept after its end. `children` None: as long as the run itself; `record` None: for ever.

    With `is_brief` the record goes as soon as the children have gone.
    """

    children: Instant | None
    record: Instant | None
    is_brief: bool = False


@runtime_checkable
class Retaining(Protocol):
    """A dialect may say how long its runs are kept. A run is told to `clean` before its children are removed."""

    def keeping(self, program: Any) -> Keeping: ...

    def is_clean(self, execution: "Execution") -> bool:
        """Whether its children may go: what has to survive them is in the run itself."""

    def goes_with(self, execution: "Execution") -> list[Named]:
        """Entries of the catalog that are about this run alone."""


@runtime_checkable
class Confiding(Protocol):
    """A language in which a document may make a secret of what its run is given: no view of the run shows it."""

    def confides(self, program: Any, options: Mapping[str, Any]) -> bool:
        """Whether there may be any such secret."""

    def secret_inputs(self, program: Any, given: Any, options: Mapping[str, Any]) -> Iterable[str]:
        """The secrets in what the run was given, as texts."""


@runtime_checkable
class Briefing(Protocol):
    """A dialect may say how a run stands without showing what it has produced."""

    def brief(self, execution: "Execution") -> dict[str, Any]:
        """JSON data with `status`, in the dialect's own words; never results."""


@runtime_checkable
class Referring(Protocol):
    """A dialect may hold large results by reference; its pictures of a run then show references only."""

    def body_of(self, execution: "Execution", texts: Mapping[bytes, bytes], ref: str, now: Instant) -> Any:
        """The value behind a reference, or the run's result if `ref` is empty; raises `ReferenceNotAvailable`."""


@runtime_checkable
class Chronicler(Protocol):
    """A dialect may tell a run's history in event names of its own; without this the kernel's events are shown."""

    def chronicle(self, run: RunId, turns: Iterable[tuple[Instant, list["Event"]]]) -> Iterable[dict[str, Any]]:
        """What is told of each recorded event, while the next one has not been taken from `turns` yet.

        Every item is JSON data with `seq` (from 1, without gaps), `event_type` and `timestamp`.
        """
