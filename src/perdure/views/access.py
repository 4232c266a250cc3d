"""How a verb gets at runs: on a store of its own, or through a server. Each question has one answer for both.

A `Question` is read from a store by its function, or sent to the route of a server that calls the same function. What
it answers is a struct; on its way over HTTP, instants are RFC 3339 and everything else is plain JSON.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_of_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_origin

import msgspec

from perdure.engine.runs import effects
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.views.runs.batch_steering import BatchAnswer, Selection, Verb, plan, steer_piece
from perdure.views.times import iso, read_instant

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.views.resources.resource_changes import ResourcePatch
    from perdure.views.runs.log_reader import TaskLine

INSTANTS = ("at", "due", "now", "next_try", "on_wall")  # fields that hold one; so do those whose name ends with `_at`

NO_RUN = RunId("")  # of a question that is about no run in particular

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A")


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a question."""


class NoParameters(Query):
    """Nothing has to be said."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a question is about: a run, or all that the asker may see."""

    run: RunId = NO_RUN
    namespaces: Sequence[str] | None = None  # of whoever asks; None: all


@dataclass(frozen=True, slots=True)
class Question(Generic[Q, A]):
    verb: str  # how the API names the operation
    path: str  # of the route, below /api/v1; `{id}` is the run
    summary: str
    query: type[Q]
    answer: Any  # the type of the answer; `Any`: plain JSON
    read: Callable[["Client", Scope, Q], Awaitable[A]]
    needs_all_namespaces: bool = False  # it tells of the whole store
    role: str = "viewer"
    is_expensive: bool = False  # it looks at many events, without being about one run


class Access(Protocol):
    """What verbs ask and send, wherever the runs are."""

    is_remote: bool

    async def resolve(self, name: str, namespaces: Sequence[str] | None = None) -> RunId: ...
    async def ask(self, question: Question[Q, A], query: Q, run: RunId = NO_RUN) -> A: ...
    async def show(self, run: RunId) -> Any: ...
    async def overview(self, limit: int) -> dict[str, Any]: ...
    async def status(self, run: RunId) -> Status: ...
    async def history(self, run: RunId, after: int = 0, *, raw: bool = False) -> list[dict[str, Any]]: ...
    def follow(self, run: RunId, after: int = 0, *, raw: bool = False) -> AsyncIterator[dict[str, Any]]: ...
    def log_lines(self, run: RunId, step: str | None, *, follow: bool) -> "AsyncIterator[TaskLine]": ...
    async def effects(self, run: RunId) -> list[dict[str, Any]]: ...
    async def cancel(self, run: RunId, reason: str = "", *, cascade: bool = False) -> SendResult: ...
    async def signal(self, run: RunId, name: str, value: Any = None, *, key: str | None = None) -> SendResult: ...
    async def steer(
        self, run: RunId, verb: str, body: Any = None, *, key: str | None = None, by: str = ""
    ) -> SendResult: ...
    async def patch_resource(self, run: RunId, patch: "ResourcePatch", by: str = "") -> SendResult: ...
    async def redrive_from(self, run: RunId, step: str, *, key: str | None = None, by: str = "") -> SendResult: ...
    async def settle(
        self, run: RunId, effect: str, result: bytes | None, *, key: str | None = None, by: str = ""
    ) -> SendResult: ...
    async def delete(self, run: RunId) -> SendResult: ...
    async def evaluate(self, run: RunId, step: str, expression: str, at: str | None = None) -> dict[str, Any]: ...
    async def is_served(self) -> bool: ...
    async def plan(self, selection: Selection, verb: Verb) -> BatchAnswer: ...
    async def steer_piece(
        self, selection: Selection, verb: Verb, send: "Send", *, members: dict[str, Any], cursor: str = ""
    ) -> BatchAnswer: ...


Send = Callable[[Access, RunId], Awaitable[SendResult]]


