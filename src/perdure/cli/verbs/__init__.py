"""The verbs, one module each, imported when used: `configure(parser)`, then `perform(asked, talk)`.

The order is the order of `perdure --help`.
"""

VERBS: dict[str, tuple[str, str]] = {
    "run": ("perdure.cli.verbs.run", "start a document and follow it live"),
    "resume": ("perdure.cli.verbs.resume", "continue interrupted runs that have no live owner"),
    "ps": ("perdure.cli.verbs.ps", "list runs"),
    "top": ("perdure.cli.verbs.top", "show a live screen of all runs"),
    "show": ("perdure.cli.verbs.show", "show a run: status, what it waits for, how it ended"),
    "wait": ("perdure.cli.verbs.wait", "wait until a run, or a step of it, has ended"),
    "why": ("perdure.cli.verbs.why", "explain why a run or a step waits, failed or was skipped"),
    "evaluate": ("perdure.cli.verbs.evaluate", "evaluate an expression as a step of a run would read it"),
    "history": ("perdure.cli.verbs.history", "list the events of a run"),
    "timeline": ("perdure.cli.verbs.timeline", "show the steps of a run as bars over time"),
    "logs": ("perdure.cli.verbs.logs", "print what the tasks of a run printed and logged"),
    "signal": ("perdure.cli.verbs.signal", "send a signal to a run"),
    "approve": ("perdure.cli.verbs.gate", "approve a gate of a run"),
    "reject": ("perdure.cli.verbs.gate", "reject a gate of a run"),
    "patch": ("perdure.cli.verbs.patch", "change the ctx of a Playbook, or a run as a resource"),
    "effects": ("perdure.cli.verbs.effects", "list the effects of a run, and which are in doubt"),
    "settle": ("perdure.cli.verbs.settle", "record whether an effect in doubt happened"),
    "cancel": ("perdure.cli.verbs.cancel", "cancel a run"),
    "pause": ("perdure.cli.verbs.pause", "pause a run: it makes no move until it is unpaused"),
    "unpause": ("perdure.cli.verbs.pause", "let a paused run go on"),
    "redrive": ("perdure.cli.verbs.redrive", "reopen a run that has ended"),
    "fork": ("perdure.cli.verbs.fork", "start a new run from an event of another run"),
    "serve": ("perdure.cli.verbs.serve", "run as a server that executes runs, until Ctrl-C"),
    "worker": ("perdure.cli.verbs.worker", "do tasks of a pool for a server elsewhere, until Ctrl-C"),
    "mcp": ("perdure.cli.verbs.mcp", "offer runs and workflows to a language model"),
    "context": ("perdure.cli.verbs.context", "choose the server that verbs ask, and keep its token"),
    "config": ("perdure.cli.verbs.config", "print the settings in force, and where they come from"),
    "token": ("perdure.cli.verbs.token", "make, list and revoke access tokens of a server"),
    "audit": ("perdure.cli.verbs.audit", "check the audit log of a server, or print its head"),
    "secrets": ("perdure.cli.verbs.secrets", "encrypt kept secrets again with another key"),
    "ca": ("perdure.cli.verbs.ca", "print the certificate authority of `serve --tls auto`"),
    "kubeconfig": ("perdure.cli.verbs.kubeconfig", "print what kubectl needs to reach a server"),
    "trigger": ("perdure.cli.verbs.trigger", "request a run of a Story from the catalog"),
    "schedule": ("perdure.cli.verbs.schedule", "list, pause and backfill the schedules of Impulses"),
    "prune": ("perdure.cli.verbs.prune", "remove runs that ended long ago"),
    "backup": ("perdure.cli.verbs.backup", "back up the store to a file while it is in use"),
    "restore": ("perdure.cli.verbs.restore", "replace the store with a backup"),
    "db": ("perdure.cli.verbs.db", "administer the store: status, migrate, validate, copy"),
    "apply": ("perdure.cli.verbs.apply", "create or update resources in the catalog"),
    "get": ("perdure.cli.verbs.get", "list resources of the catalog, and runs as resources"),
    "describe": ("perdure.cli.verbs.describe", "show a resource with its runs and recent events"),
    "delete": ("perdure.cli.verbs.delete", "delete resources from the catalog"),
    "check": ("perdure.cli.verbs.check", "check documents for problems without running them"),
    "graph": ("perdure.cli.verbs.graph", "draw a document or a run as SVG, Mermaid or text"),
    "conformance": ("perdure.cli.verbs.conformance", "run a language's conformance cases"),
    "providers": ("perdure.cli.verbs.providers", "list the providers that tasks can call"),
    "completion": ("perdure.cli.verbs.completion", "print a completion script for your shell"),
}
"""Name → module, and what it does in one line."""

UNLISTED: dict[str, tuple[str, str]] = {
    "result": ("perdure.cli.verbs.result", "print the value behind a reference"),
    "status": ("perdure.cli.verbs.status", "show the status of a run, without its results"),
}
"""Verbs that `perdure --help` names in a paragraph only."""
