"""Tokens: created, evaluated for admission, held by joins, discarded."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import run_id, token_id
from perdure.dialects.playbook.views.history.entries import (
    HistoryEntry,
    HistoryState,
    error_of,
    rule_of,
    token_ids,
    value_of,
)
from perdure.kernel.events import Event


def token_created(new: p.NewToken, parent: int, joined: tuple[int, ...] = ()) -> Iterator[HistoryEntry]:
    rest = token_ids(new.token, new.step)
    about = rest["token_id"]
    source = run_id(parent) if parent else None
    payload: dict[str, Any] = {"step": new.step, "args": value_of(new.args), "parent_step_run_id": source}
    payload["source_arc"] = new.arc if new.arc >= 0 else None
    if joined:
        payload["joined"] = [token_id(number) for number in joined]
    yield HistoryEntry("token.created", about, payload, {**rest, "parent_id": source})
    if not new.gated and not new.branch:
        answer = {"token_id": about, "allow": True, "matched_rule_index": None, "guard_errors": []}
        yield HistoryEntry("policy.admit.evaluated", about, answer, rest)


def _admission(view: HistoryState, event: p.AdmissionJudged) -> Iterator[HistoryEntry]:
    rest = token_ids(event.token, view.body.tokens[event.token].step)
    about = rest["token_id"]
    answer = {"token_id": about, "allow": event.allow, "matched_rule_index": rule_of(event.rule)}
    yield HistoryEntry("policy.admit.evaluated", about, {**answer, "guard_errors": list(event.errors)}, rest)
    if event.fate != "admitted":
        yield HistoryEntry(f"token.{event.fate}", about, {"reason": "denied"}, rest)


def _dropped(view: HistoryState, event: p.TokenDropped) -> Iterator[HistoryEntry]:
    rest = token_ids(event.token, view.body.tokens[event.token].step)
    yield HistoryEntry("token.discarded", rest["token_id"], {"reason": event.reason}, rest)


def _reached(view: HistoryState, event: p.JoinReached) -> Iterator[HistoryEntry]:
    rest = token_ids(event.token, view.body.tokens[event.token].step)
    name, reason = ("token.discarded", "join_satisfied") if event.is_late else ("token.pending", "join")
    yield HistoryEntry(name, rest["token_id"], {"reason": reason}, rest)


def _joined(view: HistoryState, event: p.JoinCompleted) -> Iterator[HistoryEntry]:
    yield from token_created(event.token, view.body.tokens[event.last].parent, event.tokens)


def _expired(view: HistoryState, event: p.JoinExpired) -> Iterator[HistoryEntry]:
    yield from token_created(event.token, view.body.tokens[event.tokens[-1]].parent, event.tokens)


def _not_joined(view: HistoryState, event: p.JoinFailed) -> Iterator[HistoryEntry]:
    for number in event.tokens:
        rest = token_ids(number, event.step)
        payload = {"reason": "join_incomplete", "error": error_of(event.error)}
        yield HistoryEntry("token.discarded", rest["token_id"], payload, rest)


TELLERS: dict[type[Event], Callable[[HistoryState, Any], Iterator[HistoryEntry]]] = {
    p.AdmissionJudged: _admission,
    p.TokenDropped: _dropped,
    p.JoinReached: _reached,
    p.JoinCompleted: _joined,
    p.JoinExpired: _expired,
    p.JoinFailed: _not_joined,
}
