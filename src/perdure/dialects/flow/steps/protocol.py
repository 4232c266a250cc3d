"""What an action of a Step is. A new one is a file in this folder and a line in its registry.

The file has everything about the action: the members of its Steps and what else is checked, what is compiled, how it
runs, what its Steps show to expressions, how they are drawn, and what `check` warns of.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from perdure.dialects.flow.document.cursor import Cursor, Rule
from perdure.dialects.flow.plan.program import Clause, Flow, MiddlewareEntry, PlannedCall
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.values import Result
from perdure.documents.cursor import DocumentFinding
from perdure.kernel.graphs.graph import Role
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


class Action:
    """`fields` in these methods is what `compile` returned for the Step."""

    name: ClassVar[str]
    text: ClassVar[str] = ""  # what its Steps do, for editors
    members: ClassVar[Mapping[str, Rule]]  # of its Steps, besides `action` and `comment`
    required: ClassVar[Sequence[str]] = ()
    one_of: ClassVar[Sequence[Sequence[str]]] = ()  # its Steps have the members of one of these groups
    code_of_missing: ClassVar[str] = "MWL-022"  # if a required member is missing, apart from `next`
    is_terminal: ClassVar[bool] = False  # it ends its Flow, so `next` has no meaning (MWL-025)
    fans_out: ClassVar[bool] = False  # it dispatches several calls at once
    results: ClassVar[Sequence[str]] = ()  # members of `step` that exist from the Step's tail on
    call_members: ClassVar[Sequence[str]] = ()  # members of `call` that only the calls of such a Step have

    # In the document.

    def check(self, cursor: Cursor) -> None:
        """Report what is wrong with a Step beyond its members, which are checked by the rules of `members`."""

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> Any:
        """What the action needs to know of its own fields at run time; `Step.fields`."""

    def advise(self, fields: Any) -> Iterator[DocumentFinding]:
        """Warnings about a Step that is valid."""
        yield from ()

    def advise_place(self, step: PlannedStep, flow: Flow) -> Iterator[DocumentFinding]:
        """Warnings about a valid Step at its place in a valid Flow."""
        yield from ()

    # In a run.

    def advance(self, move: Move, step: Step) -> None:
        """The Step is on top of its frame's stack: do the next thing, and emit at least one event."""
        raise NotImplementedError

    def resolve(self, move: Move, step: Step) -> None:
        """A Result has risen to the Step; only actions that wrap a stack see one."""
        raise AssertionError(f"nothing rises into the Step {step.name}")

    def show_results(self, turn: Turn, step: Step, result: Result | None) -> dict[str, Any]:
        """What `step` has for expressions from the Step's tail on, besides what every Step has."""
        return {}

    # In views.

    role: ClassVar[Role] = Role.STEP

    def calls(self, fields: Any) -> Sequence[PlannedCall]:
        """What the Step calls."""
        return ()

    def stack(self, fields: Any) -> MiddlewareEntry | None:
        """The outermost middleware of the Step."""
        return None

    def branches(self, fields: Any) -> Sequence[tuple[str, Clause]]:
        """Where the Step leads besides `next` and its catch clauses, each with a label."""
        return ()

    def notes(self, fields: Any) -> Sequence[str]:
        """Further lines about the Step in a drawing."""
        return ()

    # In a net.

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        """What may happen from the place where the Step begins; by default it takes its time and may go anywhere."""
        part = net.step_part(step)
        net.waits += 1
        done = net.net.place()
        net.go(part, "ends", at, done, waits=True)
        for call in self.calls(step.fields):
            net.go(part, "calls", net.call(call, done, part).ok, done, is_bounded=True)
        for label, clause in self.branches(step.fields):
            net.go(part, label, done, net.start_of(clause.next))
        if step.next:
            net.go(part, "goes on", done, net.start_of(step.next))
        if self.is_terminal:
            net.go(part, "ends the Flow", done, net.frame_ends.ok)
        net.fail(step, done, net.unknown)
