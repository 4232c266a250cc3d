"""The interface of a step kind, with defaults that fit most kinds.

A new kind is a subclass in a file of this package, and one line in the registry (`steps/__init__`). How its events
change the state is defined in `state/folding`, as for all events.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perdure.kernel.graphs.graph import Role

if TYPE_CHECKING:
    from perdure.dialects.story.document.context import StoryContext
    from perdure.dialects.story.document.cursor import Cursor
    from perdure.dialects.story.plan.program import Program, Step
    from perdure.dialects.story.state.body import StepState
    from perdure.dialects.story.views.net import StoryNet
    from perdure.kernel.events import ChildEnded
    from perdure.kernel.json_values.values import Instant, RunId
    from perdure.kernel.turn import Turn

ENGRAM = "engram"
"""The kind of a step that refers to an Engram; every other kind is written in `type`."""

ENGRAM_MEMBERS: tuple[tuple[str, ...], ...] = (
    ("execution", "cache"),
    ("execution", "retry"),
    ("execution", "timeout"),
    ("execution", "effectsInDoubt"),
    ("idempotencyKeyTemplate",),
    ("secrets",),
)


class StepKind:
    # The document.

    members: tuple[str, ...] = ()
    """The members of `with` that it reads, for `Cursor.warn_unread`."""

    branches_member = ""
    """The member of `with` that lists its branches, which are steps too."""

    unused_members = ENGRAM_MEMBERS
    """Members of a step, as paths, that have no effect on this kind (STY-130, STY-224)."""

    is_batch_only = False

    def check(self, step: "Cursor", name: str, block: str, story: "StoryContext") -> None:
        """Report problems in its `with`."""

    def tidy(self, with_block: dict[str, Any]) -> dict[str, Any]:
        """Its `with` in normal form, as it is stored."""
        return with_block

    # The plan.

    makes_edges = False
    """Whether the step waits for the steps that the templates in its `with` read (STY-026)."""

    purposes: tuple[str, ...] = ()
    """What a helper step may evaluate for it, apart from `if` and the idempotency key (STY-207)."""

    def required_purposes(self, step: "Step") -> Iterator[str]:
        """What a helper may evaluate for it, whatever the policy for offloaded data is (STY-220)."""
        yield from ()

    def story_references(self, with_block: dict[str, Any]) -> Iterator[Any]:
        """References to the Stories that it may start, as written in its `with`."""
        yield from ()

    # The run.

    checks_requires = False
    """Whether it checks `requires` itself when it starts, rather than before (STY-213)."""

    has_step_run = False
    takes_decisions = False

    def start(self, turn: "Turn", step: "Step") -> None:
        """Start the step, or end it at once. Its dependencies have ended and its `if` holds."""
        raise NotImplementedError

    def resume(self, turn: "Turn", step: "Step", state: "StepState") -> None:
        """Continue a step that has started, after something it waited for has arrived."""

    def on_timer(self, turn: "Turn", step: "Step", state: "StepState") -> None:
        """Handle its deadline."""

    def on_child_end(self, turn: "Turn", step: "Step", state: "StepState", end: "ChildEnded") -> None:
        """Handle the end of a run that it started."""

    # The views.

    role = Role.STEP
    """What it is in a drawing."""

    def inner_stories(self, step: "Step") -> dict[str, Any]:
        """The specs of Stories that are written inside it, by a name for each; they are drawn inside it too."""
        return {}

    def note(self, program: "Program", step: "Step") -> str:
        """The line below its name in a drawing."""
        return step.kind

    def awaited(self, run: "RunId", step: str) -> str:
        """What it waits for while it is paused, as text for people; empty if it only waits for time."""
        return ""

    # The net.

    def build_net(self, net: "StoryNet", step: "Step", at: int) -> None:
        """What may happen once the step has started; by default it works, and may fail."""
        net.work(step, at)

    def own_limit(self, step: "Step") -> "Instant | None":
        """A time limit that is written in its `with`."""
        return None
