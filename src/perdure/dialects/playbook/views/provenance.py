"""Where values of a Playbook's run come from: workload, `ctx`, arguments of tokens, results of tasks and steps."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from perdure.dialects.playbook.plan.program import LoopCursor, Program
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.values import Patch, Value
from perdure.kernel import events as e
from perdure.kernel.evaluation_trace import ReadPath, ValuePart, ValueSource, ValueTracer, ValueWrite
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Succeeded
from perdure.kernel.turn import Turn

MOST_PARTS = 100  # iterations of a loop that are told of


class _Pass(msgspec.Struct):
    """One pipeline: the step-run it belongs to, its step, and which iteration it is."""

    run: int
    step: str
    index: int


def _decode(payload: Payload, turn: Turn) -> Any:
    return jsontext.decode(turn.text(payload))


def _constant(value: Any, turn: Turn) -> Any:
    return value


def _reader(payload: Payload) -> Callable[[Turn], Any]:
    return partial(_decode, payload)


def _part(at: ReadPath, key: Hashable, text: str, rest: ReadPath = ()) -> ValuePart:
    return ValuePart(at, ValueSource(key, rest, text))


class PlaybookValues(ValueTracer):
    of_steps = frozenset({"input", "output", "args", "condition"})

    def __init__(self) -> None:
        self._passes: dict[int, _Pass] = {}  # by thread
        self._frames: dict[tuple[int, int], int] = {}  # run and first index of a claimed frame → thread of the claim
        self._threads: dict[int, list[int]] = {}  # by step-run
        self._tokens: set[int] = set()  # that were seen
        self._input: dict[str, Any] = {}  # of the run
        self._args: dict[int, tuple[Value, int]] = {}  # by the id of a token's arguments: those, and the token
        self._ctx: dict[str, None] = {}  # keys that were set, some of them dotted
        self._started: dict[int, int] = {}  # by task: its thread
        self._last = ""  # the step that has ended last

    def named(self, step: str | None, field: ReadPath) -> list[ValueSource]:
        name, rest = (str(field[0]), field[1:]) if field else ("", ())
        if name == "ctx":
            return list(self._in_ctx(rest))
        if step is None:
            if name == "workload":
                return list(self._in_workload(rest))
            return [ValueSource(("run",), part, "the result of the run") for part in (field, ("result", *field))]
        texts = {"input": "the input", "args": "the arguments", "output": "the result", "result": "the result"}
        keys = {"input": "input", "args": "args", "output": "output", "result": "output"}
        if name in keys:
            return [ValueSource((keys[name], step), rest, f"{texts[name]} of step {step!r}")]
        return [
            ValueSource((keys[part], step), field, f"{texts[part]} of step {step!r}") for part in ("output", "input")
        ]

    def rename_steps(self, mapping: Mapping[str, str]) -> None:
        for known in self._passes.values():
            known.step = mapping.get(known.step, known.step)
        self._last = mapping.get(self._last, self._last)

    # What events set.

    def writes(self, execution: Execution, event: e.Event) -> Iterable[ValueWrite]:
        body: b.Body = execution.body
        self._look_around(body)
        match event:
            case p.WorkflowStarted(workload=workload, ctx=ctx, entry=entry):
                yield from self._loaded(workload)
                yield from self._patched(ctx)
                yield from self._token(entry, "")
            case e.RunStarted(input=input) if isinstance(input, bytes):
                members = jsontext.decode(input)
                self._input = members if isinstance(members, dict) else {}
            case p.RequestEvaluated(workload=workload, ctx=ctx):
                yield from self._loaded(workload)
                yield from self._patched(ctx)
            case p.AdmissionJudged(token=token) if token in body.tokens:
                step = body.tokens[token].step
                yield ValueWrite(("condition", step), f"the admission of step {step!r}", site="admit.when")
            case p.CtxPatched(set_ctx=patch):
                yield from self._patched(patch, arrives=True)
            case p.StepStarted(run=run, items=items):
                yield from self._step_started(body, run, items)
            case p.FrameClaimed(run=run) if (loop := body.runs[run].loop) is not None and loop.frames:
                claim = next(n for n in reversed(self._threads[run]) if self._passes[n].index < b.ALONE)
                self._frames.setdefault((run, max(loop.frames)), claim)
            case p.AttemptStarted(thread=thread, number=number):
                self._started[number] = thread
                yield from self._given(thread, None)
            case e.TaskScheduled(task=task, arguments=arguments, sealed=False):
                self._arguments = (task, arguments)
            case p.AttemptEnded() | p.TaskPassed() | p.StepPassed():
                yield from self._ended(body, event)
            case p.OutcomeJudged():
                yield from self._judged(event)
            case p.StepEnded(run=run, set_ctx=patch, error=error):
                yield from self._step_ended(body, run, has_failed=error is not None)
                yield from self._patched(patch, parts=self._merged(run))
            case p.NextEvaluated(tokens=tokens, set_ctx=patch, arcs=arcs):
                yield from self._patched(patch)
                for index, (target, _, _) in enumerate(arcs):
                    text = f"the condition of the arc to {target!r}"
                    yield ValueWrite(("condition", target), text, site=f"arcs[{index}].when")
                for new in tokens:
                    yield from self._token(new, f"arcs[{new.arc}].args")
            case p.JoinCompleted(token=new, tokens=tokens) | p.JoinExpired(token=new, tokens=tokens):
                parts = tuple(_part((), ("token", token), f"the arguments of token {token}") for token in tokens)
                yield from self._token(new, "", parts)
            case p.WorkflowQuiesced(token=new):
                yield from self._token(new, "")
            case e.RunEnded(outcome=Succeeded(value=value)):
                yield ValueWrite(("run",), "the result of the run", parts=tuple(self._whole()), read=_reader(value))

    _arguments: tuple[int, Payload] = (0, b"null")

    def _look_around(self, body: b.Body) -> None:
        """Pipelines and tokens that are new: their events do not say all of it."""
        for number in reversed(body.threads):
            if number in self._passes:
                break
            thread = body.threads[number]
            self._passes[number] = _Pass(thread.run, body.runs[thread.run].step, thread.index)
            self._threads.setdefault(thread.run, []).append(number)
        for number in reversed(body.tokens):
            if number in self._tokens:
                break
            self._tokens.add(number)
            args = body.tokens[number].args
            self._args[id(args)] = (args, number)
        for run in reversed(body.runs.values()):
            if id(run.args) in self._args:
                break
            self._args[id(run.args)] = (run.args, run.token)

    def _loaded(self, workload: Payload) -> Iterator[ValueWrite]:
        """Members that the start of the run has given came with it, others are the document's."""
        yield ValueWrite(("workload",), "the workload", arrives=True, read=_reader(workload))
        members = jsontext.decode(workload) if isinstance(workload, bytes) else {}
        for name, value in members.items() if isinstance(members, dict) else ():
            read = partial(_constant, value)
            yield ValueWrite(("workload", name), f"workload.{name}", arrives=name in self._input, read=read)

    def _in_workload(self, path: ReadPath) -> Iterator[ValueSource]:
        if path:
            yield ValueSource(("workload", path[0]), path[1:], f"workload.{path[0]}")
        else:
            yield ValueSource(("workload",), (), "the workload")

    def _patched(
        self, patch: Patch, *, arrives: bool = False, parts: Callable[[str], tuple[ValuePart, ...]] | None = None
    ) -> Iterator[ValueWrite]:
        for key, text in patch:
            self._ctx.pop(key, None)
            self._ctx[key] = None
            made_of = parts(key) if parts is not None else ()
            yield ValueWrite(
                ("ctx", key), f"ctx.{key}", site=f"ctx.{key}", arrives=arrives, parts=made_of, read=_reader(text)
            )

    def _merged(self, run: int) -> Callable[[str], tuple[ValuePart, ...]]:
        """A parallel loop applies the patches of its iterations at its end."""
        threads = self._threads.get(run, [])[:MOST_PARTS]
        return lambda key: tuple(
            _part((), ("kept", thread, key), f"ctx.{key} of iteration {self._passes[thread].index}")
            for thread in threads
        )

    def _token(self, new: p.NewToken, site: str, parts: tuple[ValuePart, ...] = ()) -> Iterator[ValueWrite]:
        text = f"the arguments of step {new.step!r}"
        yield ValueWrite(("token", new.token), text, site=site, parts=parts, read=_reader(new.args))
        yield ValueWrite(("args", new.step), text, same_as=("token", new.token))

    def _step_started(self, body: b.Body, number: int, items: Payload | None) -> Iterator[ValueWrite]:
        run = body.runs.get(number)
        if run is not None:
            yield ValueWrite(("args", run.step), "", same_as=("token", run.token))
        if items is not None:
            yield ValueWrite(("items", number), "what the loop runs over", site="loop.in", read=_reader(items))

    def _given(self, thread: int, read: Any) -> Iterator[ValueWrite]:
        known = self._passes.get(thread)
        if known is not None and known.index >= b.ALONE:
            task, arguments = self._arguments
            read = _reader(arguments) if self._started.get(task) == thread else None
            text = f"the input of step {known.step!r}"
            yield ValueWrite(("input", known.step), text, site="fields", read=read)

    def _ended(self, body: b.Body, event: p.AttemptEnded | p.TaskPassed | p.StepPassed) -> Iterator[ValueWrite]:
        known = self._passes.get(event.thread)
        if known is None:
            return
        key = ("outcome", event.thread)
        text = f"the result of task {event.label!r}" if event.label else f"the result of step {known.step!r}"
        thread = body.threads.get(event.thread)
        outcome = thread.outcome if thread is not None else None
        read = (lambda turn: outcome.result.read(turn.text)) if outcome is not None else None
        source = event.source if isinstance(event, p.AttemptEnded) else "landed"
        if source == "prev":
            yield ValueWrite(key, text, same_as=("prev", event.thread))
        elif source == "landed":
            yield ValueWrite(key, text, arrives=True, read=read)
        else:
            yield ValueWrite(key, text, site="fields", within=("result",), read=read)
        label = event.label or (thread.label if thread is not None else "")
        yield ValueWrite(("result", event.thread, label), "", same_as=key)
        yield ValueWrite(("prev", event.thread), "", same_as=key)
        yield ValueWrite(("iteration", known.run, known.index), "", same_as=key)
        if isinstance(event, p.StepPassed):
            yield from self._step_ended(body, event.run)

    def _judged(self, event: p.OutcomeJudged) -> Iterator[ValueWrite]:
        if event.keeps_back:
            for key, text in event.set_ctx:
                yield ValueWrite(("kept", event.thread, key), f"ctx.{key}", site=f"ctx.{key}", read=_reader(text))
        else:
            yield from self._patched(event.set_ctx)
        for scope, patch in (("iter", event.set_iter), ("step", event.set_step)):
            for key, text in patch:
                name = key.partition(".")[0]
                yield ValueWrite(
                    (scope, event.thread, name), f"{scope}.{key}", site=f"{scope}.{key}", read=_reader(text)
                )

    def _step_ended(self, body: b.Body, run: int, *, has_failed: bool = False) -> Iterator[ValueWrite]:
        passes = [self._passes[number] for number in sorted(self._threads.get(run, ()))]
        claims = [known for known in passes if known.index < b.ALONE]
        if not passes:
            return
        step, key = passes[0].step, ("output", passes[0].step)
        self._last = step
        tally = body.tallies.get(step)
        read = (lambda turn: tally.result.read(turn.text)) if tally is not None else None
        if has_failed and passes[0].index != b.ALONE:
            yield ValueWrite(key, f"the result of step {step!r}", site="-", note="is null: the step failed", read=read)
            return
        if passes[0].index == b.ALONE:
            yield ValueWrite(key, f"the result of step {step!r}", same_as=("iteration", run, b.ALONE))
            return
        text = f"the result of step {step!r}"
        if claims:
            yield ValueWrite(key, text, site="-", note="counts the rows that were claimed", read=read)
        else:
            yield ValueWrite(key, text, parts=self._results_of(run, passes), read=read)

    def _results_of(self, run: int, passes: list[_Pass]) -> tuple[ValuePart, ...]:
        return tuple(
            _part(("results", known.index), ("iteration", run, known.index), f"the result of iteration {known.index}")
            for known in passes[:MOST_PARTS]
        )

    def _whole(self) -> Iterator[ValuePart]:
        if self._last:
            yield _part(("result",), ("output", self._last), f"the result of step {self._last!r}")
        for key in self._ctx:
            yield _part(("ctx", *key.split(".")), ("ctx", key), f"ctx.{key}")

    # What templates read.

    def sources(self, execution: Execution, context: Any, path: ReadPath) -> list[ValueSource]:
        return list(self._find(execution, context, path))

    def _find(self, execution: Execution, context: Any, path: ReadPath) -> Iterator[ValueSource]:
        program: Program = execution.program
        match path:
            case ("workload", *rest):
                yield from self._in_workload(tuple(rest))
            case ("ctx", *rest):
                yield from self._in_ctx(tuple(rest))
            case ("steps", str(name), *rest):
                inside = tuple(rest[1:]) if rest[:1] == ["result"] else ()
                yield ValueSource(("output", name), inside, f"the result of step {name!r}")
            case ("args", *rest):
                yield from self._in_args(execution, context, tuple(rest))
            case ("event", *rest):
                yield from self._in_event(context, tuple(rest))
            case (("iter" | "results" | "_prev" | "outcome" | "step" | "output") as root, *rest) if _is_thread(context):
                yield from self._in_pipeline(execution, context, str(root), tuple(rest))
            case (str(name), *rest) if program.is_io:
                yield from self._bare(program, execution, context, name, tuple(rest))

    def _in_ctx(self, path: ReadPath) -> Iterator[ValueSource]:
        """The longest key that was set; or all of those inside."""
        names = [str(part) for part in path]
        for length in range(len(names), 0, -1):
            key = ".".join(names[:length])
            if key in self._ctx:
                yield ValueSource(("ctx", key), path[length:], f"ctx.{key}")
                return
        inside = ".".join([*names, ""]) if names else ""
        for key in self._ctx:
            if key.startswith(inside):
                yield ValueSource(("ctx", key), (), f"ctx.{key}")

    def _in_args(self, execution: Execution, context: Any, path: ReadPath) -> Iterator[ValueSource]:
        args: Value | None = context[0] if isinstance(context, tuple) else None
        if _is_thread(context):
            thread = execution.body.threads.get(context)
            args = execution.body.runs[thread.run].args if thread is not None else None
        yield from self._of_token(args, path)

    def _of_token(self, args: Value | None, path: ReadPath) -> Iterator[ValueSource]:
        known = self._args.get(id(args))
        if known is not None:
            yield ValueSource(("token", known[1]), path, "the arguments of the step")

    def _in_event(self, context: Any, path: ReadPath) -> Iterator[ValueSource]:
        event: b.Boundary | None = context[1] if isinstance(context, tuple) else None
        if event is None or not event.step:
            return
        if path[:2] == ("payload", "result"):
            path = path[1:]
        if path[:1] == ("args",):
            yield from self._of_token(event.args, path[1:])
        elif path[:1] in ((), ("result",), ("status",), ("error",), ("name",)):
            inside = path[1:] if path[:1] == ("result",) else ()
            yield ValueSource(("output", event.step), inside, f"the result of step {event.step!r}")

    def _in_pipeline(self, execution: Execution, thread: int, root: str, path: ReadPath) -> Iterator[ValueSource]:
        known = self._passes.get(thread)
        if known is None:
            return
        loop = execution.program.steps[known.step].loop
        match (root, *path):
            case ("iter", name, *rest) if loop is not None and loop.cursor is not None and name == loop.iterator:
                yield from self._in_frame(execution, known, loop.cursor, tuple(rest))
            case ("iter", name, *rest) if loop is not None and name == loop.iterator:
                yield ValueSource(("items", known.run), (known.index, *rest), "what the loop runs over")
            case ("iter" | "step", str(name), *rest):
                yield ValueSource((root, thread, name), tuple(rest), f"{root}.{name}")
            case ("results", str(label), *rest):
                yield ValueSource(("result", thread, label), tuple(rest), f"the result of task {label!r}")
            case ("_prev", *rest):
                yield ValueSource(("prev", thread), tuple(rest), "the result before it")
            case ("outcome" | "output", *rest):
                inside = tuple(rest[1:]) if rest[:1] == ["result"] else ()
                yield ValueSource(("outcome", thread), inside, "the result of the task")

    def _in_frame(
        self, execution: Execution, known: _Pass, cursor: LoopCursor, path: ReadPath
    ) -> Iterator[ValueSource]:
        """The claim that returned the row, and the row in what it returned."""
        loop = execution.body.runs[known.run].loop
        first = -1 if loop is None else loop.frame_of(known.index)[0]
        claim = self._frames.get((known.run, first))
        if claim is not None:
            row = () if cursor.takes_frames else (known.index - first,)
            yield ValueSource(("outcome", claim), ("rows", *row, *path), "what the claim of the loop returned")

    def _bare(
        self, program: Program, execution: Execution, context: Any, name: str, path: ReadPath
    ) -> Iterator[ValueSource]:
        """What a bare name may mean, in the order in which it is looked up."""
        if name in self._ctx:
            yield from self._in_ctx((name, *path))
        elif name in program.steps:
            yield ValueSource(("output", name), path, f"the result of step {name!r}")
        else:
            yield from self._in_args(execution, context, (name, *path))
            yield from self._in_workload((name, *path))


def _is_thread(context: Any) -> bool:
    return isinstance(context, int)
