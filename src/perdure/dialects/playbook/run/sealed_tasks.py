"""Tasks that need secrets: which fields are left to the worker, and how the worker completes them (section 13).

A field is *left* when its template reads `keychain`, or the result of a task that read a secret. Everything else is
rendered in the decision, as always. What else the left templates read goes with the task, in its envelope.
"""

from collections.abc import Iterable
from typing import Any

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.plan.program import SCOPES, Program, Task
from perdure.dialects.playbook.run.keychain import envelope_keychain
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.tools.kind import ToolCall
from perdure.dialects.playbook.values.template_scopes import Makers, gather, task_key, task_path
from perdure.expressions.jinja import TemplateReads, all_reads
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.secrets.sealed_arguments import Envelope
from perdure.kernel.turn import Turn

KEYCHAIN = "keychain"
LANGUAGE = "playbook"
PROVIDER = "playbook.secrets"


def left_fields(program: Program, task: Task, thread: b.PipelineThread) -> frozenset[str]:
    """The fields of a task that only the worker can render."""
    left = frozenset(name for name, template in task.fields.items() if touches(template.reads, thread))
    if program.is_io and "args" in left:  # a bare name may mean one of the task's own args
        left |= frozenset(name for name, template in task.fields.items() if template.reads.names - SCOPES)
    return left


def touches(reads: TemplateReads, thread: b.PipelineThread) -> bool:
    """Whether these reads include a secret."""
    members = reads.members
    if KEYCHAIN in members or ("_prev" in members and thread.prev_recipe is not None):
        return True
    return "results" in members and any(reads.touches("results", label) for label in thread.recipes)


def is_needed(call: ToolCall, left: frozenset[str]) -> bool:
    kind = tools.kind_of(call.task.kind)
    if left or kind.is_sensitive or touches(kind.reads(call.task), call.turn.body.threads[call.thread]):
        return True
    return kind.provider is not None and isinstance(call.fields.get("auth"), str)


def start(call: ToolCall, left: frozenset[str], makers: Makers) -> None:
    """Schedule the task with the fields that are known; `makers` provide the scopes of the remaining ones."""
    turn, task = call.turn, call.task
    kind = tools.kind_of(task.kind)
    if kind.provider is None:
        message = f"a secret may not be passed to a {task.kind} task: {', '.join(sorted(left))}"
        call.fail(error("template", message, "SECRET_ESCAPES", source=task.label))
        return
    thread = turn.body.threads[call.thread]
    run = turn.body.runs[thread.run]
    reads = all_reads([kind.reads(task), *(task.fields[name].reads for name in left)])
    path = task_path(thread, run, task)
    body: dict[str, Any] = {
        "step": run.step,
        "task": thread.position,
        "path": path,
        "fields": {name: value for name, value in call.fields.items() if name not in task.fixed},
        "scopes": _scopes(makers, reads, thread),
        "secrets": _recipes(turn, reads, thread),
        **envelope_keychain(turn, reads.members.get(KEYCHAIN, frozenset()), by_name="auth" in task.fields),
    }
    if call.folder is not None:
        body["folder"] = call.folder
    text = envelope(call, body)
    if text is None:
        return
    limit = task.timeout
    deadline = None if limit is None else turn.now + int(limit * SECOND)
    number = turn.schedule_task(
        kind.provider.format(kind=task.kind),
        path,
        text,
        attempt=thread.attempt,
        pool=task.pool,
        deadline=deadline,
        max_deliveries=thread.charges_left,
        hold_effects_in_doubt=task.holds_effects,
        sealed=True,
        key=task_key(thread),
    )
    recipe = turn.keep(jsontext.encode(body)) if kind.is_sensitive else None
    call.started(number, call.limit_queue(number), recipe=recipe)


def envelope(call: ToolCall, body: dict[str, Any]) -> bytes | None:
    try:
        return jsontext.encode(Envelope(LANGUAGE, body))
    except jsontext.NotJson as problem:
        call.fail(error("serialization", str(problem), source=call.task.label))
        return None


def _scopes(makers: Makers, reads: TemplateReads, thread: b.PipelineThread) -> dict[str, Any]:
    """What the remaining templates read, except secrets; of each scope only the members that they name."""
    hidden = {KEYCHAIN} if thread.prev_recipe is None else {KEYCHAIN, "_prev"}
    values = gather(
        makers, TemplateReads({name: members for name, members in reads.members.items() if name not in hidden})
    )
    if "results" in values:
        values["results"] = {label: value for label, value in values["results"].items() if label not in thread.recipes}
    return {name: narrowed(value, reads.members[name]) for name, value in values.items()}


def narrowed(value: Any, members: Iterable[str] | None) -> Any:
    if members is None or not isinstance(value, dict):
        return value
    return {name: value[name] for name in members if name in value}


def _recipes(turn: Turn, reads: TemplateReads, thread: b.PipelineThread) -> dict[str, Any]:
    """How to read the secrets again that earlier tasks of the pipeline have read."""
    recipes: dict[str, Any] = {}
    if "_prev" in reads.members and thread.prev_recipe is not None:
        recipes["prev"] = jsontext.decode(turn.text(thread.prev_recipe))
    labels = [label for label in thread.recipes if reads.touches("results", label)]
    if labels:
        recipes["results"] = {label: jsontext.decode(turn.text(thread.recipes[label])) for label in labels}
    return recipes
