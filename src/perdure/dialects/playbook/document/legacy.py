"""Members of older versions of the language and their replacements (PBK-032)."""

IO_PROFILE_HINT = "; or, throughout, the words of profile io (`executor.spec.compat: io`)"
FIELDS = {
    "input": f"`args`{IO_PROFILE_HINT}",
    "set": "`set_ctx` in `spec.policy.rules`; in profile io `set` of its `then`, or of the step",
    "output": "`outcome` (in profile io `output`) in `spec.policy.rules`",
    "timeout": "`spec.timeout`",
}

ROOT = {"vars": "`ctx` (by `set_ctx`) or `workload`"}

STEP = {
    "when": "`spec.policy.admit.rules`",
    "case": "task policy rules (`tool.spec.policy.rules`)",
    "retry": "task policy rules with `do: retry`",
    "sink": "a storage task in the pipeline",
    "pipe": "a list of tasks under `tool`",
    "save": "a storage task in the pipeline, or `set_ctx`",
    "vars": "`set_ctx` in a task policy rule",
    "type": "`tool.kind`",
    "command": "`command` inside `tool`",
    "args": "`args` inside `tool`, or on the arc that leads here",
    "input": f"`args` inside `tool`{IO_PROFILE_HINT}",
    "set": f"`set_ctx` in a task policy rule{IO_PROFILE_HINT}",
    "pagination": "`jump` and `break` in the pipeline",
}

TASK = {
    "eval": "`spec.policy.rules` with `when`",
    "expr": "`spec.policy.rules` with `when`",
    "case": "`spec.policy.rules` with `when`",
    "retry": "`spec.policy.rules` with `do: retry`",
    "sink": "a storage task after this one",
    "when": "`spec.policy.rules` of the task before, or an arc",
    "next": "`next` of the step",
    "loop": "`loop` of the step",
    "vars": "`set_ctx` in `spec.policy.rules`",
    "pagination": "`jump` and `break` in the pipeline",
}

THEN = {"set_vars": "`set_ctx` or `set_iter`", "set": f"`set_ctx` or `set_iter`{IO_PROFILE_HINT}"}

ARC = {"set": f"`set_ctx` in a task policy rule, or `args`{IO_PROFILE_HINT}"}

LOOP = {
    "mode": "`loop.spec.mode`",
    "element": "`loop.iterator`",
    "collection": "`loop.in`",
    "max_in_flight": "`loop.spec.max_in_flight`",
    "pagination": "`jump` and `break` in the pipeline",
}

RULE = {"expr": "`when`", "eval": "`when`", "if": "`when`"}

KINDS = {"iterator": "`loop` of the step"}
