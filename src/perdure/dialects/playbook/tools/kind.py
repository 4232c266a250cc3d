"""What a tool kind provides, and the call that it receives."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.plan.durations import BOUND_RANK
from perdure.dialects.playbook.plan.program import Task
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import KINDS as ERROR_KINDS
from perdure.dialects.playbook.state.task_errors import RETRYABLE, Error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.values import result_uploads, results
from perdure.dialects.playbook.values.template_scopes import Makers, task_key, task_path
from perdure.expressions.jinja import TemplateReads
from perdure.kernel.graphs.graph import Role
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Payload
from perdure.kernel.outcomes import Cancelled, Code, Failed, Outcome
from perdure.kernel.turn import Turn

NO_READS = TemplateReads()


def reads_nothing(task: Task) -> TemplateReads:
    return NO_READS


def check_nothing(cursor: Cursor) -> None:
    """For a kind whose fields are described completely by `required`, `fields` and `choices`."""


def credential_names(fields: Mapping[str, Any]) -> Iterator[str]:
    """The credential that a task names in `auth`."""
    if isinstance(auth := fields.get("auth"), str):
        yield f"credential:{auth}"


class ToolResult(msgspec.Struct, gc=False, frozen=True):
    """An outcome in the terms of the language. Without `result` the result is the value of the kernel's event."""

    error: Error | None = None
    result: bytes | None = None
    extras: dict[str, Any] = {}
    lent: tuple[dict[str, Any], ...] = ()  # bodies that were passed with it (see `lent_references`)
    whole: Any = None  # the value that contains some of them
    opens: bool = False  # the tasks that follow see the value itself, whatever its size


UNCHANGED = ToolResult()
"""Success, and nothing to add to the value."""

OnResult = Callable[[Outcome, Reader], ToolResult]


class ToolKind(msgspec.Struct, frozen=True):
    """A tool kind: its fields and their validation, how a task of it starts, and what the outcome means.

    Everything that depends on the kind of a task is a member here; no other module compares names of kinds.
    """

    start: "Callable[[ToolCall], None]"
    on_result: OnResult
    required: tuple[tuple[str, ...], ...] = ()  # one field of each group is required
    fields: frozenset[str] | None = None  # None: any
    settings: tuple[str, ...] = ()  # members of `spec` that only this kind reads
    text: frozenset[str] = msgspec.field(default_factory=frozenset)  # program text, never a template (PBK-092)
    choices: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # fields with a fixed set of values
    # The provider that always does its work, `{kind}` for one with the name of the kind: then fields may hold secrets.
    provider: str | None = None
    reads: Callable[[Task], TemplateReads] = reads_nothing  # what `start` itself reads from scopes
    credential: Callable[[str, Any], Any] = lambda kind, value: value  # what `auth: name` becomes
    is_sensitive: bool = False  # its result is a secret: not recorded, and read again where it is needed
    check: Callable[[Cursor], None] = check_nothing  # further rules for the fields, as written in the document
    secret_names: Callable[[Mapping[str, Any]], Iterator[str]] = credential_names  # secrets that the fields name
    reads_references: bool = False  # it may read the body of an earlier result
    role: Role = Role.STEP  # in a drawing
    may_fail: Callable[[Task], bool] = lambda task: True  # whatever its data are

    def is_text(self, name: str, value: Any) -> bool:
        """A map instead of a text says where the text is, and may be a template."""
        return name in self.text and not isinstance(value, dict)


