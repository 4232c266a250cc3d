"""Opens an envelope at the worker.

Secrets are looked up, the remaining fields are rendered, and the tool turns them into its provider's arguments, by the
same code as for tasks without secrets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document.reader import ToolCatalog, load
from perdure.dialects.playbook.plan.keychain_declarations import secret_inputs
from perdure.dialects.playbook.plan.program import SCOPES, Program, Task
from perdure.dialects.playbook.run.keychain import ExecutionKeychain, as_map, check_name, check_names, rendered
from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.values.template_scopes import Makers
from perdure.expressions.jinja import TemplateReads, all_reads
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload, RunId
from perdure.kernel.secrets.sealed_arguments import (
    REDACTED,
    EntryFields,
    EnvelopeError,
    HideTexts,
    PinnedDocumentLookup,
    Secret,
    SecretEntry,
    SecretLookup,
    SecretRequests,
)

Body = Mapping[str, Any]

SECRET_LIFETIME = 3600.0  # what a secrets task has read, in memory; later it is read again


@lru_cache(maxsize=32)
def program_of(document: bytes) -> Program:
    """The program as far as a worker needs it: it does not matter which providers exist."""
    return load(document, ToolCatalog(lambda name: True, tuple))


def open_envelope(body: Body, run: RunId) -> SecretRequests[dict[str, Any]]:
    program = program_of((yield PinnedDocumentLookup(body["program"])))
    yield HideTexts(tuple(secret_inputs(program, body.get("workload"), body)))
    opened = _OpenedEnvelope(program, body, run)
    if "resolve" in body:
        return (yield from _resolve_all(opened.chain))
    if tools.kind_of(opened.task.kind).is_sensitive:
        yield from opened.secret()  # it must exist; its value is not reported
        return {"value": REDACTED}
    return (yield from opened.arguments())


def _resolve_all(chain: ExecutionKeychain) -> SecretRequests[dict[str, Any]]:
    """Every entry, in order (PBK-180). Names and expiry times are reported, values are not."""
    entries = []
    for name, declared in chain.program.keychain.items():
        secret = yield from chain.find(name)
        assert secret is not None
        entries.append({"name": name, "kind": declared.kind, "scope": declared.scope, "due": secret.due})
    return {"value": entries}


class _OpenedEnvelope:
    def __init__(self, program: Program, body: Body, run: RunId) -> None:
        self.program = program
        self.body = body
        self.run = run
        self.chain = ExecutionKeychain.of(program, body, run, program_of)

    @property
    def task(self) -> Task:
        return self.program.steps[self.body["step"]].task_at(self.body["task"])

    def arguments(self) -> SecretRequests[dict[str, Any]]:
        task = self.task
        kind = tools.kind_of(task.kind)
        fields, scope = yield from self._fields(task)
        if isinstance(fields.get("auth"), str):
            check_name(self.program, f"{task.label}.auth", task.fields["auth"].document, fields["auth"])
            credential = yield from self.chain.credential(fields["auth"])
            fields["auth"] = kind.credential(credential.kind, credential.value)
            if fields["auth"] is None:
                raise EnvelopeError(
                    "auth", f"the credential of kind {credential.kind!r} cannot be used by a {task.kind} task"
                )
        makers: Makers = {name: _always(value) for name, value in scope.items()}
        call = _DryRunCall(task, fields, makers, self.body.get("folder"))
        kind.start(call)
        return call.arguments

    def secret(self) -> SecretRequests[Secret]:
        """What a secrets task reads: cached in memory by its site, read again if it is not there."""
        task = self.task

        def fields() -> SecretRequests[EntryFields]:
            values, _ = yield from self._fields(task)
            document = {name: template.document for name, template in task.fields.items()}
            check_names(self.program, task.label, "secrets", document, values)
            if isinstance(values.get("auth"), str):
                secret = yield from self.chain.credential(values["auth"])
                values["auth"] = as_map(secret)
            return EntryFields(values)

        key = f"secrets:{self.run}:{self.body['path']}"
        secret: Secret = yield SecretLookup(SecretEntry(task.label, "secrets", key, SECRET_LIFETIME, True, fields))
        return secret

    def _fields(self, task: Task) -> SecretRequests[tuple[dict[str, Any], dict[str, Any]]]:
        """All fields with their values, and the scopes they came from."""
        rendered_fields: Mapping[str, Any] = self.body["fields"]
        left_templates = {name: template for name, template in task.fields.items() if name not in rendered_fields}
        reads = all_reads([template.reads for template in left_templates.values()])
        scope = yield from self._scope(reads)
        fields = {**task.fixed, **rendered_fields}
        for name in sorted(left_templates, key=lambda name: name != "args"):
            fields[name] = rendered(name, left_templates[name], scope)
            if name == "args" and self.program.is_io and isinstance(fields[name], dict):
                scope |= {arg: value for arg, value in fields[name].items() if arg not in SCOPES}
        return fields, scope

    def _scope(self, reads: TemplateReads) -> SecretRequests[dict[str, Any]]:
        scope = dict(self.body["scopes"])
        secrets = self.body["secrets"]
        if "prev" in secrets:
            scope["_prev"] = (yield from self._earlier(secrets["prev"])).value
        if "results" in secrets:
            scope["results"] = dict(scope.get("results", {}))
            for label, recipe in secrets["results"].items():
                scope["results"][label] = (yield from self._earlier(recipe)).value
        if "keychain" in reads.members:
            members = reads.members["keychain"]
            scope["keychain"] = {}
            for name in self.chain.names if members is None else sorted(members):
                secret = yield from self.chain.find(name)
                if secret is not None:
                    scope["keychain"][name] = secret.value
        return scope

    def _earlier(self, recipe: Body) -> SecretRequests[Secret]:
        return _OpenedEnvelope(self.program, recipe, self.run).secret()


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


@dataclass(slots=True, eq=False, init=False)
class _DryRunCall(tools.ToolCall):
    """A call that records what its tool would do."""

    arguments: dict[str, Any]
    origin: str | None

    def __init__(self, task: Task, fields: dict[str, Any], makers: Makers, origin: str | None) -> None:
        self.task, self.fields, self.makers, self.origin = task, fields, makers, origin
        self.arguments = {}

    @property
    def folder(self) -> str | None:
        return self.origin

    def perform(self, provider: str, arguments: Mapping[str, Any], *, timeout: float | None = None) -> None:
        self.arguments.update(arguments)

    def succeed(self, result: Payload) -> None:
        assert isinstance(result, bytes)
        self.arguments["value"] = jsontext.decode(result)

    def fail(self, problem: Error) -> None:
        code = None if problem.code is None else str(problem.code)
        raise EnvelopeError(problem.kind, problem.message, code, problem.retryable)
