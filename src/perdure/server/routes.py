"""The table of routes: all that the API can do. Nothing of it is written a second time."""

from typing import Any

from perdure.server import request_types as m
from perdure.server.console_routes import CONSOLE_ROUTES
from perdure.server.handlers import resource_handlers as resources
from perdure.server.handlers import run_handlers as runs
from perdure.server.handlers import schedule_handlers as schedules
from perdure.server.handlers import steering_handlers as steering
from perdure.server.handlers import system_handlers as system
from perdure.server.handlers.analysis_handlers import ANALYSIS_ROUTES
from perdure.server.handlers.migration_handlers import MIGRATION_ROUTES
from perdure.server.noetl.noetl_routes import NOETL_ROUTES
from perdure.server.route_table import Handler, Route
from perdure.server.worker_protocol.worker_routes import WORKER_ROUTES
from perdure.views.access import Question
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.administration.audit_log import AUDIT_HEAD, AUDIT_REPORT
from perdure.views.administration.retention_rules import RETENTION
from perdure.views.administration.server_settings import ServersAnswer
from perdure.views.resources.resource_details import DESCRIPTION
from perdure.views.resources.resource_list import RESOURCES
from perdure.views.runs import live_overview, run_capsule, run_differences, run_forecast, run_screen
from perdure.views.runs.run_causes import CAUSES
from perdure.views.runs.run_graph import DRAWING
from perdure.views.runs.run_list_json import LISTING
from perdure.views.runs.timeline import TIMELINE, TIMELINE_JSON

API = "/api/v1"
RUN = f"{API}/runs/{{id}}"
HOOK = f"{API}/hooks/{{hook}}"
RESOURCE = f"{API}/resources/{{kind}}/{{namespace}}/{{name}}"

EXPENSIVE_PAGE: dict[str, Any] = {"answer": m.ItemPage, "is_expensive": True}
EXPENSIVE_ENTRY: dict[str, Any] = {"answer": dict[str, Any], "is_expensive": True, "check": resources.check_path}

VIEWER, OPERATOR, AUTHOR, ADMIN = AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.AUTHOR, AccessRole.ADMIN


def _get(path: str, handler: Handler, summary: str, role: AccessRole | None = VIEWER, **more: Any) -> Route:
    return Route("GET", path, role, handler, summary, **more)


def _change(method: str, path: str, handler: Handler, summary: str, role: AccessRole, **more: Any) -> Route:
    return Route(method, path, role, handler, summary, changes=True, **more)


def _steer(path: str, handler: Handler, summary: str, body: type, **more: Any) -> Route:
    """A control message to one run, which keeps its key."""
    kept = {"body_is_optional": True, "answer": m.SentAnswer, "statuses": (202,), "is_keyed_by_run": True} | more
    return _change("POST", f"{RUN}{path}", handler, summary, OPERATOR, body=body, **kept)


def _question(question: Question[Any, Any]) -> Route:
    """What the command line asks about runs, answered by the same function as on a store."""
    return _get(
        f"{API}{question.path}",
        runs.answer_question(question),
        question.summary,
        AccessRole(question.role),
        query=question.query,
        is_expensive=question.is_expensive or "{id}" in question.path,
        refusals=(404, 409, *((422,) if question is CAUSES else ())),  # a value that cannot be traced
    )


QUESTIONS: tuple[Question[Any, Any], ...] = (
    AUDIT_HEAD,
    AUDIT_REPORT,
    CAUSES,
    live_overview.COUNTS,
    DESCRIPTION,
    run_capsule.CAPSULE,
    run_differences.DIFFERENCES,
    DRAWING,
    *run_forecast.FORECASTS,
    *run_screen.SCREENS,
    LISTING,
    RESOURCES,
    RETENTION,
    schedules.SCHEDULES,
    TIMELINE,
    TIMELINE_JSON,
    live_overview.TOPOLOGY,
)

