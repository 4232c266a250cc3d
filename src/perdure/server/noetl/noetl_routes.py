"""The routes that NoETL's own clients call, for Playbooks: its command line, its pages, its scripts.

They ignore members that they do not know. What NoETL's server has and this one does not is answered with 501.
"""

from typing import Any

from perdure.server.noetl import noetl_catalog_handlers as catalog
from perdure.server.noetl import noetl_execution_handlers as executions
from perdure.server.noetl import noetl_types as t
from perdure.server.route_table import Handler, Route
from perdure.views.administration.access_tokens import AccessRole

VIEWER, OPERATOR, AUTHOR = AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.AUTHOR
ANSWER = dict[str, Any]
EXECUTION = "/api/executions/{id}"


def _read(method: str, path: str, handler: Handler, summary: str, **more: Any) -> Route:
    kept: dict[str, Any] = {"answer": ANSWER, "is_expensive": True, "query": t.NoQuery} | more
    return Route(method, path, VIEWER, handler, f"NoETL: {summary}", **kept)


def _change(method: str, path: str, handler: Handler, summary: str, role: AccessRole, **more: Any) -> Route:
    kept: dict[str, Any] = {"answer": ANSWER, "changes": True, "query": t.NoQuery} | more
    return Route(method, path, role, handler, f"NoETL: {summary}", **kept)


def _of_execution(handler: Handler, summary: str, below: str = "", **more: Any) -> Route:
    return _read("GET", f"{EXECUTION}{below}", handler, summary, check=executions.check_execution, **more)


def _steer(path: str, handler: Handler, summary: str, body: type, method: str = "POST", **more: Any) -> Route:
    return _change(method, path, handler, summary, OPERATOR, body=body, check=executions.check_execution, **more)


UNTYPED: dict[str, Any] = {"body_is_optional": True, "takes_untyped_body": True}

CATALOG = (
    _change(
        "POST", "/api/catalog/register", catalog.register_playbook, "register a Playbook", AUTHOR, body=t.RegisterBody
    ),
    _change(
        "POST",
        "/api/catalog/register/batch",
        catalog.register_playbooks,
        "register Playbooks, each by itself",
        AUTHOR,
        body=t.RegisterBatchBody,
    ),
    _read(
        "POST",
        "/api/catalog/list",
        catalog.list_catalog,
        "every version of every Playbook",
        body=t.CatalogListBody,
        body_is_optional=True,
    ),
    _read("GET", "/api/catalog/list/{type}", catalog.list_paths, "paths of Playbooks", answer=list[str]),
    _read(
        "POST",
        "/api/catalog/resource",
        catalog.get_catalog_resource,
        "one version of a Playbook, with its text",
        body=t.CatalogResourceBody,
        refusals=(404,),
    ),
    _read(
        "POST",
        "/api/catalog/agents/list",
        catalog.list_agents,
        "Playbooks that are agents: none",
        body=t.CatalogListBody,
        body_is_optional=True,
    ),
    _read(
        "GET",
        "/api/catalog/playbook/content",
        catalog.get_playbook_content,
        "the text of a Playbook",
        query=t.PlaybookIdQuery,
        refusals=(404, 422),
    ),
    _change(
        "PUT",
        "/api/catalog/playbook/content",
        catalog.save_playbook_content,
        "save the text of a Playbook as its next version",
        AUTHOR,
        query=t.PlaybookIdQuery,
        body=t.ContentBody,
        refusals=(404,),
    ),
    Route(
        "POST",
        "/api/catalog/playbooks/validate",
        AUTHOR,
        catalog.validate_playbook,
        "NoETL: what is wrong with a text",
        query=t.NoQuery,
        body=t.ContentBody,
        answer=ANSWER,
        is_expensive=True,
    ),
    _read(
        "GET",
        "/api/catalog/{path+}/ui_schema",
        catalog.get_ui_schema,
        "a form for the workload of a Playbook",
        query=t.VersionQuery,
    ),
)

