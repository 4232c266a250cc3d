"""From a checked document to its program: templates compiled, labels resolved, settings layered. Validates nothing."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document.tool_forms import WrittenTask, tasks_of
from perdure.dialects.playbook.plan import program as g
from perdure.dialects.playbook.plan.durations import read_seconds, read_span
from perdure.dialects.playbook.plan.keychain_declarations import compile_keychain, declared_secret_names
from perdure.dialects.playbook.plan.workload import overlay
from perdure.dialects.playbook.values.jsonpath import JsonPath
from perdure.expressions.jinja import Guard, Template, has_template
from perdure.kernel.lazy_regex import lazy_regex

FEATURES = frozenset(
    {
        *("admission", "final_step", "loop", "fanout", "routing", "task_policy", "workbook", "playbook"),
        *("references", "result_storage", "join", "keychain", "templating", "cursor"),
    }
)
CLAIM_LABEL = "claim"  # of the task that claims frames for a cursor loop
QUEUE_TTL = 600  # seconds that a task waits for a worker of its pool, unless the document says otherwise
SYSTEM = "system"  # path prefix of playbooks that only the pool of this name runs (PBK-197)
NO_POOL = (None, "", "default", "local", "auto")  # the process that runs the execution does the work
KNOBS = ("timeout", "result", "resources", "effects_in_doubt")
SECRETIVE = frozenset({"keychain", "_prev", "results"})  # scopes that may contain secrets


def compile_program(
    document: Mapping[str, Any], workbook: Mapping[str, Any], provides: Callable[[str], bool], *, is_io: bool = False
) -> g.Program:
    executor = document.get("executor") or {}
    spec = executor.get("spec") or {}
    policy = spec.get("policy") or {}
    bare_names = g.BareNames(frozenset(step["step"] for step in document["workflow"])) if is_io else None
    system = SYSTEM if document["metadata"]["path"].startswith(f"{SYSTEM}/") else None
    steps = {step["step"]: _Step(step, spec, workbook, bare_names, system).compile() for step in document["workflow"]}
    keychain = compile_keychain(document.get("keychain") or ())
    return g.Program(
        name=document["metadata"]["name"],
        path=document["metadata"]["path"],
        steps=steps,
        entry=spec.get("entry_step", next(iter(steps))),
        workload=Template(document.get("workload") or {}),
        final_step=spec.get("final_step"),
        no_next_is_error=spec.get("no_next_is_error", False),
        completion=_completion(policy.get("completion") or {}),
        bounds=g.Bounds(**{name: value for name, value in (policy.get("limits") or {}).items() if name in _BOUNDS}),
        timeout=read_span((policy.get("lifecycle") or {}).get("timeout_s")),
        joins=_joins(steps),
        keychain=keychain,
        missing=_missing(executor.get("requires") or {}, provides),
        is_io=is_io,
        reads_references=any(
            tools.kind_of(task.kind).reads_references for step in steps.values() for task in step.tasks
        ),
        literal_texts=frozenset(_literal_texts(document)),
        secret_names=_secret_names(keychain, steps),
        pool=_pool(system or spec.get("pool")),
    )


def _pool(named: str | None) -> str:
    return "" if named in NO_POOL else str(named)


def _secret_names(keychain: Mapping[str, g.KeychainEntry], steps: Mapping[str, g.Step]) -> tuple[str, ...]:
    """What keychain and tasks read from the host, if the names are literal."""
    names = list(declared_secret_names(keychain))
    for task in (task for step in steps.values() for task in step.all_tasks):
        fields = {**task.fixed, **{name: template.document for name, template in task.fields.items()}}
        names += tools.kind_of(task.kind).secret_names(fields)
    return tuple(dict.fromkeys(name for name in names if "{" not in name))


_LONGEST_NAME = 1_000  # of a secret, in characters
_QUOTED = lazy_regex(r"'[^']*'|\"[^\"]*\"")


def _literal_texts(value: Any) -> Iterator[str]:
    """The texts of a document that could be names, and those that its templates quote."""
    match value:
        case str():
            if len(value) <= _LONGEST_NAME:
                yield value
                if has_template(value):
                    yield from (quoted[1:-1] for quoted in _QUOTED.findall(value))
        case dict():
            for inner in value.values():
                yield from _literal_texts(inner)
        case list():
            for inner in value:
                yield from _literal_texts(inner)


_BOUNDS = tuple(g.Bounds.__struct_fields__)


def _joins(steps: Mapping[str, g.Step]) -> Mapping[str, Mapping[str, frozenset[str]]]:
    return {name: _reach(steps, name, step.join.branches) for name, step in steps.items() if step.join is not None}


def _reach(steps: Mapping[str, g.Step], join: str, branches: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Which of these branches each step leads to, searched backwards from each; the search stops at the join."""
    sources: dict[str, list[str]] = {name: [] for name in steps}
    for step in steps.values():
        for arc in step.router.arcs if step.router is not None and step.name != join else ():
            sources[arc.step].append(step.name)
    reachable: dict[str, set[str]] = {name: set() for name in steps}
    for branch in branches:
        waiting = [branch]
        while waiting:
            name = waiting.pop()
            if branch not in reachable[name]:
                reachable[name].add(branch)
                waiting += sources[name]
    return {name: frozenset(reached) for name, reached in reachable.items()}


