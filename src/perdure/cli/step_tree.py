"""The steps of a run as a small tree: a mark, the name, the kind, tries, how long, and what is worth a word."""

from collections.abc import Iterator, Sequence

from perdure.cli.console import Paint, cut
from perdure.kernel.graphs.step_overview import StepOverview, StepStatus
from perdure.kernel.json_values.values import Instant
from perdure.views.times import span

MOST_LINES = 40  # failed and open steps come first when there are more; -o yaml has all

_MARKS = {
    StepStatus.DONE: ("✓", "green"),
    StepStatus.FAILED: ("✗", "red"),
    StepStatus.CAUGHT: ("✗", "yellow"),
    StepStatus.CANCELLED: ("✗", "yellow"),
    StepStatus.SKIPPED: ("-", "dim"),
    StepStatus.AT_WORK: ("▶", "cyan"),
    StepStatus.RETRIES: ("↻", "yellow"),
    StepStatus.WAITS: ("⏸", "yellow"),
    StepStatus.NOT_STARTED: ("·", "dim"),
}

_URGENT = frozenset({StepStatus.FAILED, StepStatus.AT_WORK, StepStatus.RETRIES, StepStatus.WAITS})


def step_lines(
    steps: Sequence[StepOverview], now: Instant, paint: Paint, width: int | None, *, is_live: bool = True
) -> list[str]:
    """`is_live`: somebody does what is at work."""
    rows = list(_rows(steps, 0))
    left_out: dict[StepStatus, int] = {}
    if len(rows) > MOST_LINES:
        urgent = [row for row in rows if row[1].state in _URGENT]
        kept = {id(step) for _, step in [*urgent, *(row for row in rows if row[1].state not in _URGENT)][:MOST_LINES]}
        for _, step in rows:
            if id(step) not in kept:
                left_out[step.state] = left_out.get(step.state, 0) + 1
        rows = [row for row in rows if id(row[1]) in kept]
    names = max((2 * depth + len(step.name) for depth, step in rows), default=0)
    kinds = max((len(step.kind) for _, step in rows), default=0)
    names = min(names, 40)
    facts = [f"{step.kind.ljust(kinds)}  {_lasted(step, now):>9}  {_words(step, now, is_live)}" for _, step in rows]
    lines = [_line(*row, fact.rstrip(), paint, width, names) for row, fact in zip(rows, facts, strict=True)]
    if left_out:
        counts = ", ".join(f"{count} {state}" for state, count in left_out.items())
        lines.append(f"  … and {counts} (see -o yaml)")
    return lines


def _rows(steps: Sequence[StepOverview], depth: int) -> Iterator[tuple[int, StepOverview]]:
    for step in steps:
        yield depth, step
        yield from _rows(list(step.steps.values()), depth + 1)


def _line(depth: int, step: StepOverview, facts: str, paint: Paint, width: int | None, names: int) -> str:
    mark, style = _MARKS[step.state]
    name = cut("  " * depth + step.name, names).ljust(names)
    room = None if width is None else max(10, width - names - 6)
    return f"  {paint(mark, style)} {name}  {paint(cut(facts, room), 'dim' if style == 'dim' else '')}".rstrip()


def _lasted(step: StepOverview, now: Instant) -> str:
    if step.began_at is None or step.state is StepStatus.SKIPPED:
        return ""
    return span((step.ended_at if step.ended_at is not None else now) - step.began_at)


def _words(step: StepOverview, now: Instant, is_live: bool) -> str:
    words = []
    if step.due is not None and step.state is StepStatus.RETRIES:
        words.append(f"tries again in {span(step.due - now)}")
    elif step.state is StepStatus.AT_WORK and not is_live and not step.child:
        words.append("interrupted")
    elif step.state not in (StepStatus.DONE, StepStatus.FAILED):
        words.append(str(step.state))
        if step.due is not None and step.state.is_open:
            words.append(f"due in {span(step.due - now)}")
    if step.items:
        words.append(_items(step))
    elif step.visits > 1:
        failed = f", {step.failed_visits} failed" if step.failed_visits else ""
        still = f", {step.open_visits} open" if step.open_visits else ""
        words.append(f"{step.visits} times{failed}{still}")
    if step.attempts > max(1, step.visits) and not step.items:
        words.append(f"{step.attempts} attempts")
    if step.child:
        words.append(f"run {step.child}")
    if step.failure is not None and step.state in (StepStatus.FAILED, StepStatus.CAUGHT, StepStatus.RETRIES):
        words.append(step.failure.message or step.failure.code)
    elif step.note and step.state in (StepStatus.WAITS, StepStatus.SKIPPED):
        words.append(step.note.rstrip("."))
    elif step.work:
        words.append(step.work)
    return "; ".join(words)


def _items(step: StepOverview) -> str:
    rest = max(0, step.items - step.items_done - step.items_failed)
    parts = [f"{step.items_failed} failed"] if step.items_failed else []
    parts.append(f"{step.items_done} done")
    if rest and step.state.is_open:
        parts.append(f"{rest} to do")
    return f"{step.items} item{'' if step.items == 1 else 's'}: {', '.join(parts)}"