EXECUTIONS = (
    _change(
        "POST",
        "/api/execute",
        executions.execute_playbook,
        "start a Playbook of the catalog",
        OPERATOR,
        body=t.ExecuteBody,
        refusals=(404,),
        is_keyed_by_run=True,
    ),
    _change(
        "POST",
        "/api/execute/batch",
        executions.execute_batch,
        "start Playbooks, each by itself",
        OPERATOR,
        body=t.ExecuteBatchBody,
        is_keyed_by_run=True,
    ),
    _steer(
        f"{EXECUTION}/rerun",
        executions.rerun_execution,
        "start the same Playbook again",
        t.ExecuteBody,
        is_keyed_by_run=True,
        **UNTYPED,
    ),
    _read(
        "GET",
        "/api/executions",
        executions.list_executions,
        "executions, the newest first",
        query=t.ExecutionsQuery,
        answer=list[ANSWER],
    ),
    _of_execution(executions.get_execution, "one execution", query=t.ExecutionQuery),
    _of_execution(executions.get_execution_status, "how an execution does", "/status"),
    _of_execution(executions.list_execution_events, "events, the newest first", "/events", query=t.ExecutionQuery),
    _of_execution(executions.check_cancellation, "whether it was cancelled", "/cancellation-check"),
    _steer(
        f"{EXECUTION}/cancel",
        executions.cancel_execution,
        "cancel an execution",
        t.CancelExecutionBody,
        statuses=(202,),
        **UNTYPED,
    ),
    _steer(
        f"{EXECUTION}/stop",
        executions.stop_execution,
        "cancel an execution",
        t.CancelExecutionBody,
        statuses=(202,),
        **UNTYPED,
    ),
    _change(
        "POST",
        "/api/executions/cleanup",
        executions.clean_up_executions,
        "cancel executions that no process runs",
        OPERATOR,
        body=t.CleanupBody,
        is_expensive=True,
        **UNTYPED,
    ),
    _steer(f"{EXECUTION}/finalize", executions.finalize_execution, "say how it ended", t.FinalizeBody, **UNTYPED),
    _steer(
        f"{EXECUTION}/ctx",
        executions.patch_context,
        "change the ctx of an execution",
        t.ContextBody,
        "PATCH",
        is_keyed_by_run=True,
    ),
    _read(
        "GET",
        "/api/vars/{id}",
        executions.list_variables,
        "the ctx of an execution",
        check=executions.check_execution,
    ),
    _read(
        "GET",
        "/api/vars/{id}/{name}",
        executions.get_variable,
        "one member of the ctx",
        check=executions.check_execution,
    ),
    _steer("/api/vars/{id}", executions.set_variables, "change the ctx", t.VariablesBody, is_keyed_by_run=True),
    _read(
        "GET",
        "/api/replay/state",
        executions.replay_state,
        "an execution as it was",
        query=t.ReplayQuery,
        refusals=(404,),
    ),
    _read(
        "GET",
        "/api/result/resolve",
        executions.resolve_result,
        "the value behind a reference",
        query=t.ResolveQuery,
        answer=None,
        refusals=(404,),
    ),
    _read(
        "GET",
        "/api/ehdb/executions",
        executions.query_executions,
        "executions, as its console asks for them",
        query=t.ExecutionsQuery,
    ),
    _read(
        "GET",
        "/api/ehdb/executions/{id}",
        executions.get_execution,
        "one execution, likewise",
        query=t.ExecutionQuery,
        check=executions.check_execution,
    ),
    _read(
        "GET",
        "/api/ehdb/executions/{id}/events",
        executions.list_execution_events,
        "its events, likewise",
        query=t.ExecutionQuery,
        check=executions.check_execution,
    ),
)

CREDENTIALS = (
    _change(
        "POST",
        "/api/credentials",
        catalog.register_credential,
        "keep a credential, encrypted or as references",
        AUTHOR,
        body=t.CredentialBody,
    ),
    _read(
        "GET",
        "/api/credentials",
        catalog.list_credentials,
        "credentials, without values",
        query=t.CredentialQuery,
    ),
    _read(
        "GET",
        "/api/credentials/{name}",
        catalog.get_credential,
        "one credential, without its values",
        query=t.CredentialQuery,
    ),
    _change("DELETE", "/api/credentials/{name}", catalog.delete_credential, "remove a credential", AUTHOR),
)

PROCESS = (
    _read("GET", "/api/dashboard/stats", catalog.get_dashboard, "figures of the start page"),
    _read("GET", "/api/worker/pools", catalog.list_worker_pools, "pools of workers"),
)

