"""The JSON Schema of Playbooks, made from the tables that they are validated with.

What is a setting (`spec`) may have members that nobody reads (PBK-009): there the schema is open. Members of profile
"io" are allowed everywhere; `check` says whether a document may use them.
"""

from functools import lru_cache
from typing import Any

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document import results, root, steps, tasks
from perdure.dialects.playbook.document.field_texts import TEXTS
from perdure.dialects.playbook.document.vocabulary import BOUND_NAMES, PROFILES
from perdure.dialects.playbook.plan import keychain_declarations as declared
from perdure.dialects.playbook.plan.program import OnFailure, OnFinalFailure, OnStranded
from perdure.dialects.playbook.run.ctx_merge import REDUCERS
from perdure.documents import schema_parts as s

_SECONDS: s.Schema = {"type": ["number", "string"]}
_IN_DOUBT = s.described(
    "Whether an effect in doubt is performed again or waits for an operator.", s.choice(("repeat", "hold"))
)
_LOOP_MODE = s.choice(("local", "fanout"))
_ROUTING = s.choice(("exclusive", "inclusive"))
_ARGUMENTS = s.either(s.OPEN, s.TEMPLATE)
_GUARD = s.described("A template that gives true or false.", {"type": ["string", "boolean"]})
_ASSIGNMENTS = s.OPEN
_STEP_NAME = s.with_facts(s.TEXT, refers="step")
_KINDS = {
    "noop": "Does nothing: for routing, and for setting `ctx` (PBK-093).",
    "python": "Runs code of the document in a process of its own (PBK-094).",
    "http": "Sends one request (PBK-095).",
    "shell": "Runs commands, one after the other (PBK-096).",
    "postgres": "Runs statements in one transaction of PostgreSQL (PBK-097).",
    "duckdb": "Runs statements in one transaction of DuckDB (PBK-097).",
    "sqlite": "Runs statements in one transaction of SQLite (PBK-097).",
    "container": "Runs a job in a container to its end (PBK-098).",
    "script": "Runs a script to its end, without a container (PBK-098).",
    "workbook": "The task of that name in `workbook` (PBK-099).",
    "artifact": "Reads the body behind a reference, or stores a value (PBK-100).",
    "secrets": "Reads a secret, which only the worker sees (PBK-100).",
    "playbook": "Runs another document and waits for its result (PBK-200).",
}
_ROOTS = {
    "workload": "The input of the run, with the document's defaults.",
    "ctx": "What the run has set so far.",
    "args": "What this step or task got.",
    "iter": "The iteration of the loop: its element, index and own values.",
    "event": "How the last step ended: name, status, result, error.",
    "steps": "The latest result of each step.",
    "results": "Results of earlier tasks of this step, by label.",
    "outcome": "How the task ended: status, result, error. In rules of a policy.",
    "output": "The outcome, in profile io.",
    "keychain": "Secrets, by name.",
    "execution_id": "The id of the run.",
    "fanin": "What the branches brought to a join.",
    "_prev": "The result of the task before.",
    "_task": "The label of the task.",
    "_attempt": "The attempt, from 1.",
}
_MEMBERS = {
    "event": ("name", "step", "status", "result", "error"),
    "outcome": ("status", "result", "error", "meta"),
    "output": ("status", "data", "error", "ref"),
    "iter": BOUND_NAMES,
}
_NAMES = {
    "steps": "step",
    "workload": "workload",
    "ctx": "ctx",
    "iter": "iterator",
    "results": "task",
    "keychain": "keychain",
}
_FACTS: s.Schema = {
    "provider": "{name}",
    "workspace": ["playbook"],
    "expressions": {
        "roots": {name: {"text": text, "members": list(_MEMBERS.get(name, ()))} for name, text in _ROOTS.items()},
        "names": _NAMES,
        "members": {"steps": ["status", "result", "reference", "runs"]},
        "bare": "step",
    },
}


