"""Joins: tokens that arrive from several branches of a fork leave as one (PBK-130, 232).

    fork ──▶ a ──▶ ┐
         ──▶ b ──▶ ┴ tracker ──▶ join, with args {branches: {a: …, b: …}}

A tracker belongs to the nearest step-run from whose tokens all the named steps could be reached, or to the execution
where there is none. It counts rounds: the second token that a branch delivers belongs to the second round. Tokens
that arrive after the token of their round has left end there. Once its step-run has no descendants left, the tokens it
still holds fail.
"""

from perdure.dialects.playbook.plan.program import Join, Program, Step
from perdure.dialects.playbook.run.token_deadlines import bound_token, release_token
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import error
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn

INCOMPLETE = "JOIN_INCOMPLETE"


def branch_of(program: Program, source: str, target: str) -> str:
    """The branch as which a token from one step arrives at another; empty if the step is not a join for it."""
    join = program.steps[target].join
    return source if join is not None and source in join.branches else ""


def commonly_forked(program: Program, tokens: list[p.NewToken]) -> tuple[str, ...]:
    """The joins whose branches these tokens of one step-run may become."""
    names = []
    for name, reach in program.joins.items():
        join = program.steps[name].join
        assert join is not None
        offered = {branch for token in tokens for branch in _offered(token, name, reach[token.step])}
        if len(offered) >= min(join.need if join.need > 1 else 2, len(join.branches)):
            names.append(name)
    return tuple(names)


def _offered(token: p.NewToken, join: str, reached: frozenset[str]) -> frozenset[str]:
    return frozenset({token.branch}) if token.step == join and token.branch else reached


def arrive(turn: Turn, number: int) -> None:
    """A token has reached a join: it is held, completes the round, or is too late."""
    body: b.Body = turn.body
    token = body.tokens[number]
    join = _join(turn.program.steps[token.step])
    fork = body.forks[token.fork].keys.get(token.step, b.WHOLE)
    tracker = body.forks[fork].trackers.get(token.step, b.JoinTracker())
    if tracker.counts.get(token.branch, 0) < tracker.fired:
        turn.emit(p.JoinReached(number, fork, is_late=True))
        return
    heads = {branch: next(iter(tokens)) for branch, tokens in tracker.held.items() if tokens}
    heads.setdefault(token.branch, number)
    if len(heads) < join.need:
        turn.emit(p.JoinReached(number, fork))
        bound_token(turn, number)
        return
    heads = {branch: heads[branch] for branch in join.branches if branch in heads}
    args = _args_of(turn, heads)
    gated = turn.program.steps[token.step].admission is not None
    joined = p.NewToken(body.tokens_made + 1, token.step, gated, args)
    turn.emit(p.JoinReached(number, fork))
    for head in heads.values():
        release_token(turn, head)
    turn.emit(p.JoinCompleted(token.step, fork, tuple(heads.values()), number, joined, turn.now))


def _args_of(turn: Turn, heads: dict[str, int]) -> Payload:
    branches = {branch: turn.body.tokens[head].args.read(turn.text) for branch, head in heads.items()}
    return turn.keep(jsontext.encode({"branches": branches}))


def expire_round(turn: Turn, number: int) -> int:
    """The deadline of a held token has passed: what has arrived becomes one token, which it returns (PBK-193)."""
    body: b.Body = turn.body
    token = body.tokens[number]
    held = body.forks[token.held_by].trackers[token.step].held
    join = _join(turn.program.steps[token.step])
    heads = {branch: next(iter(held[branch])) for branch in join.branches if held.get(branch)}
    args = _args_of(turn, heads)
    for head in heads.values():
        release_token(turn, head)
    joined = p.NewToken(body.tokens_made + 1, token.step, False, args)
    turn.emit(p.JoinExpired(token.step, token.held_by, tuple(sorted(heads.values())), joined, turn.now))
    return joined.token


def fail_join(turn: Turn, fork: int) -> None:
    """No further token can reach a join that still holds tokens."""
    body: b.Body = turn.body
    step, tracker = next(
        (step, tracker) for step, tracker in body.forks[fork].trackers.items() if any(tracker.held.values())
    )
    join = _join(turn.program.steps[step])
    arrived = [branch for branch in join.branches if tracker.held.get(branch)]
    missing = [branch for branch in join.branches if branch not in arrived]
    present, absent = ", ".join(arrived), ", ".join(missing)
    message = f"step {step!r} waits for {join.need} of its branches: {present} arrived, {absent} can no longer arrive"
    failed = error("policy_fail", message, INCOMPLETE, source=step, details={"arrived": arrived, "missing": missing})
    tokens = tuple(sorted(number for held in tracker.held.values() for number in held))
    for number in tokens:
        release_token(turn, number)
    turn.emit(p.JoinFailed(step, fork, tokens, failed))


def _join(step: Step) -> Join:
    assert step.join is not None, "only a join makes a token arrive"
    return step.join
