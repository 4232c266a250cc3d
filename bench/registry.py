"""Everything that is measured: one file and one line each."""

LANGUAGES: tuple[str, ...] = ("flow", "playbook", "story", "drill")
"""Files in bench/languages."""

STORES: tuple[str, ...] = ("sqlite", "postgres")
"""What Perdure keeps its runs in. A language on PostgreSQL is a subject of its own: `flow@postgres`."""

ON_ONE_MACHINE: tuple[str, ...] = ("w1", "w2", "w3", "w4", "w5", "w6", "w7")
ON_POSTGRES: tuple[str, ...] = ("w1", "w2", "w3", "w4", "w8")
"""The workloads that are measured there; the others are about one file and one process."""

KINDS: dict[str, tuple[str, ...]] = {"async": LANGUAGES, "inline": ("flow", "playbook", "drill")}
"""Kinds of functions that are tried besides plain ones, which run in threads, and where there are such."""

BY_KIND: tuple[str, ...] = ("w1", "w4")
"""The workloads in which they are."""

PEERS: tuple[str, ...] = ("dbos", "dbos_postgres", "langgraph", "restate", "absurd", "temporal", "prefect")
"""Files in bench/peers, measured unless `--peers` says otherwise."""