def _completion(policy: Mapping[str, Any]) -> g.Completion:
    return g.Completion(
        g.OnFailure(policy.get("on_failure", g.OnFailure.FAIL_ON_UNHANDLED)),
        g.OnStranded(policy.get("on_stranded", g.OnStranded.AUTO)),
        g.OnFinalFailure(policy.get("on_final_failure", g.OnFinalFailure.FAIL)),
        read_span(policy.get("wait_timeout_s")),
    )


def _missing(requires: Mapping[str, Any], provides: Callable[[str], bool]) -> tuple[str, ...]:
    tools_missing = [
        f"tool {name}"
        for name in requires.get("tools") or ()
        if name not in tools.KINDS and name != tools.WORKBOOK and not provides(name)
    ]
    features_missing = [f"feature {name}" for name in requires.get("features") or () if name not in FEATURES]
    return (*tools_missing, *features_missing)


class _Step:
    def __init__(
        self,
        document: Mapping[str, Any],
        executor: Mapping[str, Any],
        workbook: Mapping[str, Any],
        bare_names: g.BareNames | None,
        pool: str | None,
    ) -> None:
        """`pool` takes precedence over any in the document."""
        self.document = document
        self.bare_names = bare_names
        self.executor = executor
        self.workbook = workbook
        self.spec: Mapping[str, Any] = document.get("spec") or {}
        self.pool = _pool(pool or self.spec.get("pool", executor.get("pool")))
        self.policy: Mapping[str, Any] = self.spec.get("policy") or {}

    def compile(self) -> g.Step:
        lifecycle = self.policy.get("lifecycle") or {}
        tasks, loop = self._tasks(), self._loop()
        timeout = read_span(lifecycle.get("timeout_s", self.spec.get("timeout")))
        deadline = read_span(lifecycle.get("deadline_s"))
        return g.Step(
            name=self.document["step"],
            tasks=tasks,
            loop=loop,
            admission=self._admission(),
            router=self._router(),
            timeout=timeout,
            deadline=deadline,
            join=self._join(),
            restarts=lifecycle.get("redelivery") == "restart",
            set=_templates(self.document.get("set")),
            is_plain=bool(tasks) and loop is None and timeout is None and deadline is None,
        )

    # The gate.

    def _admission(self) -> g.Admission | None:
        admit = self.policy.get("admit")
        if admit is None:
            return None
        rules = []
        for rule in admit["rules"]:
            is_else = "else" in rule
            then = rule["else"]["then"] if is_else else rule["then"]
            rules.append(g.AdmitRule(None if is_else else Guard(rule["when"]), then["allow"]))
        return g.Admission(tuple(rules), g.OnDeny(admit.get("on_deny", g.OnDeny.PENDING)), self.bare_names)

    def _join(self) -> g.Join | None:
        join = self.spec.get("join")
        if join is None:
            return None
        branches = tuple(join["from"])
        need = {"all": len(branches), "any": 1}.get(join.get("mode", "all")) or join["n"]
        return g.Join(branches, need)

    # The pipeline.

    def _tasks(self) -> tuple[g.Task, ...]:
        tasks = list(tasks_of(self.document["step"], self.document.get("tool") or ()))
        labels = [task.label for task in tasks]
        return tuple(self._task(task, labels, index) for index, task in enumerate(tasks))

    def _task(self, task: WrittenTask, labels: list[str], index: int) -> g.Task:
        body = self._resolve_workbook(task.body)
        kind = body["kind"]
        is_text = tools.kind_of(kind).is_text
        aside = ("kind", "spec") if tools.kind_of(kind).is_sensitive else ("kind", "name", "spec")
        names = sorted((name for name in body if name not in aside), key=lambda name: name != "args")  # it comes first
        fields = {name: body[name] for name in names}
        templates = {name: Template(value) for name, value in fields.items() if not is_text(name, value)}
        spec = body.get("spec") or {}
        layered = self._layered(kind, spec)
        return g.Task(
            label=task.label,
            kind=kind,
            fields=templates,
            fixed={name: value for name, value in fields.items() if is_text(name, value)},
            spec=layered,
            policy=_policy(spec.get("policy"), labels, index),
            result=_result(layered.get("result") or {}, is_io=self.bare_names is not None),
            place=f"step/{quote(self.document['step'], safe='')}/task/{quote(task.label, safe='')}",
            timeout=tools.read_timeout(layered.get("timeout")),
            may_be_sealed=_may_be_sealed(tools.kind_of(kind), templates),
            pool=self.pool,
            queue_ttl=read_span(self.spec.get("queue_ttl_s", self.executor.get("queue_ttl_s", QUEUE_TTL))) or 0,
        )

    def _resolve_workbook(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A workbook's entry with the caller's `args` and `spec` merged into it (PBK-099)."""
        while body["kind"] == tools.WORKBOOK:
            over = {name: body[name] for name in ("args", "spec") if name in body}
            body = overlay(self.workbook[body["task"]], over)
        return body

    def _layered(self, kind: str, task_settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inner settings override outer ones (PBK-035, 036). A step's `timeout` bounds the step-run, not each task."""
        defaults = (self.executor.get("policy") or {}).get("defaults") or {}
        outermost = {"timeout": defaults["timeout_s"]} if defaults.get("timeout_s") is not None else {}
        step = {name: value for name, value in self.spec.items() if name != "timeout"}
        loop = (self.document.get("loop") or {}).get("spec") or {}
        layered: dict[str, Any] = {}
        for layer in (outermost, self.executor, step, loop):
            knobs = {name: layer[name] for name in (*KNOBS, kind) if name in layer}
            layered = overlay(layered, knobs)
        layered = overlay(layered, {name: value for name, value in task_settings.items() if name != "policy"})
        if "timeout" in layered:
            layered["timeout"] = _timeout(layered["timeout"])
        return layered

    # The loop.

    def _loop(self) -> g.Loop | None:
        loop = self.document.get("loop")
        if loop is None:
            return None
        spec = loop.get("spec") or {}
        in_flight = spec.get("max_in_flight")
        cursor = self._cursor(loop, spec)
        fanout = self._fanout() if cursor is None else None
        is_parallel = spec.get("mode") == "parallel" or fanout is not None
        if cursor is not None:
            is_parallel = in_flight not in (None, 1) or cursor.row_concurrency > 1
        return g.Loop(
            over=Template(loop.get("in", [])),
            iterator=loop["iterator"],
            is_parallel=is_parallel,
            max_in_flight=None if in_flight is None else Template(in_flight),
            is_best_effort=(self.policy.get("failure") or {}).get("mode") == "best_effort",
            reduce=spec.get("reduce") or {},
            fanout=fanout,
            result=_result(self._layered("", {}).get("result") or {}, is_io=self.bare_names is not None),
            cursor=cursor,
        )

    def _cursor(self, loop: Mapping[str, Any], spec: Mapping[str, Any]) -> g.LoopCursor | None:
        """The claim is a task like any other, with rules of its own: what may pass is tried again."""
        written = loop.get("cursor")
        if written is None:
            return None
        frame = spec.get("frame") or {}
        aside = ("claim", "options")
        body = {"command": written["claim"], **{name: written[name] for name in written if name not in aside}}
        claim = self._task(WrittenTask(CLAIM_LABEL, body, ()), [CLAIM_LABEL], 0)
        takes_frames = frame.get("process") == "frame"
        return g.LoopCursor(
            msgspec.structs.replace(
                claim, policy=_claim_policy(frame.get("max_attempts", 3)), result=g.ResultPolicy(inline_max=sys.maxsize)
            ),
            frame.get("max_rows", 1),
            takes_frames,
            1 if takes_frames else frame.get("row_concurrency", 1),
            (written.get("options") or {}).get("max_iterations", 100_000),
        )

    def _fanout(self) -> g.Fanout | None:
        if self.spec.get("loop_mode", self.executor.get("loop_mode")) != "fanout":
            return None
        return g.Fanout(**overlay(self.executor.get("fanout") or {}, self.spec.get("fanout") or {}))

    # The router.

    def _router(self) -> g.Router | None:
        router = self.document.get("next")
        if router is None:
            return None
        arcs = tuple(
            g.Arc(
                arc["step"],
                Guard(arc["when"]) if "when" in arc else None,
                Template(arc["args"]) if arc.get("args") else None,
                _templates(arc.get("set")),
            )
            for arc in router["arcs"]
        )
        return g.Router(arcs, (router.get("spec") or {}).get("mode") == "inclusive")


def _claim_policy(attempts: int) -> g.TaskPolicy:
    passing = Guard("{{ outcome.status == 'error' and outcome.error.retryable }}")
    failed = Guard("{{ outcome.status == 'error' }}")
    return g.TaskPolicy(
        (
            g.TaskRule(passing, g.Then(g.Directive.RETRY, attempts, "exponential")),
            g.TaskRule(failed, g.Then(g.Directive.FAIL)),
            g.TaskRule(None, g.Then(g.Directive.CONTINUE)),
        )
    )


def _may_be_sealed(kind: tools.ToolKind, fields: Mapping[str, Template]) -> bool:
    """Whether a task may need secrets; whether it does is decided at each attempt (see `sealed_tasks`)."""
    if kind.is_sensitive or kind.reads is not tools.reads_nothing or "auth" in fields:
        return True
    return any(template.reads.names & SECRETIVE for template in fields.values())


def _result(document: Mapping[str, Any], *, is_io: bool) -> g.ResultPolicy:
    stored = document.get("store") or {}
    default = g.ResultPolicy()
    return g.ResultPolicy(
        document.get("inline_max_bytes", default.inline_max),
        document.get("preview_max_bytes", default.preview_max),
        stored.get("kind", default.store),
        stored.get("scope", default.scope),
        read_span(stored.get("ttl")),  # `forever` is not a duration
        tuple((JsonPath(selection["path"]), selection["as"]) for selection in document.get("select") or ()),
        is_io,
        stored.get("bucket") or "",
    )


def _timeout(timeout: Any) -> Any:
    if isinstance(timeout, dict):
        return {name: read_seconds(value) for name, value in timeout.items()}
    return read_seconds(timeout)


def _policy(policy: Mapping[str, Any] | None, labels: list[str], index: int) -> g.TaskPolicy | None:
    if policy is None:
        return None
    rules = []
    for rule in policy["rules"]:
        is_else = "else" in rule
        then = rule["else"]["then"] if is_else else rule["then"]
        rules.append(g.TaskRule(None if is_else else Guard(rule["when"]), _then(then, labels, index)))
    return g.TaskPolicy(tuple(rules), policy.get("on_unmatched") == "fail")


def _then(then: Mapping[str, Any], labels: list[str], index: int) -> g.Then:
    to = then.get("to")
    position = None
    if to is not None:
        position = labels.index(to) if to in labels else index - 1  # a real label `previous` takes precedence (PBK-025)
    return g.Then(
        g.Directive(then["do"]),
        then.get("attempts", 3),
        then.get("backoff", "none"),
        Template(then["delay"]) if "delay" in then else None,
        position,
        *(_templates(then.get(name)) for name in ("set_ctx", "set_iter", "set")),
    )


def _templates(values: Mapping[str, Any] | None) -> Mapping[str, Template]:
    return {name: Template(value) for name, value in (values or {}).items()}
