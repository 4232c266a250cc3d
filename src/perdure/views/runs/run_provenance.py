"""Why a value is what it is: from the value back to inputs of the run and results of tasks, event by event.

The recorded turns are decided once more, in a thread and within the limits of decisions, and expressions tell what
they read (`analysis/retracing.py`). Nothing is stored, and nothing is called.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from perdure.analysis.retracing import ProvenanceLink, Retracing, SetValue
from perdure.engine.client import Client
from perdure.engine.decision_threads import WORK_OF_TEXT, TakesTooLong, done_aside, threads
from perdure.engine.runs import run_views
from perdure.engine.runs.run_documents import begin_folding, moves_in, read_former
from perdure.kernel import inputs as i
from perdure.kernel.codec import Turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import ExpressionFailed
from perdure.kernel.evaluation_trace import ReadPath, ValueSource, ValueTracer
from perdure.kernel.graphs.step_overview import flattened
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.turn import MissingValues, Turn
from perdure.kernel.turn_budget import rest
from perdure.stores.protocol import RunRow
from perdure.views.errors import BadRequest, FieldNotFound
from perdure.views.runs.run_overview import find_step, steps_of
from perdure.views.times import iso

MOST_EVENTS = 20_000
LONGEST_VALUE = 2_000  # bytes of JSON that are shown of a value
LONGEST_TEXT = 80  # characters of it in a sentence
_T = TypeVar("_T")
_PART = lazy_regex(r"\[([0-9]{1,18})\]|\.?([^.\[\]]+)")


def read_field(text: str) -> ReadPath:
    """`output.items[0].price` as a path."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise BadRequest(f"{text[:200]!r} is not a path (expected e.g. output.items[0].price)")
        index, name = part.groups()
        parts.append(int(index) if index is not None else name)
        at = part.end()
    return tuple(parts)


async def explain_value(client: Client, run: RunId, step: str | None, field: str) -> dict[str, Any]:
    """`{run, step?, field, value?, chain[], commands[]}`; of each link `{seq, at, text, depth}`.

    A link through an expression has `expression`, `site`, `reads[{path, value?}]` and perhaps `value` besides.
    """
    path = read_field(field)
    row = await client.find(run)
    dialect = run_views.dialect_of(client.languages, row.language)
    tracer = dialect.value_tracer()
    if tracer is None:
        raise ExpressionFailed(f"values of a run in {row.language!r} are not traced", hint="Ask about another run.")
    turns = await run_views.turns(client.store, dialect, row.id)
    if sum(len(events) for _, events in turns) > MOST_EVENTS:
        raise ExpressionFailed(
            f"the run has more than {MOST_EVENTS} events, too many to be decided again",
            hint="Ask about one of the runs below it, or look at the events with `perdure history RUN`.",
        )
    name = None
    if step is not None:
        folded = await run_views.load(client.store, client.languages, row)
        name = find_step(flattened(await steps_of(client, folded)), run, step)[0][-1]
    retracing = await _retraced(client, dialect, row, turns, tracer)
    for source in retracing.tracer.named(name, path):
        if retracing.latest(source.key) is not None:
            value = await _value(client, run, retracing, source)
            if value is not _NOTHING:
                break
    else:
        known = f"step {step!r}" if step is not None else "the run"
        raise FieldNotFound(f"{known} has no value {field!r}, or not yet")
    mask = await run_views.mask_of(client.store, retracing.execution)
    numbers = await run_views.told_aside(turns, lambda: _Numbers(dialect, row, turns))

    def shown() -> dict[str, Any]:
        secrets, links = _ReadSecrets(mask), retracing.explain(source)
        chain = [_shown(link, secrets, numbers) for link in links]
        facts: dict[str, Any] = {"run": run, **({"step": step} if step is not None else {}), "field": field}
        if value is not msgspec.UNSET and not any(secrets.are_in(link) for link in links if link.depth == 0):
            facts["value"] = value
        hidden: dict[str, Any] = mask.data({**facts, "chain": chain, "commands": []})
        return hidden

    return await _aside(shown)  # the values that were read may be large


async def explain_condition(client: Client, run: RunId, step: str) -> list[dict[str, Any]]:
    """The condition that decided last whether a step runs, and what it read, as links; empty where there is none."""
    row = await client.find(run)
    dialect = run_views.dialect_of(client.languages, row.language)
    turns = await run_views.turns(client.store, dialect, row.id)
    tracer = dialect.value_tracer()
    if tracer is None or sum(len(events) for _, events in turns) > MOST_EVENTS:
        return []
    try:
        retracing = await _retraced(client, dialect, row, turns, tracer)
    except ExpressionFailed:
        return []
    decided = retracing.latest(("condition", step))
    if decided is None:
        return []
    source = ValueSource(("condition", step), (), decided.write.text)
    mask = await run_views.mask_of(client.store, retracing.execution)
    numbers = await run_views.told_aside(turns, lambda: _Numbers(dialect, row, turns))

    def shown() -> list[dict[str, Any]]:
        secrets, links = _ReadSecrets(mask), retracing.explain(source)
        return [_shown(link, secrets, numbers) for link in links] if links and links[0].expression else []

    return await _aside(shown)


