"""Which step-runs have forked, and whether any of their descendants exists (PBK-232).

A fork counts what exists directly below it: tokens, step-runs, and further forks, each of which counts as one. So a
change costs the same at any depth. Programs without joins have no forks and no such cost.
"""

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.body import Body


def open_fork(body: Body, number: int, parent: int, joins: tuple[str, ...]) -> None:
    """A step-run has created several tokens; `joins` are those whose branches start here."""
    above = body.forks[parent]
    above.live += 1
    body.forks[number] = b.TokenFork(parent, {**above.keys, **dict.fromkeys(joins, number)} if joins else above.keys)


def add_branch(body: Body, fork: int) -> None:
    node = body.forks.get(fork)
    if node is not None:
        node.live += 1


def remove_branch(body: Body, fork: int) -> None:
    """A descendant of the fork has ended; the last one closes the fork, unless it still holds tokens for a join."""
    node = body.forks.get(fork)
    if node is not None:
        node.live -= 1
        close_if_over(body, fork)


def close_if_over(body: Body, fork: int) -> None:
    while (node := body.forks.get(fork)) is not None and not node.live:
        if node.held:
            body.incomplete_forks[fork] = None
            return
        body.incomplete_forks.pop(fork, None)
        if fork == b.WHOLE:
            return
        del body.forks[fork]
        fork = node.parent
        body.forks[fork].live -= 1


def lineage_of(body: Body, fork: int) -> b.Lineage:
    lineage: b.Lineage = []
    while fork != b.WHOLE and (node := body.forks.get(fork)) is not None:
        lineage.append((fork, node.parent, node.keys))
        fork = node.parent
    return lineage


def put_back(body: Body, lineage: b.Lineage, fork: int) -> None:
    """Something below the fork exists again."""
    for number, parent, keys in reversed(lineage):
        if number not in body.forks:
            add_branch(body, parent)
            body.forks[number] = b.TokenFork(parent, keys)
    add_branch(body, fork)


def release(body: Body, number: int, token: b.Token) -> None:
    """A held token leaves its tracker."""
    node = body.forks[token.held_by]
    del node.trackers[token.step].held[token.branch][number]
    node.held -= 1
