"""The gate in front of a step: may this token enter now? (Section 4 of the language.)

A denied token stays pending and is evaluated again when something its rules read has changed, in the same turn.
"""

from perdure.dialects.playbook.plan.program import Admission, OnDeny, Program
from perdure.dialects.playbook.run.token_deadlines import bound_token, release_token
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import template_message
from perdure.dialects.playbook.values.template_scopes import control_makers, gather
from perdure.expressions.jinja import TemplateError
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay_for_each

FIXED = frozenset({"workload", "args", "event", "execution_id"})


def decide_admission(turn: Turn, number: int) -> None:
    """Evaluate the gate for one token, for the first time or again."""
    body: b.Body = turn.body
    program: Program = turn.program
    token = body.tokens[number]
    admission = program.steps[token.step].admission
    if admission is None:  # a pinned document cannot lose its gate; a token without one is never evaluated
        return
    decision = decide(turn, admission, token)
    if decision == token.decision:
        turn.emit(p.AdmissionUnchanged(number))
        return
    fate, reads = "admitted", tuple[str, ...]()
    if not decision.allow:
        fate = "discarded" if admission.on_deny is OnDeny.DISCARD else "pending"
        reads = reads_of(admission)
    if fate != "pending":
        release_token(turn, number)
    turn.emit(p.AdmissionJudged(number, fate, decision.allow, decision.rule, decision.errors, reads))
    if fate == "pending":
        bound_token(turn, number)
    if decision.allow and body.wait_timer:
        turn.drop_timer(body.wait_timer)


def decide(turn: Turn, admission: Admission, token: b.Token) -> b.AdmissionDecision:
    """First true `when` decides; a guard that raises does not match, but is remembered (PBK-060, 061, 065)."""
    makers = control_makers(turn, token.args, token.event)
    scope = gather(makers, admission.reads)
    errors: list[str] = []
    pay_for_each(len(admission.rules))
    for index, rule in enumerate(admission.rules):
        if rule.when is None:
            return b.AdmissionDecision(rule.allow, b.ELSE, tuple(errors))
        try:
            note_site("admit.when")
            if rule.when.holds(scope):
                return b.AdmissionDecision(rule.allow, index, tuple(errors))
        except TemplateError as fault:
            errors.append(f"rules[{index}]: {template_message(fault)}")
    return b.AdmissionDecision(False, b.NO_RULE, tuple(errors))


def reads_of(admission: Admission) -> tuple[str, ...]:
    """The names under which a pending token is indexed, so that a change finds it."""
    read_members = admission.watches.members
    names: list[str] = []
    if "ctx" in read_members:
        members = read_members["ctx"]
        names += [b.ANY_NAME] if members is None else sorted(members)
    if "steps" in read_members:
        names.append(b.STEPS)
    return tuple(names)


def can_be_opened(admission: Admission) -> bool:
    """Whether a patch from outside could admit the token (PBK-230, 1)."""
    return admission.can_allow and "ctx" in admission.watches.names


def is_disabled(admission: Admission, token: b.Token) -> bool:
    """Whether the decision cannot change (PBK-230, 2); never so after a guard that failed."""
    if token.decision is not None and token.decision.errors:
        return False
    return not admission.can_allow or admission.watches.names <= FIXED
