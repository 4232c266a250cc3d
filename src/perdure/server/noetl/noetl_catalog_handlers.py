"""Playbooks and credentials as NoETL's clients register and read them, and what their start page shows."""

from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.engine.decision_threads import SMALL, WORK_OF_TEXT, done_aside
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import Outcome
from perdure.engine.resources.resource_views import all_runs
from perdure.engine.secrets.kept_credentials import CredentialFacts, KeptCredentials
from perdure.kernel.documents.problems import Severity
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import PerdureError, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Status
from perdure.server.calls import Answer, ApiCall, Result
from perdure.server.noetl import noetl_types as t
from perdure.server.noetl.noetl_answers import (
    ExecutionView,
    Plain,
    entry_json,
    execution_json,
    registered_json,
    ui_schema,
)
from perdure.server.noetl.noetl_catalog import (
    KIND,
    LANGUAGE,
    PlaybookVersion,
    RunVersions,
    find_by_id,
    find_version,
    home_of,
    list_versions,
    read_content,
    read_version,
    with_documents,
)
from perdure.server.problems import as_policy_refusal
from perdure.stores.protocol import RunFilter
from perdure.views.administration.worker_pools import list_pools
from perdure.views.api_errors import AccessDenied, NotOffered
from perdure.views.resources.credential_list import credential_entry_json, credential_json
from perdure.views.resources.document_check import validate

if TYPE_CHECKING:
    from perdure.server.route_table import Handler

LARGEST_CREDENTIAL = 256 << 10  # bytes: servers look at all of them again and again
GENERIC = "generic"  # the type of a credential that has none
RECENT = 10  # executions on the start page
MOST_COUNTED = 10_000  # executions whose statuses are counted
WORK_OF_ENTRY = 64  # of a list, in bytes of documents


async def register_playbook(call: ApiCall) -> Result:
    return Answer(await _register(call, call.body))


async def register_playbooks(call: ApiCall) -> Result:
    """Each by itself: their command line sends every file of a folder, whatever it is."""
    body: t.RegisterBatchBody = call.body
    results: list[Plain] = []
    for index, item in enumerate(body.items):
        try:
            done = await _register(call, item)
            shown = {"status": "registered", "path": done["path"], "version": done["version"], "error": None}
        except PerdureError as refusal:
            shown = {"status": "failed", "path": None, "version": None, "error": str(as_policy_refusal(refusal))}
        results.append({"index": index, **shown})
    failed = sum(result["status"] == "failed" for result in results)
    call.audit(f"{len(results) - failed} playbooks", namespace=home_of(call))
    return Answer({"registered": len(results) - failed, "failed": failed, "results": results})


async def _register(call: ApiCall, body: t.RegisterBody, expected: str | None = None) -> Plain:
    """The path is what the document says. Of what is no Playbook nothing is told or kept: it may be a credential."""
    namespace = home_of(call)
    text = await done_aside(len(body.content), partial(read_content, body.content))
    engine = call.documents
    declares = engine.languages[LANGUAGE].declares
    declared = await done_aside(WORK_OF_TEXT * len(text), lambda: declares(text.encode()))
    if (body.resource_type or KIND).lower() != LANGUAGE or not declared:
        raise UnfitInput(
            "the content is not a Playbook; nothing was registered",
            hint="A Playbook has `kind: Playbook` and `metadata`. For credentials: noetl register credential.",
        )
    path = declared[0].name
    if expected not in (None, path):
        raise UnfitInput(f"metadata.path: this is the Playbook {path!r}, not {expected!r}; nothing was saved")
    call.audit(f"{LANGUAGE}/{path}", namespace=namespace)
    changes, _ = await engine.apply([AppliedDocument(path, text)], namespace)
    entry = await find_version(engine, namespace, path, changes[0].generation)
    assert entry is not None
    return registered_json(entry, is_new=changes[0].outcome is not Outcome.UNCHANGED)


