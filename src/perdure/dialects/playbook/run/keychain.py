"""The keychain of one execution: its entries, where each lives, and what is needed to resolve one (PBK-182, 201).

Entries of `shared` scope pass from a playbook to those it calls. They stay what their declaration made them: they are
resolved by the document that declares them, with the values of the execution that declared them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.dialects.playbook.plan.program import SCOPES, KeychainEntry, Program
from perdure.dialects.playbook.plan.workload import merge_workload
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.task_errors import template_message
from perdure.expressions.jinja import Template, TemplateError, TemplateReads, all_reads
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload
from perdure.kernel.secrets.sealed_arguments import (
    CredentialLookup,
    EntryFields,
    EnvelopeError,
    PinnedDocumentLookup,
    Secret,
    SecretEntry,
    SecretLookup,
    SecretRequests,
)
from perdure.kernel.turn import Turn

AUTH_UNKNOWN = "AUTH_UNKNOWN"
NAMED_BY_DATA = "SECRET_NAMED_BY_DATA"


# In the decision: what goes with a task.


def envelope_keychain(
    turn: Turn, names: frozenset[str] | None, *, by_name: bool = False, workload: Payload | None = None
) -> dict[str, Any]:
    """What a worker needs for the keychain: the document and the values that entries read, never a secret.

    `names`: the entries that are read, None for all; `by_name`: any entry may be asked for by its name.
    """
    options = jsontext.decode(turn.state.options)
    program: Program = turn.program
    envelope: dict[str, Any] = {"program": turn.state.program.hex(), "root": options.get("root", turn.execution.id)}
    own_names = None if by_name else names
    if program.keychain and own_names != frozenset():
        envelope |= _own_envelope(turn, program, own_names, workload)
    if "shared" in options and own_names != frozenset():
        envelope["shared"] = options["shared"]
    return envelope


def _own_envelope(
    turn: Turn, program: Program, names: frozenset[str] | None, workload: Payload | None = None
) -> dict[str, Any]:
    body: b.Body = turn.body
    reads = all_reads([program.keychain[name].fields.reads for name in _with_earlier(program.keychain, names)])
    payload = body.workload.payload if workload is None else workload
    envelope: dict[str, Any] = {"dues": dict(body.dues)} if body.dues else {}
    bare = _bare_names(program, reads)
    if "workload" in reads.members or bare:
        value, members = jsontext.decode(turn.text(payload)), reads.members.get("workload", frozenset())
        members_sent = value if members is None else members | bare
        envelope["workload"] = {name: value[name] for name in members_sent if name in value}
    return envelope


def _bare_names(program: Program, reads: TemplateReads) -> frozenset[str]:
    """Names that entries read without a scope: in profile "io" they are the workload's (PBK-158)."""
    return reads.names - SCOPES if program.is_io else frozenset()


def _with_earlier(keychain: Mapping[str, KeychainEntry], names: frozenset[str] | None) -> list[str]:
    """The named entries and those they depend on, in order."""
    if names is None:
        return list(keychain)
    needed = set(names)
    for name in reversed(list(keychain)):
        if name in needed:
            members = keychain[name].fields.reads.members.get("keychain", frozenset())
            needed |= set(keychain) if members is None else members
            needed |= {str(keychain[name].fields.document.get("auth", ""))}  # type: ignore[union-attr]
    return [name for name in keychain if name in needed]


def child_keychain(turn: Turn) -> dict[str, Any]:
    """What a child receives of the keychain: its root, and where its callers declare the shared entries."""
    options = jsontext.decode(turn.state.options)
    program: Program = turn.program
    root = options.get("root", turn.execution.id)
    shared = dict(options.get("shared", {}))
    names = frozenset(entry.name for entry in program.keychain.values() if entry.scope == "shared")
    if names:
        declared = {"program": turn.state.program.hex(), "run": turn.execution.id, "root": root}
        declared |= _own_envelope(turn, program, names)
        shared |= dict.fromkeys(sorted(names), declared)
    return {"root": root, **({"shared": shared} if shared else {})}


# At the worker.


