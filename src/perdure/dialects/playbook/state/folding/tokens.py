"""Tokens and their gates; changes of `ctx`, after which gates are evaluated again."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body, TokenState
from perdure.dialects.playbook.state.folding.births import open_run, open_thread
from perdure.dialects.playbook.state.folding.forks import add_branch, close_if_over, lineage_of, release, remove_branch
from perdure.dialects.playbook.state.values import Patch, Value
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant


def add_tokens(
    body: Body, new_tokens: tuple[p.NewToken, ...], event: b.Boundary, at: Instant, parent: int = 0, fork: int = b.WHOLE
) -> None:
    """A token whose step starts at once is counted and becomes a step-run; it is not kept as a token."""
    for new in new_tokens:
        if not new.run:
            add_token(body, new, event, at, parent, fork)
            continue
        body.tokens_made = new.token
        if body.forks:
            add_branch(body, fork)
        body.seq += 1
        run = open_run(body, new.run, new.token, new.step, Value(new.args), at, fork)
        open_thread(body, new.run, run, b.ALONE)


def add_token(
    body: Body, new: p.NewToken, event: b.Boundary, at: Instant, parent: int = 0, fork: int = b.WHOLE
) -> b.Token:
    token = b.Token(new.step, Value(new.args), event, at, parent, new.arc, fork=fork, branch=new.branch)
    body.tokens[new.token] = token
    body.tokens_made = new.token
    add_branch(body, fork)
    if new.branch:
        body.arriving[new.token] = None
    elif new.gated:
        body.unevaluated[new.token] = None
    else:
        token.state = TokenState.ADMITTED
        body.admitted[new.token] = None
    return token


def _admission_judged(body: Body, event: p.AdmissionJudged) -> None:
    number = event.token
    token = body.tokens[number]
    token.decision = b.AdmissionDecision(event.allow, event.rule, event.errors)
    body.unevaluated.pop(number, None)
    if event.fate == "pending":
        token.state = TokenState.PENDING
        token.reads = event.reads
        body.pending[number] = None
        for name in event.reads:
            body.readers.setdefault(name, {})[number] = None
        return
    _leave_pending(body, number, token)
    forget_bound(body, token)
    if event.fate == "admitted":
        token.state = TokenState.ADMITTED
        body.admitted[number] = None
        body.waiting = False
    else:
        discard(body, number, b.BranchEnding.SKIPPED)


def _admission_unchanged(body: Body, event: p.AdmissionUnchanged) -> None:
    body.unevaluated.pop(event.token, None)


def _token_bounded(body: Body, event: p.TokenBounded) -> None:
    token = body.tokens[event.token]
    forget_bound(body, token)
    if event.timer:
        token.timer = event.timer
        body.token_bounds[event.timer] = event.token


def forget_bound(body: Body, token: b.Token) -> None:
    if token.timer:
        body.token_bounds.pop(token.timer, None)
        token.timer = 0


def consume(body: Body, number: int) -> b.Token:
    """A step starts. A token that still waited has met its deadline."""
    token = body.tokens.pop(number)
    body.admitted.pop(number, None)
    if token.state is not TokenState.ADMITTED:
        body.unevaluated.pop(number, None)
        _leave_pending(body, number, token)
        body.waiting = False
    forget_bound(body, token)
    return token


def _leave_pending(body: Body, number: int, token: b.Token) -> None:
    body.pending.pop(number, None)
    for name in token.reads:
        readers = body.readers[name]
        del readers[number]
        if not readers:
            del body.readers[name]
    token.reads = ()


def discard(body: Body, number: int, ending: str, *, is_kept: bool = False) -> None:
    token = body.tokens.pop(number)
    forget_bound(body, token)
    if is_kept:
        keep_unfinished(body, number, token, ending)
    for queue in (body.unevaluated, body.admitted, body.arriving):
        queue.pop(number, None)
    if token.state is TokenState.HELD:
        release(body, number, token)
        close_if_over(body, token.held_by)
    else:
        remove_branch(body, token.fork)
    if number == body.finalizing:
        body.final = "skipped"  # the finalization is not a branch
    else:
        end_branch(body, ending)
    if ending == b.BranchEnding.STRANDED:
        body.stranded.append(b.StrandedToken(token.step, number, token.decision))


def _token_dropped(body: Body, event: p.TokenDropped) -> None:
    _leave_pending(body, event.token, body.tokens[event.token])
    is_kept = event.ending in (b.BranchEnding.ABORTED, b.BranchEnding.STRANDED) and event.token != body.finalizing
    discard(body, event.token, event.ending, is_kept=is_kept)


def keep_unfinished(body: Body, number: int, token: b.Token, ending: str) -> None:
    body.unfinished_tokens[number] = b.UnfinishedToken(token, ending, lineage_of(body, token.fork))


def end_branch(body: Body, ending: str) -> None:
    body.branches[ending] = body.branches.get(ending, 0) + 1


def patch_ctx(body: Body, patch: Patch, size: int, run: int) -> None:
    """Change `ctx`, and put every gate that reads what was changed back into the queue, oldest first (PBK-064)."""
    body.ctx.assign(patch, body.growing)
    body.growing = ()
    body.ctx_size = size
    affected: set[int] = set(body.readers.get(b.ANY_NAME, ()))
    for key, _ in patch:
        name = key.partition(".")[0]
        body.writers[name] = (run, body.seq)
        affected.update(body.readers.get(name, ()))
    for number in sorted(affected):
        body.unevaluated[number] = None


def _ctx_grows(body: Body, event: p.CtxGrows) -> None:
    body.growing = event.keys


def _ctx_patched(body: Body, event: p.CtxPatched) -> None:
    patch_ctx(body, event.set_ctx, event.size, 0)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.AdmissionJudged: _admission_judged,
    p.AdmissionUnchanged: _admission_unchanged,
    p.TokenDropped: _token_dropped,
    p.TokenBounded: _token_bounded,
    p.CtxPatched: _ctx_patched,
    p.CtxGrows: _ctx_grows,
}
