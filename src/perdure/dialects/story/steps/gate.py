"""`gate`: Paused until someone decides; an earlier decision counts at once (STY-101 to STY-105)."""

from typing import TYPE_CHECKING

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import Cursor
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.durations import read_positive
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.steps.wait import add_timeout, check_timeout, time_out, timeout_of
from perdure.kernel.graphs.graph import Role
from perdure.kernel.inputs import CONTROL_WAIT_RANK
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet

DECISIONS = ("Approved", "Rejected", "Pending")
WAITING = "Waiting for gate decision."
_DEFAULT_TIMEOUT = "timeout.approval-default"


class GateStep(StepKind):
    role = Role.WAIT
    members = ("timeout", "pollInterval", "onTimeout")
    is_batch_only = True
    takes_decisions = True

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        with_block = step.at("with")
        if isinstance(with_block.value, dict):
            with_block.warn_unread(self.members)
            check_timeout(with_block, name, "gate")

    def awaited(self, run: RunId, step: str) -> str:
        return f"a decision at gate {step!r}; make it with: perdure approve {run} {step}"

    def start(self, turn: Turn, step: Step) -> None:
        if self._decided(turn, step):
            return
        program: Program = turn.program
        timeout = timeout_of(step)
        if timeout is None and _DEFAULT_TIMEOUT in program.settings.explicit_keys:  # only if set explicitly (STY-104)
            timeout = read_positive(program.settings.approval_timeout)
        deadline = None if timeout is None else turn.now + timeout
        timer = 0 if deadline is None else turn.set_timer(deadline, CONTROL_WAIT_RANK)
        turn.emit(s.StepStarted(step.name, StoryPhase.PAUSED, WAITING, turn.now, timer, deadline))

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        if not self._decided(turn, step):
            turn.emit(s.WaitChecked(step.name))

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """The decision takes precedence over the deadline (STY-103)."""
        if not self._decided(turn, step):
            time_out(turn, step)

    def _decided(self, turn: Turn, step: Step) -> bool:
        body: Body = turn.body
        gate = body.gates.get(step.name)
        if gate is None or gate.state == "Pending":
            return False
        output = {"decision": gate.state, "message": gate.message, "updatedBy": gate.by}  # STY-082
        if gate.state == "Approved":
            succeed(turn, step, gate.message or "Gate approved.", output)
        else:
            message = gate.message or "Gate rejected."
            end_step(turn, step.name, StoryPhase.FAILED, message, output=jsontext.encode(output))
        return True

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        net.succeed(step, at, "is approved", waits=True)
        net.fail(step, at, "is rejected", waits=True)
        has_limit = timeout_of(step) is not None or _DEFAULT_TIMEOUT in net.program.settings.explicit_keys
        if has_limit:
            add_timeout(net, step, at)
            return
        message = f"gate '{step.name}' waits for a decision without a time limit"
        hint = "Set `with.timeout`, or a time limit of the Story (`policy.timeouts.story`)."
        net.wait_for_ever(step, at, "no-sender", message, hint, is_person=True)

    def own_limit(self, step: Step) -> Instant | None:
        return timeout_of(step)