MODELS = "Perdure calls no language model; `why` explains a run: GET /api/v1/runs/{id}/why."
WORKERS = "Workers of NoETL cannot work for this server; see docs/guide/workers.md for its own protocol."
KEPT = "Values are kept by runs and never written from outside; read one with GET /api/result/resolve?ref=."
OLD = "This is an older call that NoETL's own servers do not serve either; use POST /api/catalog/register."
SECRETS = "No secret leaves this server."
AGENTS = "Perdure has no agents of NoETL's kind."
NOT_OFFERED: tuple[tuple[str, str, str], ...] = (
    ("POST", "/api/catalog/playbooks/explain/ai", MODELS),
    ("POST", "/api/catalog/playbooks/generate/ai", MODELS),
    ("POST", f"{EXECUTION}/analyze", MODELS),
    ("POST", f"{EXECUTION}/analyze/ai", MODELS),
    ("POST", "/api/catalog/delete", "Remove a Playbook with DELETE /api/v1/resources/playbook/NAMESPACE/PATH."),
    ("POST", "/api/catalog/restore", "A Playbook that was removed is registered again."),
    ("PUT", "/api/catalog/playbook", OLD),
    ("DELETE", "/api/catalog/playbooks/{path+}", OLD),
    ("GET", "/api/result/{path+}", KEPT),
    ("PUT", "/api/result/{path+}", KEPT),
    ("DELETE", "/api/result/{path+}", KEPT),
    ("GET", "/api/temp/{path+}", KEPT),
    ("PUT", "/api/temp/{path+}", KEPT),
    ("DELETE", "/api/temp/{path+}", KEPT),
    ("GET", "/api/aggregate/loop/results", "Read the result of the loop's step: GET /api/v1/runs/{id}/steps/STEP."),
    ("POST", "/api/context/render", "Templates are rendered by runs only."),
    ("GET", "/api/credentials/{name}/sealed", SECRETS),
    ("GET", "/api/keychain/{path+}", SECRETS),
    ("POST", "/api/keychain/{path+}", SECRETS),
    ("DELETE", "/api/keychain/{path+}", SECRETS),
    ("POST", "/api/gcp/token", SECRETS),
    ("GET", "/api/dashboard/widgets", "There are no widgets; the figures are GET /api/dashboard/stats."),
    ("POST", "/api/db/init", "The server makes and migrates its tables itself: perdure db migrate."),
    ("GET", "/api/db/validate", "Validate the store with `perdure db validate`."),
    ("GET", "/api/status", "Ask GET /readyz."),
    ("GET", "/api/threads", "Ask GET /metrics."),
    ("GET", "/api/pool/status", "Ask GET /metrics."),
    ("GET", "/api/metrics", "Ask GET /metrics."),
    ("GET", "/api/profiler/{path+}", "Ask GET /metrics."),
    *(
        (method, "/api/playbook-tests/suites/{path+}", "Suites are files; see docs/guide/testing.md.")
        for method in ("GET", "PUT", "DELETE")
    ),
    *((method, "/api/worker/pool/{path+}", WORKERS) for method in ("POST", "DELETE")),
    *((method, "/api/commands/{path+}", WORKERS) for method in ("GET", "POST")),
    *((method, "/api/events/{path+}", WORKERS) for method in ("GET", "POST")),
    ("POST", "/api/events", WORKERS),
    *(
        (method, path, sentence)
        for name, sentence in (
            ("mcp", AGENTS),
            ("subscriptions", "Start runs by events with an Impulse or a schedule; see docs/guide/schedules.md."),
            ("frames", "Loops of Playbooks have no cursor frames."),
            ("stages", "Loops of Playbooks have no stages."),
            ("ehdb", "Perdure has one store; its figures are GET /metrics."),
            ("internal", "These are calls between NoETL's own programs."),
            ("auth", "Send an access token of this server; `perdure token create` makes one."),
        )
        for path in (f"/api/{name}", f"/api/{name}/{{path+}}")
        for method in ("GET", "POST")
    ),
)
"""What NoETL's server has and this one does not: method, path, and what to do instead."""


def _refuse(method: str, path: str, sentence: str) -> Route:
    words = "_".join(part for part in path.split("/") if part and not part.startswith("{"))
    handler = catalog.refuse_offer(f"refuse_{method.lower()}_{words.replace('-', '_')}", sentence)
    role = VIEWER if method == "GET" else OPERATOR
    kept: dict[str, Any] = {"query": t.NoQuery, "status": 501, "is_raw": method != "GET"}
    return Route(method, path, role, handler, "NoETL: not offered", **kept)


SQL = Route(
    "POST",
    "/api/postgres/execute",
    OPERATOR,
    catalog.refuse_sql,
    "NoETL: not allowed",
    query=t.NoQuery,
    status=403,
    is_raw=True,
)
NOETL_ROUTES = (SQL, *CATALOG, *EXECUTIONS, *CREDENTIALS, *PROCESS, *(_refuse(*offer) for offer in NOT_OFFERED))