STEERING = {"gate": "decide_gate"}
"""What steers a run, and how the API and the audit log name it."""


class StoreAccess:
    """Runs of a store that this process has opened."""

    is_remote = False

    def __init__(self, client: "Client", *, is_recorded: bool = True) -> None:
        """`is_recorded`: what it changes is in the audit log; otherwise somebody else writes that."""
        self.client = client
        self._is_recorded = is_recorded

    async def __aenter__(self) -> "StoreAccess":
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.client.__aexit__(*error)

    async def _acting(self, verb: str, run: RunId) -> "Client":
        """For a command that is recorded, under the name that it has in the API."""
        from perdure.views.administration.audit_log import audited

        if not self._is_recorded:
            return self.client
        return await audited(self.client, verb, f"run/{run}", run=run)

    async def resolve(self, name: str, namespaces: Sequence[str] | None = None) -> RunId:
        return await self.client.resolve(name, namespaces)

    async def ask(self, question: Question[Q, A], query: Q, run: RunId = NO_RUN) -> A:
        namespace = getattr(query, "namespace", None)
        return await question.read(self.client, Scope(run, [namespace] if namespace else None), query)

    async def show(self, run: RunId) -> Any:
        return await self.client.show(run)

    async def overview(self, limit: int) -> dict[str, Any]:
        raise NotImplementedError("figures of a store are read where it is administered: `LiveOverview`")

    async def status(self, run: RunId) -> Status:
        return (await self.client.find(run)).status

    async def history(self, run: RunId, after: int = 0, *, raw: bool = False) -> list[dict[str, Any]]:
        return await self.client.history(run, after, raw=raw)

    def follow(self, run: RunId, after: int = 0, *, raw: bool = False) -> AsyncIterator[dict[str, Any]]:
        return self.client.follow(run, after, raw=raw)

    async def log_lines(self, run: RunId, step: str | None, *, follow: bool) -> "AsyncIterator[TaskLine]":
        from perdure.views.runs.log_reader import TaskLogReader

        reader = TaskLogReader(self.client, run, step)
        if follow:
            async for line in reader.follow():
                yield line
        else:
            for line in await reader.read():
                yield line

    async def effects(self, run: RunId) -> list[dict[str, Any]]:
        return await effects.effects(self.client, run)

    async def cancel(self, run: RunId, reason: str = "", *, cascade: bool = False) -> SendResult:
        return await (await self._acting("cancel_run", run)).cancel(run, reason, cascade=cascade)

    async def signal(self, run: RunId, name: str, value: Any = None, *, key: str | None = None) -> SendResult:
        return await (await self._acting("signal_run", run)).signal(run, name, value, key=key)

    async def steer(
        self, run: RunId, verb: str, body: Any = None, *, key: str | None = None, by: str = ""
    ) -> SendResult:
        return await steer(await self._acting(STEERING.get(verb, f"{verb}_run"), run), run, verb, body, key=key, by=by)

    async def patch_resource(self, run: RunId, patch: "ResourcePatch", by: str = "") -> SendResult:
        from perdure.views.resources.resource_changes import patch_run

        return await patch_run(await self._acting("patch_run", run), run, patch, by)

    async def redrive_from(self, run: RunId, step: str, *, key: str | None = None, by: str = "") -> SendResult:
        return await (await self._acting("redrive_run", run)).handle(run).redrive(step, key=key, by=by)

    async def settle(
        self, run: RunId, effect: str, result: bytes | None, *, key: str | None = None, by: str = ""
    ) -> SendResult:
        client = await self._acting("settle_effect", run)
        return await effects.settle(client, run, effect, result, key=key, by=by)

    async def delete(self, run: RunId) -> SendResult:
        from perdure.engine.runs.retention import delete_run

        return await delete_run(await self._acting("delete_run", run), run)

    async def evaluate(self, run: RunId, step: str, expression: str, at: str | None = None) -> dict[str, Any]:
        from perdure.views.runs.expression_values import evaluate

        return await evaluate(self.client, run, step, expression, at)

    async def is_served(self) -> bool:
        return any(server.serves for server in await self.client.store.servers())

    async def plan(self, selection: Selection, verb: Verb) -> BatchAnswer:
        return await plan(self.client, selection, verb)

    async def steer_piece(
        self, selection: Selection, verb: Verb, send: Send, *, members: dict[str, Any], cursor: str = ""
    ) -> BatchAnswer:
        return await steer_piece(self.client, selection, verb, lambda _, run: send(self, run), cursor=cursor)