ROUTES = (
    *(*CONSOLE_ROUTES, *WORKER_ROUTES, *NOETL_ROUTES, *MIGRATION_ROUTES, *ANALYSIS_ROUTES),
    _get("/livez", system.get_livez, "whether the process lives", None),
    _get("/readyz", system.get_readyz, "whether it can work", None, refusals=(503,)),
    _get("/health", system.get_readyz, "the same as /readyz", None, refusals=(503,)),
    _get("/api/health", system.get_readyz, "the same as /readyz", None, refusals=(503,)),
    _get("/errors/{code}", system.get_error_page, "what an error code means", None),
    _get("/version", system.get_version, "the version of the server"),
    _get("/metrics", system.get_metrics, "figures of the server for Prometheus", is_expensive=True, is_text=True),
    _get("/openapi.json", system.get_openapi, "this description"),
    _change(
        "POST",
        f"{API}/runs",
        runs.start_run,
        "start a run",
        OPERATOR,
        body=m.StartBody,
        answer=m.RunAnswer,
        answers={200: m.ResultAnswer},
        status=202,
        statuses=(200,),
        refusals=(404,),
        is_keyed_by_run=True,
    ),
    _get(
        f"{API}/runs",
        runs.list_runs,
        "list runs, the latest first",
        query=m.RunQuery,
        answer=m.RunPage,
        refusals=(404,),
    ),
    _change(
        "POST",
        f"{API}/runs:batch",
        steering.steer_batch,
        "steer all runs that match a filter",
        OPERATOR,
        body=m.BatchBody,
        answer=m.BatchResult,
        refusals=(404,),
        is_keyed_by_run=True,
    ),
    _get(RUN, runs.get_run, "one run, as it is or was after an event", query=m.PictureQuery, answer=m.RunAnswer),
    _change(
        "DELETE",
        RUN,
        steering.delete_run,
        "remove an ended run and all below it",
        OPERATOR,
        answer=m.DeletedAnswer,
        statuses=(202,),
    ),
    _get(
        f"{RUN}/picture",
        runs.get_picture,
        "the run in the words of its language",
        query=m.PictureQuery,
        is_expensive=True,
        refusals=(409,),
    ),
    _get(
        f"{RUN}/graph",
        runs.get_graph,
        "the document as a graph, with what happened",
        query=m.GraphQuery,
        answer=dict[str, Any],
        is_expensive=True,
        refusals=(409,),
    ),
    _get(
        f"{RUN}/result",
        runs.get_result,
        "how the run ended",
        query=m.ResultQuery,
        answer=m.ResultAnswer,
        statuses=(202,),
    ),
    _get(
        f"{RUN}/events",
        runs.list_events,
        "the history by page, or live",
        query=m.EventsQuery,
        answer=m.ItemPage,
        statuses=(204,),
        streams=True,
        is_expensive=True,
    ),
    _get(
        f"{API}/events",
        runs.follow_changes,
        "changes of the status of runs, live",
        query=m.ChangeQuery,
        refusals=(404,),
        streams=True,
    ),
    _get(
        f"{API}/changes",
        runs.list_changes,
        "changes of the status of runs by page",
        query=m.ChangeQuery,
        answer=m.ChangePage,
        is_expensive=True,
        refusals=(404, 410),
    ),
    _get(f"{RUN}/effects", runs.list_effects, "effects of the run on the outside", **EXPENSIVE_PAGE),
    _get(f"{RUN}/children", runs.list_children, "runs that it has started", query=m.PageQuery, answer=m.RunPage),
    _get(f"{RUN}/steps", runs.list_run_steps, "the steps of the run", query=m.PictureQuery, **EXPENSIVE_PAGE),
    _get(
        f"{RUN}/steps/{{step}}",
        runs.get_step,
        "one step: input, output, attempts, effects, log lines",
        query=m.PageQuery,
        answer=dict[str, Any],
        is_expensive=True,
    ),
    *map(_question, QUESTIONS),
    _get(f"{RUN}/logs", runs.list_logs, "what tasks printed and logged", query=m.LogQuery, **EXPENSIVE_PAGE),
    _get(f"{RUN}/operations", system.list_operations, "who did what to it", query=m.PageQuery, answer=m.ItemPage),
    _get(f"{RUN}/values/{{digest}}", runs.get_value, "a large value of the run", is_expensive=True),
    _steer("/cancel", steering.cancel_run, "ask the run to stop", m.CancelBody, is_keyed_by_run=False),
    _steer("/signals/{name}", steering.signal_run, "send a signal", m.SignalBody),
    _steer("/gates/{step}", steering.decide_gate, "decide a gate", m.GateBody, body_is_optional=False),
    _steer("/patch", steering.patch_run, "change a ctx, or a run as a resource", m.PatchBody, body_is_optional=False),
    _steer("/redrive", steering.redrive_run, "reopen a run that has ended", m.RedriveBody),
    _steer(
        "/fork",
        steering.fork_run,
        "start a run with the past of this one",
        m.ForkBody,
        answer=m.ForkAnswer,
        status=201,
        statuses=(),
    ),
    _steer("/pause", steering.pause_run, "let the run make no move", m.PauseBody),
    _steer("/resume", steering.resume_run, "let a paused run continue", m.PauseBody),
    _steer(
        "/effects/{key}/settle",
        steering.settle_effect,
        "say whether an effect in doubt happened",
        m.SettleBody,
        body_is_optional=False,
    ),
    _get(f"{API}/providers", system.list_all_providers, "providers that tasks can call", answer=m.ItemPage),
    _get(f"{API}/servers", system.list_servers, "servers of the store", answer=ServersAnswer),
    _get(
        f"{API}/overview",
        system.get_overview,
        "all runs at a glance: statuses, owners, running tasks and what runs wait for",
        query=m.OverviewQuery,
        answer=dict[str, Any],
        is_expensive=True,
    ),
    _get(f"{API}/workers", system.list_all_workers, "workers elsewhere", **EXPENSIVE_PAGE),
    _get(f"{API}/pools", system.list_all_pools, "pools of tasks for workers elsewhere", **EXPENSIVE_PAGE),
    _get(f"{API}/pools/{{pool}}", system.get_pool, "one pool", answer=dict[str, Any]),
    Route(
        "POST",
        f"{API}/check",
        AUTHOR,
        resources.check_document,
        "check a document; nothing is stored",
        body=m.CheckBody,
        answer=m.CheckAnswer,
        is_expensive=True,
    ),
    _get(f"{API}/resources", resources.list_kinds, "kinds of resources", answer=m.ItemPage),
    _change(
        "POST",
        f"{API}/resources:apply",
        resources.apply_resources,
        "apply documents, all or nothing",
        AUTHOR,
        body=m.ApplyBody,
        answer=m.ApplyAnswer,
        refusals=(404,),
    ),
    _get(
        f"{API}/resources/{{kind}}",
        resources.list_resources_of_kind,
        "resources of a kind",
        query=m.ResourcePageQuery,
        **EXPENSIVE_PAGE,
    ),
    _get(
        f"{API}/resources/{{kind}}/{{namespace}}",
        resources.list_resources_in_namespace,
        "those of a namespace",
        query=m.ResourcePageQuery,
        **EXPENSIVE_PAGE,
        check=resources.check_path,
    ),
    _get(RESOURCE, resources.get_resource, "one resource", **EXPENSIVE_ENTRY),
    _get(
        f"{RESOURCE}/versions",
        resources.list_versions,
        "versions of a resource, the latest first",
        answer=m.ItemPage,
        check=resources.check_path,
    ),
    _get(
        f"{RESOURCE}/versions/{{version}}",
        resources.get_resource_version,
        "what a resource said in a version",
        answer=dict[str, Any],
        check=resources.check_path,
    ),
    _change(
        "PUT",
        RESOURCE,
        resources.put_one_resource,
        "create or replace a resource",
        AUTHOR,
        body=dict[str, Any],
        answer=dict[str, Any],
        statuses=(201,),
        refusals=(412,),
        check=resources.check_path,
    ),
    _change(
        "DELETE",
        RESOURCE,
        resources.delete_one_resource,
        "remove a resource",
        AUTHOR,
        answer=m.DeletedAnswer,
        statuses=(202,),
        refusals=(412,),
        check=resources.check_path,
    ),
    _change(
        "POST",
        f"{API}/impulses/{{namespace}}/{{name}}",
        resources.receive_event,
        "give an event to an Impulse",
        OPERATOR,
        answer=dict[str, Any],
        status=202,
        statuses=(200,),
        refusals=(404, 409),
        takes_signatures=True,
        is_raw=True,
        check=resources.check_event_path,
    ),
    _get(f"{API}/hooks", system.list_hooks, "outgoing hooks", ADMIN, answer=m.ItemPage),
    _get(
        f"{HOOK}/deliveries",
        system.list_hook_deliveries,
        "deliveries of a hook, the latest first",
        ADMIN,
        query=m.DeliveryQuery,
        answer=m.ItemPage,
    ),
    _change("POST", f"{HOOK}/pause", system.pause_hook, "send nothing for now", ADMIN, answer=dict[str, Any]),
    _change("POST", f"{HOOK}/resume", system.resume_hook, "send again", ADMIN, answer=dict[str, Any]),
    _change("POST", f"{HOOK}/retry", system.retry_hook, "try what was given up", ADMIN, answer=dict[str, Any]),
    _change(
        "POST",
        f"{API}/triggers",
        schedules.trigger_story,
        "request a run of a Story",
        OPERATOR,
        body=schedules.TriggerBody,
        answer=dict[str, Any],
        status=202,
        refusals=(404,),
    ),
    *(
        _change(
            "POST",
            f"{API}/schedules:{verb}",
            handler,
            f"{verb} a schedule",
            OPERATOR,
            body=body,
            answer=dict[str, Any],
            refusals=(404,),
        )
        for verb, handler, body in (
            ("pause", schedules.pause_schedule, schedules.PauseScheduleBody),
            ("unpause", schedules.unpause_schedule, schedules.PauseScheduleBody),
            ("backfill", schedules.backfill_schedule, schedules.BackfillBody),
        )
    ),
    _get(f"{API}/whoami", system.whoami, "who the token is", answer=m.WhoAnswer, is_for_every_role=True),
    _get(f"{API}/tokens", system.list_access_tokens, "list tokens", ADMIN, answer=m.ItemPage),
    _change(
        "POST",
        f"{API}/tokens",
        system.create_access_token,
        "make a token",
        ADMIN,
        body=m.TokenBody,
        answer=m.TokenAnswer,
        status=201,
    ),
    _change(
        "DELETE",
        f"{API}/tokens/{{name}}",
        system.revoke_access_token,
        "revoke a token at once",
        ADMIN,
        answer=dict[str, Any],
    ),
    _get(
        f"{API}/audit",
        system.list_audit_rows,
        "who changed what, the latest first",
        query=m.AuditQuery,
        answer=m.ItemPage,
        refusals=(404,),
    ),
)