def _settings(names: tuple[str, ...], described: dict[str, s.Schema]) -> s.Schema:
    """Settings, with those that tasks read, and those of tasks of one kind (PBK-036)."""
    every = {
        "timeout": {"type": ["number", "string", "object", "null"]},
        "result": s.part("results"),
        "effects_in_doubt": _IN_DOUBT,
    }
    return s.members((*names, *tasks.SETTINGS), {**every, **described}, is_open=True)


def _rules(then: s.Schema, least: int = 0) -> s.Schema:
    """A list of `{when, then}`, the last perhaps `{else: {then}}`."""
    last = s.members(("then",), {"then": then}, ("then",), is_open=True)
    rule = s.members(("when", "then", "else"), {"when": _GUARD, "then": then, "else": last})
    rule["oneOf"] = [{"required": ["when", "then"]}, {"required": ["else"]}]
    return s.list_of(rule, least)


def _step() -> s.Schema:
    described = {
        "step": s.with_facts(s.described("The name of the step, unique in the workflow.", s.TEXT), declares="step"),
        "desc": s.described("For people.", s.TEXT),
        "spec": _step_spec(),
        "loop": _loop(),
        "tool": s.described(
            "What the step does: one task, or a list of tasks that run one after the other.",
            s.either(s.part("task"), s.list_of(s.either(s.part("task"), s.part("labelled")), 1)),
        ),
        "next": _router(),
        "set": _ASSIGNMENTS,
    }
    return s.with_facts(s.members((*steps.STEP, "set"), described, ("step",)), scopes=["task", "iterator"])


def _step_spec() -> s.Schema:
    admission = s.members(
        ("rules", "mode", "on_deny"),
        {
            "rules": _rules(s.members(("allow",), {"allow": s.SWITCH}, ("allow",)), 1),
            "mode": _ROUTING,
            "on_deny": s.choice(("pending", "discard")),
        },
        ("rules",),
    )
    lifecycle = {"timeout_s": _SECONDS, "deadline_s": _SECONDS, "redelivery": s.choice(("resume", "restart"))}
    policy = {
        "admit": s.described("When the step may begin.", admission),
        "lifecycle": s.members(lifecycle, lifecycle, is_open=True),
        "failure": s.members(("mode",), {"mode": s.choice(("fail_fast", "best_effort"))}, is_open=True),
        "emit": s.ANYTHING,
    }
    join = s.members(
        ("from", "mode", "n"),
        {"from": s.list_of(_STEP_NAME, 1), "mode": s.choice(root.MODES), "n": s.whole(1)},
        ("from",),
    )
    described = {
        "policy": s.members(policy, policy, is_open=True),
        "join": s.described("Where branches come together.", join),
        "loop_mode": _LOOP_MODE,
        "queue_ttl_s": {"type": ["number", "string", "null"]},
        "pool": s.described("The pool of workers whose workers run the tasks.", {"type": ["string", "null"]}),
    }
    return _settings(steps.SETTINGS, described)


def _loop() -> s.Schema:
    numbers = {name: s.whole(1) for name in steps.FRAME if name != "process"}
    frame = {**numbers, "process": s.choice(("row", "frame"))}
    cursor = {
        "kind": s.choice(steps.CURSOR_KINDS),
        "auth": s.OPEN,
        "claim": s.TEXT,
        "options": s.members(("max_iterations",), {"max_iterations": s.whole(1)}, is_open=True),
    }
    described = {
        "mode": s.choice((*steps.LOOP_MODES, *steps.CURSOR_MODES)),
        "max_in_flight": s.either(s.whole(1), s.TEMPLATE),
        "frame": s.members(frame, frame, is_open=True),
        "policy": s.members(("exec",), {"exec": s.choice(("local", "distributed"))}, is_open=True),
        "reduce": s.map_of(s.choice(REDUCERS)),
    }
    return s.members(
        ("in", "cursor", "iterator", "spec"),
        {
            "cursor": s.members(cursor, cursor, ("kind", "claim"), is_open=True),
            "in": s.described("The list, or a template that gives one.", {"type": ["string", "array"]}),
            "iterator": s.with_facts(s.described("The name of the element: iter.<name>.", s.TEXT), declares="iterator"),
            "spec": _settings((*steps.LOOP_SETTINGS, "frame"), described),
        },
        ("iterator",),
    )