async def steer(
    client: "Client", run: RunId, verb: str, body: Any, *, key: str | None = None, by: str = ""
) -> SendResult:
    """Also with what the run's language has to remark about it."""
    result = await client.steer(run, verb, body, key=key, by=by)
    execution = await client.execution(run)
    remarks = execution.dialect.remarks(execution, verb, body)
    return msgspec.structs.replace(result, remarks=(*result.remarks, *remarks))


def unmasked(text: str) -> str:
    return text


def to_wire(value: Any, mask: Callable[[str], str] = unmasked) -> Any:
    """A struct as plain JSON; every text in it goes through the mask."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, bytes):
        return ""  # what only a store needs: digests of a program, of a token
    if isinstance(value, dict):
        return {mask(name): to_wire(member, mask) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_wire(item, mask) for item in value]
    if isinstance(value, msgspec.Struct):
        names: Sequence[str] = value.__struct_fields__
    elif is_dataclass(value):
        names = [field.name for field in fields_of_dataclass(value)]
    else:
        return value
    return {name: _to_wire_field(name, getattr(value, name), mask) for name in names}


def _to_wire_field(name: str, value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, int) and not isinstance(value, bool | Enum) and _is_instant(name):
        return iso(value)
    return to_wire(value, mask)


def _is_instant(field: str) -> bool:
    return field in INSTANTS or field.endswith("_at")


def from_wire(data: Any, answer: Any) -> Any:
    """What `to_wire` made of a value of this type. Members that a newer server adds are ignored."""
    if answer is Any:
        return data
    return msgspec.convert(_with_instants(data, msgspec.inspect.type_info(answer)), answer, dec_hook=_convert_counter)


def _with_instants(data: Any, kind: msgspec.inspect.Type) -> Any:
    match kind:
        case msgspec.inspect.StructType(fields=fields) | msgspec.inspect.DataclassType(fields=fields):
            kinds = {field.name: field.type for field in fields}
            return {name: _read_field(name, data[name], kinds[name]) for name in data if name in kinds}
        case msgspec.inspect.UnionType(types=types) if isinstance(data, dict):
            return _with_instants(
                data, next(variant for variant in types if not isinstance(variant, msgspec.inspect.NoneType))
            )
        case msgspec.inspect.DictType(value_type=below) if isinstance(data, dict):
            return {name: _with_instants(value, below) for name, value in data.items()}
        case (
            msgspec.inspect.ListType(item_type=below)
            | msgspec.inspect.VarTupleType(item_type=below)
            | msgspec.inspect.SetType(item_type=below)
        ) if isinstance(data, list):
            return [_with_instants(item, below) for item in data]
        case _:
            return data


def _read_field(name: str, value: Any, kind: msgspec.inspect.Type) -> Any:
    return read_instant(value, 0) if isinstance(value, str) and _is_instant(name) else _with_instants(value, kind)


def _convert_counter(kind: Any, value: Any) -> Any:
    if (get_origin(kind) or kind) is Counter:
        return Counter(value)
    raise NotImplementedError


def masked(facts: A, kind: type[A], mask: Callable[[str], str]) -> A:
    """The facts as they would arrive from a server, without secrets."""
    hidden: A = from_wire(to_wire(facts, mask), kind)
    return hidden
