"""Trackers of joins: tokens that are held, rounds that are complete, and rounds that never will be."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body, TokenState
from perdure.dialects.playbook.state.folding.forks import close_if_over, release, remove_branch
from perdure.dialects.playbook.state.folding.tokens import add_token, discard, end_branch, keep_unfinished
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
    node = body.forks[event.fork]
    node.trackers[event.step].fired += 1
    last = body.tokens[event.last]
    for number in event.tokens:
        release(body, number, body.tokens.pop(number))
    body.incomplete_forks.pop(event.fork, None)
    home = event.fork
    if not node.live and not node.held and home != b.WHOLE:  # all branches of the fork have been joined
        del body.forks[home]
        home = node.parent
        body.forks[home].live -= 1
    add_token(body, event.token, last.event, event.at, last.parent, home)


def _failed(body: Body, event: p.JoinFailed) -> None:
    for number in event.tokens:
        token = body.tokens.pop(number)
        keep_unfinished(body, number, token, b.BranchEnding.FAILED)
        release(body, number, token)
        end_branch(body, b.BranchEnding.FAILED)
    body.failures.append(b.BranchFailure(event.step, 0, "", False, event.error))
    body.unhandled += 1
    close_if_over(body, event.fork)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.JoinReached: _reached,
    p.JoinCompleted: _completed,
    p.JoinFailed: _failed,
}