def _router() -> s.Schema:
    arc = s.members(
        ("step", "when", "args", "spec", "set"),
        {"step": _STEP_NAME, "when": _GUARD, "args": s.OPEN, "spec": s.OPEN, "set": _ASSIGNMENTS},
        ("step",),
    )
    spec = s.members(("mode",), {"mode": _ROUTING}, is_open=True)
    return s.members(("spec", "arcs"), {"spec": spec, "arcs": s.list_of(arc)}, ("arcs",))


def _task() -> s.Schema:
    """By kind; kinds that are providers have the fields of the provider, which is not known here."""
    kinds = [
        {
            "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
            "then": _task_of_kind(name, kind),
        }
        for name, kind in tools.KINDS.items()
    ]
    kind = s.described(
        "What does the work; the name of a provider is a kind, too.",
        s.with_facts({"type": "string", "examples": [*tools.KINDS, tools.WORKBOOK]}, words=_KINDS, names_provider=True),
    )
    shared = {
        "kind": kind,
        "name": s.with_facts(s.described("The label of the task.", s.TEXT), declares="task"),
        "args": s.with_facts(s.described("What the task gets.", s.ANYTHING), arguments_of="kind"),
        "spec": _settings(("policy",), {"policy": _task_policy()}),
    }
    return {"type": "object", "properties": shared, "required": ["kind"], "allOf": kinds}


def _task_of_kind(name: str, kind: tools.ToolKind) -> s.Schema:
    required = [{"anyOf": [{"required": [field]} for field in group]} for group in kind.required]
    choices = {field: s.either(s.choice(words), s.TEMPLATE, {"type": "null"}) for field, words in kind.choices.items()}
    schema: s.Schema = {"allOf": required} if required else {}
    if kind.fields is None:
        return {**schema, "properties": choices}
    names = ("kind", "name", "spec", "args", "input", *sorted(kind.fields))
    if name == "playbook":
        choices = {**choices, "path": s.with_facts({}, refers="playbook")}
    return {**schema, **s.members(names, choices)}


def _task_policy() -> s.Schema:
    then = s.members(
        ("do", *tasks.RETRY_ONLY, "to", "set_ctx", "set_iter", "set"),
        {
            "do": s.choice(tasks.DIRECTIVES),
            "attempts": s.whole(1),
            "backoff": s.choice(("none", "linear", "exponential")),
            "delay": s.either({"type": "number", "minimum": 0}, s.TEMPLATE),
            "to": s.with_facts(s.TEXT, refers="task"),
            "set_ctx": s.with_facts(_ASSIGNMENTS, declares_members="ctx"),
            "set_iter": _ASSIGNMENTS,
            "set": _ASSIGNMENTS,
        },
        ("do",),
    )
    return s.members(
        ("rules", "mode", "on_unmatched", "before", "after", "finally"),
        {
            "rules": s.described("What follows from the outcome; the first rule that holds counts.", _rules(then)),
            "mode": s.choice(("exclusive",)),
            "on_unmatched": s.choice(("continue", "fail")),
        },
        ("rules",),
    )


def _results() -> s.Schema:
    store = {
        "kind": s.choice(results.STORES),
        "scope": s.choice(results.SCOPES),
        "ttl": {"type": ["number", "string", "null"]},
        "compression": s.choice(results.COMPRESSIONS),
        "bucket": s.TEXT,
    }
    select = s.members(("path", "as"), {"path": s.TEXT, "as": s.TEXT}, ("path", "as"))
    described = {
        "inline_max_bytes": s.whole(0),
        "preview_max_bytes": s.whole(0),
        "store": s.members(store, store, is_open=True),
        "select": s.list_of(select),
    }
    return s.members(described, described, is_open=True)


