"""The verbs, one module each, imported when used: `configure(parser)`, then `perform(asked, talk)`.

The order is the order of `perdure --help`.
"""

VERBS: dict[str, tuple[str, str]] = {
    "run": ("perdure.cli.verbs.run", "start a document and follow it live"),
    "resume": ("perdure.cli.verbs.resume", "continue interrupted runs that have no live owner"),
    "ps": ("perdure.cli.verbs.ps", "list runs"),
    "show": ("perdure.cli.verbs.show", "show a run: status, what it waits for, how it ended"),
    "history": ("perdure.cli.verbs.history", "list the events of a run"),
    "signal": ("perdure.cli.verbs.signal", "send a signal to a run"),
    "approve": ("perdure.cli.verbs.gate", "approve a gate of a run"),
    "reject": ("perdure.cli.verbs.gate", "reject a gate of a run"),
    "patch": ("perdure.cli.verbs.patch", "change a run: the ctx of a Playbook, a run by kind"),
    "effects": ("perdure.cli.verbs.effects", "list the effects of a run, and which are in doubt"),
    "settle": ("perdure.cli.verbs.settle", "record whether an effect in doubt happened"),
    "cancel": ("perdure.cli.verbs.cancel", "ask a run to stop"),
    "redrive": ("perdure.cli.verbs.redrive", "reopen a run that has ended"),
    "fork": ("perdure.cli.verbs.fork", "start a new run from an event of another run"),
    "serve": ("perdure.cli.verbs.serve", "run as a server that executes runs, until Ctrl-C"),
    "trigger": ("perdure.cli.verbs.trigger", "request a run of a Story, durably"),
    "prune": ("perdure.cli.verbs.prune", "remove runs that ended long ago"),
    "backup": ("perdure.cli.verbs.backup", "copy the store to a file, while it is in use"),
    "restore": ("perdure.cli.verbs.restore", "replace the store with a backup"),
    "db": ("perdure.cli.verbs.db", "administer the store: status, migrate, validate, copy"),
    "apply": ("perdure.cli.verbs.apply", "create or update resources in the catalog"),
    "get": ("perdure.cli.verbs.get", "list resources, and runs as resources"),
    "describe": ("perdure.cli.verbs.describe", "explain a resource, its runs and what happened"),
    "delete": ("perdure.cli.verbs.delete", "delete resources from the catalog"),
    "check": ("perdure.cli.verbs.check", "list every problem of documents, and run nothing"),
    "graph": ("perdure.cli.verbs.graph", "draw a document as SVG, Mermaid or DOT"),
    "conformance": ("perdure.cli.verbs.conformance", "run a language's conformance cases"),
    "providers": ("perdure.cli.verbs.providers", "list what tasks may call, and its parameters"),
}
"""Name → module, and what it does in one line."""

UNLISTED: dict[str, tuple[str, str]] = {
    "result": ("perdure.cli.verbs.result", "print the value behind a reference"),
    "status": ("perdure.cli.verbs.status", "show the status of a run, without its results"),
}
"""Verbs that `perdure --help` names in a paragraph only."""
