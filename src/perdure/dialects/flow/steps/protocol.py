"""What an action of a Step is. A new one is a file in this folder and a line in its registry."""

from typing import TYPE_CHECKING, Any, Protocol

from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state.body import Step

if TYPE_CHECKING:
    from perdure.dialects.flow.document.cursor import Cursor
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical


class Action(Protocol):
    @property
    def name(self) -> str: ...

    def check(self, cursor: "Cursor") -> None:
        """Report what is wrong with a Step of this kind."""

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> Any:
        """What the action needs to know of its own fields at run time; `Step.own`."""

    def advance(self, move: Move, step: Step) -> None:
        """The Step is on top of its frame's stack: do the next thing, and emit at least one event."""

    def resolve(self, move: Move, step: Step) -> None:
        """A Result has risen to the Step; only actions that wrap a stack see one."""


class Plain:
    """An action into which nothing rises."""

    def resolve(self, move: Move, step: Step) -> None:
        raise AssertionError(f"nothing rises into the Step {step.name}")