async def list_catalog(call: ApiCall) -> Result:
    """Every version, the newest first."""
    body: t.CatalogListBody = call.body
    kind = (body.resource_type or KIND).lower()
    if kind == "credential":
        return Answer({"entries": list(map(credential_entry_json, await _kept(call).list(home_of(call))))})
    if kind != LANGUAGE or body.wants_agents:
        return Answer({"entries": []})
    versions = await list_versions(call.engine, home_of(call), body.path)
    shown = await with_documents(call.engine, versions)
    size = sum(len(version.body) for version in shown) + WORK_OF_ENTRY * len(shown)
    return Answer({"entries": await done_aside(size, lambda: [entry_json(version) for version in shown])})


async def list_paths(call: ApiCall) -> Result:
    if call.path["type"].lower() != LANGUAGE:
        return Answer([])
    return Answer(sorted({version.path for version in await list_versions(call.engine, home_of(call))}))


async def get_catalog_resource(call: ApiCall) -> Result:
    body: t.CatalogResourceBody = call.body
    entry = await _find(call, body.catalog_id, body.path, body.version)
    return Answer(await done_aside(len(entry.body), lambda: entry_json(entry, with_content=True)))


async def get_ui_schema(call: ApiCall) -> Result:
    entry = await _find(call, None, call.path["path"], call.query.version)
    now = call.engine.clock.now()
    return Answer(await done_aside(len(entry.body), lambda: ui_schema(entry, now)))


# What only its pages call.


async def list_agents(call: ApiCall) -> Result:
    """Playbooks are not agents here."""
    return Answer({"entries": []})


async def get_playbook_content(call: ApiCall) -> Result:
    entry = await _named(call)
    return Answer({"path": entry.path, "version": entry.version, "content": entry.text.decode()})


async def save_playbook_content(call: ApiCall) -> Result:
    """A new version of the Playbook that the editor shows: the text may not be about another path."""
    entry, body = await _named(call), t.RegisterBody(content=call.body.content)
    return Answer(await _register(call, body, entry.path))


async def validate_playbook(call: ApiCall) -> Result:
    text = await done_aside(len(call.body.content), partial(read_content, call.body.content))
    await call.check_documents([AppliedDocument(KIND, text)])
    checked = await validate(KIND, text.encode(), call.documents.validator, namespace=home_of(call))
    is_playbook = checked.language is not None and checked.language.name == LANGUAGE
    problems = [problem for problem in checked.problems if problem.severity is Severity.ERROR]
    errors = [problem.describe(KIND) for problem in problems] if is_playbook else ["the content is not a Playbook"]
    return Answer({"valid": not errors, "errors": errors})


async def _named(call: ApiCall) -> PlaybookVersion:
    query: t.PlaybookIdQuery = call.query
    by_path = await find_version(call.engine, home_of(call), query.playbook_id, None)
    return by_path or await _find(call, query.playbook_id, None, None)


async def _find(call: ApiCall, catalog_id: str | None, path: str | None, version: int | str | None) -> PlaybookVersion:
    if not (catalog_id or path):
        raise UnfitInput("`catalog_id` or `path` says which Playbook is meant")
    if catalog_id:
        entry = await find_by_id(call.engine, home_of(call), catalog_id)
    else:
        entry = await find_version(call.engine, home_of(call), path or "", read_version(version))
    if entry is None:
        which = "" if version is None else f" of version {version}"
        raise ResourceNotFound(f"there is no Playbook {catalog_id or path!r}{which}", hint="List them: catalog list.")
    return entry


# Credentials: no answer has a value, whoever asks for it.


def _kept(call: ApiCall) -> KeptCredentials:
    """Those of the server, as this request changes them: that is recorded with the change."""
    return call.engine.credentials.on(call.engine.store)


