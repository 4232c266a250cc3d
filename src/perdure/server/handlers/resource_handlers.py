"""The catalog: resources are listed, read, written and removed, documents checked and applied, Impulses sent events."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from perdure.engine.decision_threads import done_aside
from perdure.engine.resources.catalog import ResourceNotFound, key_of
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.problems import Severity
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Caller, Result
from perdure.server.problems import problem_json
from perdure.server.request_reading import read_json_text
from perdure.views.administration.access_tokens import AccessRole, check_namespace
from perdure.views.api_errors import UnsupportedMediaType
from perdure.views.drawing.markup import graph_json
from perdure.views.errors import BadRequest
from perdure.views.resources.document_check import CheckedDocument, validate
from perdure.views.resources.resource_changes import (
    apply_documents,
    check_place,
    declared_entries,
    delete_resource,
    entry_tag,
    matched_version,
    put_resource,
    read_resource,
    resource_page,
)
from perdure.views.resources.resource_list import change_json, kind_json
from perdure.views.resources.soundness_findings import with_findings
from perdure.views.runs.run_pages import read_label
from perdure.views.times import iso

UNKNOWN = "the request has neither an access token nor a signature that this Impulse accepts"


def _kind(call: ApiCall) -> ResourceKind:
    return call.engine.catalog.kind(call.path["kind"])


def _place(call: ApiCall, kind: ResourceKind) -> str:
    """The namespace of the path, which the caller may see."""
    namespace = check_place(kind, call.path["namespace"])
    if kind.has_namespace:
        check_namespace(namespace)
        call.caller.need_namespace(namespace)
    return namespace


def check_path(call: ApiCall) -> None:
    """A namespace in the path that the caller may not see is not there, whatever the caller's role."""
    _place(call, _kind(call))


async def list_kinds(call: ApiCall) -> Result:
    return Answer({"items": [kind_json(kind) for kind in call.engine.catalog.kinds]})


async def list_resources_of_kind(call: ApiCall) -> Result:
    return await _list(call, None)


async def list_resources_in_namespace(call: ApiCall) -> Result:
    kind = _kind(call)
    return await _list(call, _place(call, kind) if kind.has_namespace else None)


async def _list(call: ApiCall, namespace: str | None) -> Result:
    query: m.ResourcePageQuery = call.query
    items, behind = await resource_page(
        call.engine,
        _kind(call),
        namespace,
        dict(map(read_label, query.label)),
        call.caller.sees,
        limit=query.limit,
        cursor=query.cursor,
    )
    return Answer({"items": items} | ({"next": behind} if behind else {}))


async def get_resource(call: ApiCall) -> Result:
    kind = _kind(call)
    resource, version = await read_resource(call.engine, kind, _place(call, kind), call.path["name"])
    return Answer(resource, 200, {} if version is None else {"ETag": entry_tag(version)})


async def list_versions(call: ApiCall) -> Result:
    """What an entry said in each of its generations, the latest first; without what it said."""
    key = await _versioned(call)
    items = [
        {"version": edition.generation, "created_at": iso(edition.created_at), "bytes": edition.size}
        for edition in await call.engine.store.list_editions(key.kind, key.namespace, key.name)
    ]
    return Answer({"items": items[::-1]})


async def get_resource_version(call: ApiCall) -> Result:
    number = call.path["version"]
    key = await _versioned(call)
    is_number = number.isascii() and number.isdecimal() and len(number) < 10 and str(int(number)) == number
    edition = await call.engine.store.edition(key, int(number)) if is_number else None
    if edition is None:
        raise ResourceNotFound(f"{call.path['name']!r} has no version {number[:20]!r}")
    source = edition.source.decode() if edition.source else None
    answer = {"version": edition.generation, "created_at": iso(edition.created_at), "source": source}
    body = await done_aside(len(edition.body), partial(jsontext.decode, edition.body))
    return Answer(answer | {"document": body})


async def _versioned(call: ApiCall) -> ResourceKey:
    """The entry of the path, which is there."""
    kind = _kind(call)
    if kind.of_runs:
        raise ResourceNotFound(f"a {kind.name} is a run, and has no versions", hint="Look at its events.")
    return (await call.engine.catalog.row(kind, call.path["name"], _place(call, kind))).key


async def put_one_resource(call: ApiCall) -> Result:
    kind = _kind(call)
    namespace = _place(call, kind)
    if not kind.has_namespace:
        call.caller.need_all_namespaces()
    if kind.of_runs:
        raise BadRequest(f"a {kind.name} is a run, and is not written here", hint="Start a run: POST /api/v1/runs.")
    key = key_of(kind, call.path["name"], namespace)
    call.audit(f"{kind.title(key.name)}", namespace=namespace)
    is_new = call.headers.get("if-none-match") == "*"
    version = 0 if is_new else await _matched_version(call, kind, namespace)
    changes, _ = await put_resource(
        call.documents, key, await m.text_of(call.body), version, namespace=namespace or "default"
    )
    resource, version = await read_resource(call.engine, kind, namespace, key.name)
    status = 201 if changes[0].outcome.value == "created" else 200
    return Answer(resource, status, {} if version is None else {"ETag": entry_tag(version)})


async def _matched_version(call: ApiCall, kind: ResourceKind, namespace: str) -> int | None:
    return await matched_version(call.engine, kind, namespace, call.path["name"], call.headers.get("if-match"))