class ExecutionKeychain(msgspec.Struct, frozen=True):
    """The keychain of one execution, as a worker reads it."""

    program: Program
    digest: str
    run: str
    root: str
    load: Callable[[bytes], Program]  # of a document that a caller has pinned
    workload: Any = None
    dues: Mapping[str, Instant] = msgspec.field(default_factory=dict)
    shared: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def of(
        cls, program: Program, body: Mapping[str, Any], run: str, load: Callable[[bytes], Program]
    ) -> "ExecutionKeychain":
        return cls(
            program,
            body["program"],
            run,
            body["root"],
            load,
            body.get("workload"),
            body.get("dues", {}),
            body.get("shared", {}),
        )

    @property
    def names(self) -> list[str]:
        return [*self.program.keychain, *(name for name in self.shared if name not in self.program.keychain)]

    def find(self, name: str) -> SecretRequests[Secret | None]:
        """The entry's value; one of its own, or one that a caller shares; None when there is no such entry."""
        if name in self.program.keychain:
            secret: Secret = yield SecretLookup(self.entry(self.program.keychain[name]))
            return secret
        if name not in self.shared:
            return None
        lender = self.shared[name]
        program = self.load((yield PinnedDocumentLookup(lender["program"])))
        secret = yield from ExecutionKeychain.of(program, lender, lender["run"], self.load)._must(name)
        return secret

    def _must(self, name: str) -> SecretRequests[Secret]:
        secret: Secret = yield SecretLookup(self.entry(self.program.keychain[name]))
        return secret

    def credential(self, name: str) -> SecretRequests[Secret]:
        """What `auth: name` means: an entry first, then a credential that is stored on the host (PBK-186)."""
        secret = yield from self.find(name)
        if secret is None:
            secret = yield CredentialLookup(name)
        if secret is None:
            hint = f"declare it in the keychain, or store it as PERDURE_CREDENTIAL_{name}"
            raise EnvelopeError("auth", f"there is no credential {name!r}; {hint}", AUTH_UNKNOWN)
        return secret

    def entry(self, declared: KeychainEntry) -> SecretEntry:
        return SecretEntry(
            declared.name,
            declared.kind,
            self._key(declared),
            declared.lifetime,
            declared.renews,
            lambda: self._fields(declared),
            self.dues.get(declared.name),
        )

    def _key(self, declared: KeychainEntry) -> str:
        catalog = f"{self.program.path}@{self.digest[:16]}"
        place = {"local": self.run, "global": "global", "shared": f"shared:{self.root}"}[declared.scope]
        return f"{declared.name}:{catalog}:{place}"

    def _fields(self, declared: KeychainEntry) -> SecretRequests[EntryFields]:
        """The declared fields, rendered with earlier entries; `auth` is replaced by the credential it names."""
        template = declared.fields
        workload = self.workload or {}
        scope: dict[str, Any] = {
            name: workload[name] for name in _bare_names(self.program, template.reads) if name in workload
        }
        scope |= {"workload": workload, "execution_id": self.run}
        if "keychain" in template.reads.members:
            earlier = list(self.program.keychain)[: list(self.program.keychain).index(declared.name)]
            members = template.reads.members["keychain"]
            scope["keychain"] = {}
            for name in earlier if members is None else [name for name in earlier if name in members]:
                scope["keychain"][name] = (yield from self._must(name)).value
        values = rendered(declared.name, template, scope)
        check_names(self.program, declared.name, declared.kind, template.document, values)
        if isinstance(values.get("auth"), str):
            credential = yield from self.credential(values["auth"])
            values = {**values, "auth": as_map(credential)}
        return EntryFields(values)


_WHEREABOUTS = ("project", "vault", "version", "endpoint")
"""With the name they make the address that a manager is asked at: one of them could hold the name of another secret."""


def naming_fields(kind: str) -> tuple[str, ...]:
    """The fields of an entry, or of a task that reads secrets, that name a stored secret."""
    match kind:
        case "secret_manager":
            return ("auth", "map", *_WHEREABOUTS)
        case "secrets":
            return ("auth", "map", "name", "key", "secret_name", "path", *_WHEREABOUTS)
        case "api_key":  # its `key` is the key itself
            return ("auth", "ref", "credential", "credential_ref")
    return ("auth", "ref", "credential", "credential_ref", "key")


def check_names(program: Program, subject: str, kind: str, document: Any, values: Mapping[str, Any]) -> None:
    for field in naming_fields(kind):
        if isinstance(values.get(field), str) or field == "map":  # a credential itself is a map
            check_name(program, f"{subject}.{field}", document.get(field), values.get(field))


def check_name(program: Program, subject: str, document: Any, value: Any) -> None:
    """Data must not choose a secret: a rendered name is accepted only if the document contains or defaults to it."""
    names = {name for name in _texts(value) if name not in program.literal_texts}
    if names and names - set(_texts(_default_value(program, Template(document)))):
        message = f"{subject}: data cannot choose a secret or credential; write {min(names)!r} into the document"
        raise EnvelopeError("auth", message, NAMED_BY_DATA)


def _default_value(program: Program, template: Template) -> Any:
    """The result of the template with the document's own defaults, without any input."""
    try:
        workload = merge_workload(program.workload, {}, "", is_io=program.is_io)
        return template.render({**(workload if program.is_io else {}), "workload": workload})
    except TemplateError:
        return None


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)


def as_map(secret: Secret) -> Any:
    """A credential that includes its type, for code that must distinguish kinds."""
    return {"type": secret.kind, **secret.value} if isinstance(secret.value, dict) else secret.value


def rendered(subject: str, template: Template, scope: Mapping[str, Any]) -> Any:
    try:
        return template.render(scope)
    except TemplateError as fault:
        raise EnvelopeError("template", f"{subject}: {template_message(fault)}") from None