async def _retraced(client: Client, dialect: Dialect, row: RunRow, turns: Turns, tracer: ValueTracer) -> Retracing:
    complete = dialect.with_all_code()
    program = await run_views.program_of(client.store, complete, row)
    former = await read_former(client.store, row.id, moves_in(turns))
    size = WORK_OF_TEXT * sum(len(document.text) for document in former)
    execution = await done_aside(size, lambda: begin_folding(row.id, complete, former, program))
    retracing = Retracing(execution, turns, tracer)
    going = retracing.retrace()
    while (needs := await _next(going)) is not None:
        await _load(client, row.id, retracing, needs)
    return retracing


async def _next(going: Iterator[MissingValues]) -> MissingValues | None:
    return await _aside(lambda: next(going, None))


async def _aside(work: Callable[[], _T]) -> _T:
    try:
        return await threads.do(work)
    except TakesTooLong:
        raise ExpressionFailed("deciding the history of the run again takes too long") from None


async def _load(client: Client, run: RunId, retracing: Retracing, needs: MissingValues) -> None:
    retracing.answers = await client.answers(needs.lookups) if needs.lookups else {}
    texts = await client.store.values(run, needs.digests)
    retracing.texts.update(texts)
    missing = [name for name in needs.digests if name not in texts]
    retracing.absent.update(missing)
    if missing and not needs.may_be_absent:
        raise ExpressionFailed("the history refers to a large value that is no longer stored")


_NOTHING = object()  # there is no such value; UNSET: it is not shown


async def _value(client: Client, run: RunId, retracing: Retracing, source: ValueSource) -> Any:
    origin: SetValue | None = retracing.latest(source.key)
    if origin is None or origin.write.read is None:
        return msgspec.UNSET
    execution = retracing.execution
    turn = Turn(execution, i.Proceed(), execution.state.at, execution.state.at)
    turn.texts, turn.absent = retracing.texts, retracing.absent
    read = origin.write.read
    while True:
        try:
            return await _aside(lambda: _part(read(turn), source.rest))
        except MissingValues as needs:
            await _load(client, run, retracing, needs)


def _part(value: Any, path: ReadPath) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return _NOTHING
    return _fitting(value)


def _fitting(value: Any) -> Any:
    """The value if it is JSON and not too long to be shown."""
    if jsontext.is_large(value, LONGEST_VALUE):  # without writing all of it
        return msgspec.UNSET
    try:
        text = jsontext.encode(value)
    except (jsontext.NotJson, RecursionError):
        return msgspec.UNSET
    return jsontext.decode(text) if len(text) <= LONGEST_VALUE else msgspec.UNSET


class _Numbers:
    """The numbers of events as readers of the history see them."""

    def __init__(self, dialect: Dialect, row: RunRow, turns: Turns) -> None:
        self._times: list[Instant] = [0]  # by number, as recorded
        self._ends: list[int] = [0]  # of the turn of each
        for at, events in turns:
            self._ends += [len(self._times) - 1 + len(events)] * len(events)
            self._times += [at] * len(events)
        self._shown: dict[int, int] | None = None  # the first one that tells of it
        if dialect.has_own_history:
            self._shown = {}
            for recorded, shown in run_views.tell(dialect, row.id, turns):
                self._shown.setdefault(recorded, shown["seq"])

    def of(self, seq: int) -> dict[str, Any]:
        """An event that the history does not show is told by the next one of its turn that it shows, or one before."""
        if self._shown is None:
            return {"seq": seq, "at": iso(self._times[seq])}
        nearest = [*range(seq, self._ends[seq] + 1), *range(seq - 1, 0, -1)]
        known = next((number for number in nearest if number in self._shown), min(self._shown))
        return {"seq": self._shown[known], "at": iso(self._times[known])}


def _shown(link: ProvenanceLink, secrets: "_ReadSecrets", numbers: _Numbers) -> dict[str, Any]:
    reads = [{"path": path, "value": secrets.mask.data(_fitting(value))} for path, value in link.reads]
    value = msgspec.UNSET if secrets.are_in(link) else _fitting(link.value)
    text = link.text
    if link.expression:
        text += f" {'could not be' if link.fault else 'was'} computed by {_braced(link.expression)}"
        if value is not msgspec.UNSET:
            text += f" = {_brief(value)}"
        if reads:
            text += ", which read " + ", ".join(f"{read['path']} ({_brief(read['value'])})" for read in reads)
        if link.fault:
            text += f": {link.fault}"
    shown: dict[str, Any] = {**numbers.of(link.seq), "text": text, "depth": link.depth}
    if link.expression:
        shown |= {"expression": _braced(link.expression), "site": link.site}
        shown["reads"] = [{name: item for name, item in read.items() if item is not msgspec.UNSET} for read in reads]
        if value is not msgspec.UNSET:
            shown["value"] = value
    return shown


class _ReadSecrets:
    """Whether an expression read a secret: what it made of that may be another text. Each value is searched once."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self._known: dict[int, bool] = {}  # by the identity of values, which live as long as their links

    def are_in(self, link: ProvenanceLink) -> bool:
        return any(self._are_in_value(value) for _, value in link.reads)

    def _are_in_value(self, value: Any) -> bool:
        is_in = self._known.get(id(value))
        if is_in is None:
            rest()
            is_in = self._known[id(value)] = bool(self.mask.data(value) != value)
        return is_in


def _braced(expression: str) -> str:
    return expression if "{{" in expression or "{%" in expression else f"{{{{ {expression} }}}}"


def _brief(value: Any) -> str:
    if value is msgspec.UNSET:
        return "…"
    text = jsontext.encode(value).decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