async def delete_one_resource(call: ApiCall) -> Result:
    kind = _kind(call)
    namespace = _place(call, kind)
    if not kind.has_namespace:
        call.caller.need_all_namespaces()
    call.audit(kind.title(call.path["name"]), namespace=namespace)
    version = await _matched_version(call, kind, namespace)
    deleted = await delete_resource(call.engine, kind, namespace, call.path["name"], version)
    return Answer({"deleted": [kind.title(key.name) for key in deleted.keys]}, 202 if deleted.waiting else 200)


async def apply_resources(call: ApiCall) -> Result:
    body: m.ApplyBody = call.body
    texts = await m.applied_texts(body.documents, body.files, body.labels)
    namespace = call.caller.meant_namespace(body.namespace)
    await call.check_documents(texts)
    entries = await declared_entries(call.documents.catalog, texts, namespace)
    for entry in entries:
        if entry.kind.has_namespace:
            call.caller.need_namespace(entry.key.namespace)
    if any(not entry.kind.has_namespace for entry in entries):
        call.caller.need_all_namespaces()
    call.audit(", ".join(entry.kind.title(entry.key.name) for entry in entries[:10]), namespace=namespace)
    changes, findings = await apply_documents(call.documents, texts, namespace, dry_run=body.dry_run)
    return Answer(
        {
            "changes": [change_json(change) for change in changes],
            "warnings": [finding.plain() for finding in findings],
        }
    )


async def check_document(call: ApiCall) -> Result:
    body: m.CheckBody = call.body
    applied = await m.applied_texts(body.apply)
    text = await m.text_of(body.document)
    namespace = call.caller.place_of_documents(call.caller.meant_namespace(body.namespace))
    await call.check_documents([*applied, AppliedDocument("document", text.decode())])
    checked = await validate("document", text, call.documents.validator, applied, chosen=body.name, namespace=namespace)
    return Answer(await checked_json(checked))


async def checked_json(document: CheckedDocument) -> dict[str, Any]:
    """What is wrong with a document, what goes wrong in its runs, and its graph."""
    checked = await with_findings(document)
    plain = checked.plain()
    return {
        "language": None if checked.language is None else checked.language.name,
        "valid": not checked.errors,
        "problems": _of(plain, Severity.ERROR),
        "warnings": _of(plain, Severity.WARNING),
        "findings": checked.plain_findings(),
        "graph": await _graph(checked),
    }


async def _graph(checked: CheckedDocument) -> Any:
    """Of a document that could be run."""
    language, program = checked.language, checked.program
    if checked.errors or language is None or program is None or not language.draws_graphs:
        return None
    return await done_aside(len(checked.text), lambda: graph_json(language.graph(program)))


def _of(problems: list[dict[str, Any]], severity: Severity) -> list[Mapping[str, Any]]:
    return [problem for problem in problems if problem["severity"] == severity.value]


def check_event_path(call: ApiCall) -> None:
    """An Impulse that the caller may not see is not there, whatever the caller's role."""
    if not call.caller.sees(call.path["namespace"]):
        raise ResourceNotFound(f"there is no Impulse {call.path['name']!r} in namespace {call.path['namespace']!r}")


async def receive_event(call: ApiCall) -> Result:
    """202 with the StoryTrigger, 200 if the event was received before; a batch is answered item by item."""
    namespace, name = call.path["namespace"], call.path["name"]
    delivery_id = await _check_sender(call, namespace, name)
    call.audit(f"impulse/{name}", namespace=namespace)
    media_type = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    received = call.engine.impulse_events()
    if "ce-specversion" not in call.headers and call.raw_body.strip() and not received.is_readable(media_type):
        raise UnsupportedMediaType(f"an event is JSON or a CloudEvent, not {media_type or 'without a media type'!r}")
    reading = partial(received.read, call.headers, call.raw_body, read_json_text)
    events, is_batch = await done_aside(len(call.raw_body), reading)
    if not is_batch:
        (event,) = events
        return await _deliver(call, namespace, name, event.event, event.token or delivery_id or call.key)
    items = []
    for event in events:
        try:
            answer = await _deliver(call, namespace, name, event.event, event.token)
            items.append({"status": answer.status, "trigger": answer.body})
        except PerdureError as error:
            status, _, body = problem_json(error, call.request_id)
            items.append({"status": status, "problem": jsontext.decode(body)})
    return Answer({"items": items}, 200)


async def _check_sender(call: ApiCall, namespace: str, name: str) -> str | None:
    """The sender's own id of the delivery. Who has no token is told nothing about what exists."""
    refuse = call.server.authentication.refuse
    is_signed_only = call.caller.via == "signature"
    try:
        signature = await call.engine.impulse_events().check_signature(name, namespace, call.headers, call.raw_body)
    except ResourceNotFound:
        if is_signed_only:
            refuse(call.source, UNKNOWN)
        raise
    if signature.is_wrong or (is_signed_only and not signature.is_given):
        refuse(call.source, UNKNOWN)
    if is_signed_only:
        call.caller = Caller(f"impulse:{namespace}/{name}", AccessRole.OPERATOR, via="impulse")
    return signature.delivery_id


async def _deliver(call: ApiCall, namespace: str, name: str, event: Any, token: str | None) -> Answer:
    trigger, is_new = await call.engine.impulse_events().receive(name, event, token, namespace)
    return Answer(trigger, 202 if is_new else 200)
