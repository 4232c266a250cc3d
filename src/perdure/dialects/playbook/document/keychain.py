"""The keychain of a document: what may be declared, in which order, and what should not be in it (section 13)."""

from collections.abc import Sequence
from typing import Any

from perdure.dialects.playbook.document import texts
from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.plan.keychain_declarations import (
    COMMON,
    KINDS,
    LIFETIMES,
    MANAGERS,
    OLD_SCOPES,
    SECRET_FIELDS,
)
from perdure.expressions.jinja import Template, has_template

READABLE = frozenset({"workload", "execution_id", "keychain"})


def entry_names(keychain: Any) -> frozenset[str]:
    """The names of the entries, whether or not the entries are valid."""
    listed = keychain if isinstance(keychain, list) else ()
    return frozenset(
        entry["name"] for entry in listed if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    )


def check_keychain(cursor: Cursor) -> None:
    if not cursor.has("a list", "PBK-010", "Write keychain: [{name: api, kind: bearer, …}]."):
        return
    names: list[str] = []
    for item in cursor.items():
        if item.has("a map", "PBK-010"):
            _entry(item, names)
            if isinstance(item.value.get("name"), str):
                names.append(item.value["name"])


def _entry(cursor: Cursor, names_before: Sequence[str]) -> None:
    entry = cursor.value
    name = entry.get("name")
    if "name" not in entry:
        cursor.problem("PBK-010", "a keychain entry lacks 'name'")
    elif not (isinstance(name, str) and name.isidentifier()):
        cursor.at("name").problem("PBK-010", f"'name' must be a name like api_token, not {name!r}")
    elif name in names_before:
        cursor.at("name").problem("PBK-010", f"there are two keychain entries named {name!r}")
    if "kind" not in entry:
        cursor.problem("PBK-010", "a keychain entry lacks 'kind'", hint=f"One of: {', '.join(KINDS)}.")
    elif cursor.at("kind").is_one_of(tuple(KINDS), "PBK-181"):
        _of_kind(cursor, entry["kind"])
    if "scope" in entry:
        _scope(cursor.at("scope"))
    if "ttl_seconds" in entry:
        ttl = cursor.at("ttl_seconds")
        if ttl.has("a number", "PBK-181") and ttl.value <= 0:
            ttl.problem("PBK-181", "'ttl_seconds' must be more than 0")
    if "auto_renew" in entry:
        cursor.at("auto_renew").has("true or false", "PBK-181")
    if "auth" in entry:
        cursor.at("auth").is_text("PBK-181")
    for field in entry:
        if field not in ("name", "kind", "scope", "ttl_seconds", "auto_renew"):
            _field(cursor.at(field), field, names_before)


def _scope(cursor: Cursor) -> None:
    meant = OLD_SCOPES.get(cursor.value) if isinstance(cursor.value, str) else None
    if meant is not None:
        hint = f"Write `{meant}` instead."
        cursor.problem("PBK-182", f"the scope {cursor.value!r} was renamed", hint=hint)
    else:
        cursor.is_one_of(tuple(LIFETIMES), "PBK-182")


def _of_kind(cursor: Cursor, kind: str) -> None:
    entry = cursor.value
    for name in entry:
        if name not in COMMON and name not in KINDS[kind]:
            at = cursor.at(name)
            at.warn("PBK-181", f"a {kind} entry has no field {name!r}", hint=f"Allowed are: {', '.join(KINDS[kind])}.")
    if kind in ("oauth2", "http") and not entry.get("endpoint") and not entry.get("url"):
        cursor.problem("PBK-181", f"a {kind} entry needs 'endpoint', the address to ask")
    if kind == "secret_manager":
        if "provider" in entry and not (isinstance(entry["provider"], str) and has_template(entry["provider"])):
            cursor.at("provider").is_one_of(MANAGERS, "PBK-181")
        if "map" in entry:
            cursor.at("map").has("a map", "PBK-181", "Write map: {member: name of the secret}.")
    for name in SECRET_FIELDS:
        if isinstance(entry.get(name), str) and entry[name] and not has_template(entry[name]):
            message = f"the secret {name!r} is written in the document, which is stored unencrypted"
            hint = "Declare a secret_manager entry before it, and write {{ keychain.<name>.<member> }}."
            cursor.at(name).warn("PBK-185", message, hint=hint)


def _field(cursor: Cursor, name: str, names_before: Sequence[str]) -> None:
    texts.check_data(cursor, READABLE)
    reads = Template(cursor.value).reads.members
    if "keychain" in reads:
        for other in sorted((reads["keychain"] or frozenset()) - set(names_before)):
            message = f"keychain.{other} is not declared before this entry"
            cursor.problem("PBK-180", message, hint="Entries are resolved in order; one may use those above it.")
    if "workload" in reads and name in SECRET_FIELDS:
        message = "the input of a run is recorded, and so would this secret be"
        cursor.warn("PBK-185", message, hint="Let a secret_manager entry read it from the host.")
