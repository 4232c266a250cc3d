"""Where secrets may not go, as far as the document shows it (PBK-155, 184, 186)."""

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document.cursor import Cursor
from perdure.expressions.jinja import Guard, Template, TemplateError, TemplateReads, has_template
from perdure.kernel.documents.problems import guess

HINT = "Use it in the fields of a later task of this step."


def check_field(cursor: Cursor, kind: str, declared: frozenset[str]) -> None:
    """A field of a task: whether the secrets it names exist, and whether it may contain one."""
    reads = Template(cursor.value).reads.members
    if "keychain" in reads:
        if tools.kind_of(kind).provider is None and kind in tools.KINDS:
            message = f"a secret may not be passed to a {kind} task: its input is recorded"
            cursor.problem(
                "PBK-155", message, hint="A child declares its own keychain; `scope: shared` lends it an entry."
            )
        for name in sorted((reads["keychain"] or frozenset()) - declared):
            message = f"the keychain has no entry {name!r}{guess(name, tuple(declared))}"
            cursor.warn("PBK-184", message, hint="Only a playbook that calls this one could share it.")
    name = cursor.value
    if cursor.path[-1:] != ("auth",) or not isinstance(name, str):
        return
    if has_template(name):
        if reads.keys() - {"workload", "keychain"}:
            message = "data cannot choose a credential: its name must be in this document"
            cursor.warn("PBK-186", message, hint="List the credentials that are meant in the keychain.")
    elif name not in declared:
        message = f"{name!r} is not in the keychain{guess(name, tuple(declared))}"
        cursor.warn("PBK-186", message, hint=f"Then it must be a stored credential: PERDURE_CREDENTIAL_{name}.")


def check_rules(tasks: Sequence[Cursor], labels: Sequence[str]) -> None:
    """Rules of a pipeline in which a task reads a secret: what they read and set is recorded."""
    secret = {label for cursor, label in zip(tasks, labels, strict=True) if _is_secret(cursor)}
    if not secret:
        return
    for index, cursor in enumerate(tasks):
        after = index > 0 and _is_secret(tasks[index - 1])
        for place, value, is_guard in _templates(cursor):
            _check_rule(place, _reads(value, is_guard), secret, is_own=_is_secret(cursor), is_after=after)


def _is_secret(cursor: Cursor) -> bool:
    kind = cursor.value.get("kind") if isinstance(cursor.value, dict) else None
    return isinstance(kind, str) and tools.kind_of(kind).is_sensitive


def _check_rule(cursor: Cursor, reads: TemplateReads, secret: set[str], *, is_own: bool, is_after: bool) -> None:
    members = reads.members
    named = [f"results.{label}" for label in sorted(secret) if label in (members.get("results") or ())]
    for scope, member in (("outcome", "result"), ("output", "data"), ("output", "ref")):
        if is_own and member in (members.get(scope) or ()):
            named.append(f"{scope}.{member}")
    if is_after and "_prev" in members:
        named.append("_prev")
    for name in named:
        cursor.problem("PBK-155", f"{name} is a secret: rules cannot read it, and it may not be kept", hint=HINT)


def _reads(value: Any, is_guard: bool) -> TemplateReads:
    if not is_guard:
        return Template(value).reads
    try:
        return Guard(value).reads if isinstance(value, str | bool) else TemplateReads()
    except TemplateError:
        return TemplateReads()  # reported where guards are checked


def _templates(cursor: Cursor) -> Iterator[tuple[Cursor, Any, bool]]:
    """Guards, delays and assignments of a task's rules, as far as they are well-formed."""
    match cursor.value:
        case {"spec": {"policy": {"rules": list(listed)}}}:
            pass
        case _:
            return
    at = cursor.at("spec").at("policy").at("rules")
    for index, rule in enumerate(listed):
        match rule:
            case {"when": when}:
                yield at.at(index).at("when"), when, True
        match rule:
            case {"then": dict()}:
                then = at.at(index).at("then")
            case {"else": {"then": dict()}}:
                then = at.at(index).at("else").at("then")
            case _:
                continue
        for name in ("delay", "set_ctx", "set_iter", "set"):
            if name in then.value:
                yield then.at(name), then.value[name], False
