"""Trackers of joins: tokens that are held, rounds that are complete, and rounds that never will be."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body, TokenState
from perdure.dialects.playbook.state.folding.forks import close_if_over, lineage_of, release, remove_branch
from perdure.dialects.playbook.state.folding.tokens import add_token, discard, end_branch, forget_bound, keep_unfinished
from perdure.kernel.events import Event


def _reached(body: Body, event: p.JoinReached) -> None:
    token = body.tokens[event.token]
    node = body.forks[event.fork]
    tracker = node.trackers.setdefault(token.step, b.JoinTracker())
    tracker.counts[token.branch] = tracker.counts.get(token.branch, 0) + 1
    if event.is_late:
        discard(body, event.token, b.BranchEnding.NORMAL)
        return
    del body.arriving[event.token]
    token.state = TokenState.HELD
    token.held_by = event.fork
    tracker.held.setdefault(token.branch, OrderedDict())[event.token] = None
    node.held += 1
    remove_branch(body, token.fork)


def _completed(body: Body, event: p.JoinCompleted) -> None:
    body.forks[event.fork].trackers[event.step].fired += 1
    last = body.tokens[event.last]
    for number in event.tokens:
        _let_go(body, number)
    add_token(body, event.token, last.event, event.at, last.parent, _leave(body, event.fork))


def _expired(body: Body, event: p.JoinExpired) -> None:
    """A redrive puts the tokens back, so that the join waits for its branches again."""
    body.forks[event.fork].trackers[event.step].fired += 1
    last = body.tokens[event.tokens[-1]]
    parts = []
    for number in event.tokens:
        lineage = lineage_of(body, body.tokens[number].fork)
        parts.append((number, b.UnfinishedToken(_let_go(body, number), "", lineage)))
    token = add_token(body, event.token, last.event, event.at, last.parent, _leave(body, event.fork))
    token.parts = parts


def _let_go(body: Body, number: int) -> b.Token:
    token = body.tokens.pop(number)
    forget_bound(body, token)
    release(body, number, token)
    return token


def _leave(body: Body, fork: int) -> int:
    """The fork to which the one token belongs that leaves a join."""
    node = body.forks[fork]
    body.incomplete_forks.pop(fork, None)
    if node.live or node.held or fork == b.WHOLE:
        return fork
    del body.forks[fork]  # all its branches have been joined
    body.forks[node.parent].live -= 1
    return node.parent


def _failed(body: Body, event: p.JoinFailed) -> None:
    for number in event.tokens:
        keep_unfinished(body, number, body.tokens[number], b.BranchEnding.FAILED)
        _let_go(body, number)
        end_branch(body, b.BranchEnding.FAILED)
    body.failures.append(b.BranchFailure(event.step, 0, "", False, event.error))
    body.unhandled += 1
    close_if_over(body, event.fork)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.JoinReached: _reached,
    p.JoinCompleted: _completed,
    p.JoinExpired: _expired,
    p.JoinFailed: _failed,
}