@dataclass(slots=True, eq=False)
class ToolCall:
    """One attempt that is about to start. The tool kind calls exactly one of the methods below."""

    turn: Turn
    thread: int
    task: Task
    fields: dict[str, Any]
    makers: Makers

    @property
    def folder(self) -> str | None:
        """The folder that relative names refer to, if the document came from a file."""
        folder: str | None = jsontext.decode(self.turn.state.options).get("folder")
        return folder

    def perform(self, provider: str, arguments: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Schedule a task for a worker. `timeout` limits work that cannot limit itself."""
        turn, body = self.turn, self.turn.body
        thread = body.threads[self.thread]
        path = task_path(thread, body.runs[thread.run], self.task)
        key, most = task_key(thread), thread.charges_left
        deadline = None if timeout is None else turn.now + int(timeout * SECOND)
        text = self._encoded(arguments)
        if text is None:
            return
        task = turn.schedule_task(
            provider,
            path,
            text,
            attempt=thread.attempt,
            pool=self.task.pool,
            deadline=deadline,
            max_deliveries=most,
            hold_effects_in_doubt=self.task.holds_effects,
            key=key,
        )
        self.started(task, self.limit_queue(task) if self.task.queue_ttl else 0)

    def limit_queue(self, number: int) -> int:
        """The timer that limits how long a task of a pool waits for a worker (PBK-101); 0: there is none."""
        ttl, turn = self.task.queue_ttl, self.turn
        return turn.set_timer(turn.now + ttl, BOUND_RANK) if ttl and turn.state.tasks[number].pool else 0

    def _encoded(self, arguments: Mapping[str, Any]) -> bytes | None:
        try:
            return jsontext.encode(arguments)
        except jsontext.NotJson as problem:
            self.fail(Error("serialization", str(problem), source=self.task.label))
            return None

    def started(self, number: int, timer: int = 0, language: str = "", recipe: Payload | None = None) -> None:
        task, turn = self.task, self.turn
        turn.emit(p.AttemptStarted(self.thread, task.label, task.kind, number, turn.now, timer, language, recipe))

    def succeed(self, result: Payload) -> None:
        """End the attempt with a result that is known now."""
        self.end(results.attempt_ended(self.turn, self.thread, "given", result))

    def end(self, attempt: p.AttemptEnded) -> None:
        """Start and end the attempt in one event, unless its body has to be stored elsewhere."""
        attempt = msgspec.structs.replace(attempt, label=self.task.label, kind=self.task.kind)
        end_attempt(self.turn, self.task, attempt)

    def pass_through(self) -> None:
        """End the attempt with the result of the previous task."""
        task = self.task
        self.turn.emit(p.AttemptEnded(self.thread, self.turn.now, source="prev", label=task.label, kind=task.kind))

    def fail(self, problem: Error) -> None:
        self.end(results.attempt_failed(self.turn, self.thread, problem))


def end_attempt(turn: Turn, task: Task, attempt: p.AttemptEnded) -> None:
    """At once, or as soon as its body is where it belongs."""
    if not result_uploads.belongs_elsewhere(task, attempt):
        turn.emit(attempt)
        return
    thread = turn.body.threads[attempt.thread]
    path = task_path(thread, turn.body.runs[thread.run], task)
    result_uploads.start_upload(turn, task, attempt, path, task_key(thread))


# Failures, the same for all kinds.

LONGEST_MESSAGE = 2_000
LARGEST_DETAILS = 8_192  # an error is recorded several times: with its attempt, its step and the execution

_PLATFORM = {
    Code.DELIVERIES_EXHAUSTED: "lease_lost",
    Code.PROVIDER_FAULT: "serialization",
    Code.RESULT_TOO_LARGE: "limit",
    Code.SECRET_MISSING: "auth",
    "Platform.DeadlineExceeded": "timeout",
}


def failure(outcome: Outcome, kind: str, code: str | int | None, *, source: str) -> Error:
    """The error of a task that did not succeed; reasons of the platform take precedence over the tool's."""
    match outcome:
        case Cancelled(reason):
            return Error("cancelled", reason or "cancelled", source=source)
        case Failed(failure_code, message, retryable, details):
            if failure_code == Code.CANNOT_OPEN:
                return _unopened(outcome, source)
            message, details = message[:LONGEST_MESSAGE], shorten_details(details)
            platform = _PLATFORM.get(failure_code)
            if platform is not None:
                return Error(platform, message, failure_code, platform in RETRYABLE, source, details)
            passing = kind in RETRYABLE if retryable is None else retryable
            return Error(kind, message, code, passing, source, details)
    raise AssertionError("the outcome is not a failure")


def _unopened(outcome: Failed, source: str) -> Error:
    """The task could not start: a secret is missing, or a field that needs one cannot be rendered."""
    facts = details_of(outcome)
    kind = facts.get("kind") if facts.get("kind") in ERROR_KINDS else "unknown"
    return Error(str(kind), outcome.message[:LONGEST_MESSAGE], facts.get("code"), bool(outcome.retryable), source)


def shorten_details(details: bytes | None) -> bytes | None:
    """Details small enough to be repeated: long texts are cut; the event of the task's end has all of them."""
    if details is None or len(details) <= LARGEST_DETAILS:
        return details
    decoded = jsontext.decode(details)
    if isinstance(decoded, dict):
        cut = {name: value[:500] if isinstance(value, str) else value for name, value in decoded.items()}
        text = jsontext.encode({**cut, "truncated": True})
        if len(text) <= LARGEST_DETAILS:
            return text
    return jsontext.encode({"truncated": True, "bytes": len(details)})


def error_kind(code: str) -> str:
    """The error kind for a failure code of any provider; a code may itself be a kind."""
    last = code.rpartition(".")[2]
    if last in ERROR_KINDS:
        return last
    if ".Errors." in code:
        return "exception"
    return {"Timeout": "timeout", "BadArguments": "schema", "SecretInArguments": "schema"}.get(last, "unknown")


def details_of(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Failed) and outcome.details:
        details = jsontext.decode(outcome.details)
        return details if isinstance(details, dict) else {}
    return {}


def read_timeout(timeout: Any) -> float | None:
    """A time limit as authors write it: a number of seconds, or `{total: …}` (PBK-193)."""
    if isinstance(timeout, dict):
        timeout = timeout.get("total")
    return float(timeout) if isinstance(timeout, int | float) and not isinstance(timeout, bool) else None