async def register_credential(call: ApiCall) -> Result:
    body: t.CredentialBody = call.body
    if "/" in body.name or not body.name.isprintable():
        raise UnfitInput("the name of a credential has no slash and no control characters")
    tags = body.tags.split(",") if isinstance(body.tags, str) else body.tags or []
    facts = CredentialFacts(
        body.name,
        body.type or body.credential_type or GENERIC,
        meta=body.meta,
        tags=[tag.strip() for tag in tags if tag.strip()],
        description=body.description,
    )
    about = [body.meta, body.data]
    size = await done_aside(SMALL + 1 if jsontext.is_large(about) else 0, lambda: len(jsontext.encode(about)))
    if size > LARGEST_CREDENTIAL:
        raise UnfitInput(f"a credential has at most {LARGEST_CREDENTIAL:,} bytes, with its `meta`")
    namespace = home_of(call)
    call.audit(f"credential/{body.name}", namespace=namespace)
    return Answer(credential_json(await _kept(call).put(namespace, facts, body.data)))


async def list_credentials(call: ApiCall) -> Result:
    query: t.CredentialQuery = call.query
    text = (query.q or "").lower()
    items = [
        credential_json(credential)
        for credential in await _kept(call).list(home_of(call))
        if query.type in (None, "", credential.facts.type)
        and text in f"{credential.facts.name} {credential.facts.description or ''}".lower()
    ]
    return Answer({"items": items, "filter": {"type": query.type, "q": query.q}})


async def get_credential(call: ApiCall) -> Result:
    """Without `data`, also if it is asked for: their command line always does."""
    return Answer(credential_json(await _kept(call).get(home_of(call), call.path["name"])))


async def delete_credential(call: ApiCall) -> Result:
    namespace, name = home_of(call), call.path["name"]
    call.audit(f"credential/{name}", namespace=namespace)
    await _kept(call).delete(namespace, name)
    return Answer({"status": "deleted", "name": name})


# The process.


async def get_dashboard(call: ApiCall) -> Result:
    """Figures of the start page, over what the caller may see; of the latest executions if there are very many."""
    filter = RunFilter(language=LANGUAGE, namespaces=call.caller.namespaces)
    rows = [row async for row in all_runs(call.engine, filter, MOST_COUNTED)]
    statuses = [row.status for row in rows]
    ended_well = sum(status.has_result for status in statuses)
    failed = sum(status in (Status.FAILED, Status.TIMED_OUT) for status in statuses)
    open_count = sum(not status.is_final for status in statuses)
    figures: dict[str, Any] = {
        "total_executions": len(statuses),
        "successful_executions": ended_well,
        "failed_executions": failed,
        "active_executions": open_count,
        "active_workflows": open_count,
        "total_playbooks": len({version.path for version in await list_versions(call.engine, home_of(call))}),
        "success_rate": round(100 * ended_well / (ended_well + failed), 1) if ended_well + failed else 0,
    }
    versions, now = RunVersions(call.engine), call.engine.clock.now()
    recent = [execution_json(ExecutionView(row, await versions.of(row), now)) for row in rows[:RECENT]]
    return Answer({"status": "ok", "stats": figures, **figures, "recent_executions": recent})


async def list_worker_pools(call: ApiCall) -> Result:
    pools = await list_pools(call.engine, call.server.routes_to_pools, call.caller.namespaces)
    items = [
        {
            "name": pool["name"],
            "runtime": "perdure",
            "status": "ready" if pool["workers"] else "offline",
            "capacity": pool["slots"],
            "labels": {"ready": pool["ready"], "leased": pool["leased"], "workers": pool["workers"]},
            "heartbeat": None,
            "created_at": None,
            "updated_at": None,
        }
        for pool in pools
    ]
    return Answer({"items": items, "count": len(items)})


async def refuse_sql(call: ApiCall) -> Result:
    raise AccessDenied("this server sends no SQL of a request to a database", hint="Let a Playbook do it.")


def refuse_offer(verb: str, sentence: str) -> "Handler":
    """The handler of a path that NoETL's server has and this one does not."""

    async def refuse(call: ApiCall) -> Result:
        raise NotOffered(sentence)

    refuse.__name__ = verb
    return refuse