def _executor() -> s.Schema:
    completion = {
        "on_failure": s.choice(member.value for member in OnFailure),
        "on_stranded": s.choice(member.value for member in OnStranded),
        "on_final_failure": s.choice(member.value for member in OnFinalFailure),
        "wait_timeout_s": {"type": ["number", "string", "null"]},
    }
    limits = {name: s.whole(1) for name in ("max_payload_bytes", "max_step_runs", "max_task_visits")}
    fanout = {
        "fail_fast": s.SWITCH,
        "allow_partial": s.SWITCH,
        "max_job_retries": s.whole(0),
        "max_shards": s.whole(1),
    }
    policy = {
        "completion": s.members(completion, completion),
        "limits": s.members(limits, limits, is_open=True),
        "lifecycle": s.members(("timeout_s",), {"timeout_s": _SECONDS}, is_open=True),
    }
    described: dict[str, s.Schema] = {
        "entry_step": _STEP_NAME,
        "final_step": _STEP_NAME,
        "no_next_is_error": s.SWITCH,
        "loop_mode": _LOOP_MODE,
        "compat": s.choice(PROFILES),
        "fanout": s.members(fanout, fanout),
        "policy": s.members(policy, policy, is_open=True),
        "pool": {"type": ["string", "null"]},
        "queue_ttl_s": {"type": ["number", "string", "null"]},
    }
    names = s.list_of(s.TEXT)
    return s.members(
        ("profile", "kind", "version", "requires", "spec"),
        {
            "profile": s.choice(root.PROFILES),
            "kind": s.choice(root.PROFILES),
            "requires": s.members(("tools", "features"), {"tools": names, "features": names}, is_open=True),
            "spec": _settings(root.EXECUTOR_SETTINGS, described),
        },
    )


def _keychain() -> s.Schema:
    fields = (*declared.COMMON, *(field for fields in declared.KINDS.values() for field in fields))
    entry = s.members(
        fields,
        {
            "name": s.with_facts(s.TEXT, declares="keychain"),
            "kind": s.choice(declared.KINDS),
            "scope": s.choice(declared.LIFETIMES),
        },
        ("name", "kind"),
        is_open=True,
    )
    return s.list_of(entry)


def _workbook() -> s.Schema:
    entries = s.members(("tasks",), {"tasks": {"type": ["object", "array"]}})
    return s.either(entries, {"type": "array"})


@lru_cache
def document_schema() -> s.Schema:
    texts = {"type": ["string", "number"]}
    metadata: dict[str, Any] = {
        "name": s.TEXT,
        "path": s.with_facts(
            s.described("Where the catalog keeps it, and how others call it.", s.TEXT), declares="playbook"
        ),
        "description": s.TEXT,
        "version": texts,
        "tags": {"type": ["array", "string"]},
        "labels": s.OPEN,
        "capabilities": {"type": "array"},
        "compat": s.choice(PROFILES),
    }
    described = {
        "apiVersion": s.choice(root.VERSIONS),
        "kind": s.described("What the document is.", {"const": "Playbook"}),
        "metadata": s.members(metadata, metadata, ("name", "path"), is_open=True),
        "keychain": s.described("Secrets, by name; templates read them as keychain.<name>.", _keychain()),
        "executor": s.described("Settings of all runs.", _executor()),
        "workload": s.with_facts(s.described("Defaults of the input of a run.", s.OPEN), declares_members="workload"),
        "workflow": s.described("The steps; the first one, or `entry_step`, begins.", s.list_of(s.part("step"), 1)),
        "workbook": s.described("Tasks that steps share.", _workbook()),
    }
    labelled = s.with_facts(
        {"type": "object", "maxProperties": 1, "additionalProperties": s.part("task")}, declares_label="task"
    )
    shared = {"step": _step(), "task": _task(), "labelled": labelled, "results": _results()}
    schema = s.with_facts(s.members(root.ROOT, described, root.REQUIRED), **_FACTS)
    document = s.document("playbook", "A Playbook: NoETL canonical v10", schema, shared)
    s.describe(document, TEXTS)
    return document
