"""Secrets that came with the request: members of `workload` that secret fields of the keychain read (PBK-185).

The run is recorded with what it was given, since it needs it; whatever is shown of the run does not have it.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Any

from perdure.dialects.playbook.plan.program import SCOPES, Declared, Program
from perdure.dialects.playbook.plan.workload import literals, overlaid
from perdure.expressions.jinja import Reads, Template
from perdure.kernel.credentials import PUBLIC, secret_texts

NAMING = frozenset({"secret_manager", "credential_ref"})
"""Kinds whose fields name secrets, and are none."""

_NAMES = PUBLIC | frozenset(
    {
        *("ref", "credential", "credential_ref", "auth", "token_field", "ttl_field", "method", "param"),
        *("client_id", "grant_type", "audience", "content-type", "accept"),
    }
)


def has_secret_inputs(program: Program, options: Mapping[str, Any]) -> bool:
    return bool(program.keychain) or "shared" in options


def secret_inputs(program: Program, given: Any, options: Mapping[str, Any]) -> Iterator[str]:
    """`given`: what the run was given, or the part of its workload that goes with a task."""
    if options.get("lent") and isinstance(given, dict):
        given = given.get("workload")
    yield from _in_workload(program, overlaid(literals(program.workload.document), given or {}))
    for shared in (options.get("shared") or {}).values():
        yield from secret_texts(shared.get("workload"))


def _in_workload(program: Program, workload: Any) -> Iterator[str]:
    reads = reduce(or_, (_secret_reads(declared) for declared in program.keychain.values()), Reads())
    members = reads.members.get("workload", frozenset())
    bare = reads.names - SCOPES if program.is_io else frozenset[str]()
    if not isinstance(workload, dict):
        return
    for name in workload if members is None else members | bare:
        yield from secret_texts(workload.get(name))


def _secret_reads(declared: Declared) -> Reads:
    if declared.kind in NAMING:
        return Reads()
    names = _NAMES if declared.kind == "api_key" else _NAMES | {"key"}
    return reduce(or_, (Template(text).reads for text in secret_texts(declared.fields.document, names)), Reads())
