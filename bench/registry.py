"""Everything that is measured: one file and one line each."""

LANGUAGES: tuple[str, ...] = ("drill", "flow", "playbook", "story")
"""Files in bench/languages."""

PEERS: tuple[str, ...] = ("dbos", "langgraph", "restate", "absurd")
"""Files in bench/peers, measured unless `--peers` says otherwise."""


MORE_PEERS: tuple[str, ...] = ("dbos_postgres",)
"""Measured only when asked for: slower relatives of those above."""
