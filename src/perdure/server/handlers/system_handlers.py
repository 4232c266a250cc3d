"""The process itself: whether it is ready, what it knows, which servers there are; tokens, and the audit log."""

import asyncio
import sys
from typing import TYPE_CHECKING

from perdure.kernel.json_values.values import SECOND
from perdure.providers.remote_steps import remote_steps
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Result, visible_run
from perdure.server.handlers.session_handlers import who_json
from perdure.server.problems import error_page
from perdure.server.run_hooks import delivery_json, hook_json
from perdure.views.administration.access_tokens import (
    AccessRole,
    check_namespace,
    create_token,
    list_tokens,
    revoke_token,
)
from perdure.views.administration.audit_log import audit_json, list_audit
from perdure.views.administration.prometheus_text import metrics_text
from perdure.views.administration.server_metrics import store_metrics
from perdure.views.administration.server_presence import health_json
from perdure.views.administration.server_settings import settings_json, warnings_of
from perdure.views.administration.worker_pools import list_pools, list_workers
from perdure.views.api_errors import AccessDenied, HookNotFound, PoolNotFound, RouteNotFound
from perdure.views.resources.provider_list import list_providers
from perdure.views.runs.live_overview import LiveOverview
from perdure.views.runs.run_pages import page_mark, read_offset, write_page_cursor
from perdure.views.times import iso
from perdure.wiring import open_admin

if TYPE_CHECKING:
    from perdure.server.application import ApiServer


async def get_livez(call: ApiCall) -> Result:
    return Answer({"live": True})


async def get_readyz(call: ApiCall) -> Result:
    """`status` is for clients of NoETL."""
    if call.server.is_draining:
        return Answer({"status": "stopping", "well": False, "lease": False, "store": False}, 503, {"Retry-After": "1"})
    health = await health_json(call.engine)
    if not health["well"]:
        return Answer({"status": "unavailable", **health}, 503, {"Retry-After": "1"})
    return Answer({"status": "ok", **health})


KUBERNETES_MINOR = 32  # of the Kubernetes API whose manners this server has


async def get_version(call: ApiCall) -> Result:
    """With the members that clients of the Kubernetes API look for: the version of that API, not ours."""
    kubernetes = f"v1.{KUBERNETES_MINOR}.0"
    build = {"major": "1", "minor": str(KUBERNETES_MINOR), "gitVersion": f"{kubernetes}+perdure-{call.server.version}"}
    build |= {"gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z"}
    build |= {"goVersion": "", "compiler": "", "platform": sys.platform}
    return Answer({**build, "version": call.server.version, "server": call.server.name})


async def get_openapi(call: ApiCall) -> Result:
    return Answer(call.server.description)


async def get_error_page(call: ApiCall) -> Result:
    page = error_page(call.path["code"])
    if page is None:
        raise RouteNotFound(f"there is no error {call.path['code'][:60]!r}")
    return Answer(page)


async def get_metrics(call: ApiCall) -> Result:
    """For whoever may see all namespaces: the figures tell of all of them."""
    call.caller.need_all_namespaces()
    server: ApiServer = call.server
    assert server.metrics is not None
    admin = open_admin(server.store_url, call.engine.clock)
    statistics = await asyncio.to_thread(admin.statistics, with_tables=False)
    own = server.own_metrics()
    if server.group is not None:
        server.group.figures.write(own)  # what was told once is not forgotten with this process
        own = server.group.figures.sum(own, server.group.present)
    text = metrics_text([*store_metrics(statistics, call.engine.clock.now()), *own])
    return Answer(text.encode(), 200, {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def list_all_providers(call: ApiCall) -> Result:
    return Answer({"items": [entry.json() for entry in list_providers()]})


async def list_servers(call: ApiCall) -> Result:
    servers = await call.engine.store.servers()
    items = [
        {
            "name": server.name,
            "serves": server.serves,
            "partitions": server.partitions,
            "lease_until": iso(server.until or None),  # none on a file: its owner has a lock
        }
        for server in servers
    ]
    noted = await call.server.settings.all()
    return Answer({"items": items, "settings": settings_json(noted), "warnings": warnings_of(noted)})


async def get_overview(call: ApiCall) -> Result:
    """All runs of the store at a glance, over all namespaces."""
    call.caller.need_all_namespaces()
    admin = open_admin(call.server.store_url, call.engine.clock)
    return Answer(await LiveOverview(call.engine, admin).read(call.query.limit))


async def list_all_workers(call: ApiCall) -> Result:
    call.caller.need_all_namespaces()
    return Answer({"items": await list_workers(call.engine, call.server.presence)})


async def list_all_pools(call: ApiCall) -> Result:
    pools = await list_pools(call.engine, call.server.routes_to_pools, call.caller.namespaces, remote_steps.waiting)
    return Answer({"items": pools})


async def get_pool(call: ApiCall) -> Result:
    pools = await list_pools(call.engine, call.server.routes_to_pools, call.caller.namespaces, remote_steps.waiting)
    match = next((pool for pool in pools if pool["name"] == call.path["pool"]), None)
    if match is None:
        raise PoolNotFound(f"there is no pool {call.path['pool']!r}")
    return Answer(match)


async def list_hooks(call: ApiCall) -> Result:
    call.caller.need_all_namespaces()
    return Answer({"items": [hook_json(row) for row in await call.engine.store.hooks()]})


async def list_hook_deliveries(call: ApiCall) -> Result:
    """The latest first."""
    query: m.DeliveryQuery = call.query
    name = await _hook(call)
    mark = page_mark(["deliveries", name, query.state])
    before = None if query.cursor is None else read_offset(query.cursor, mark)
    rows = await call.engine.store.deliveries(name, query.state, before, query.limit + 1)
    more = {"next": write_page_cursor([rows[query.limit - 1].position], mark)} if len(rows) > query.limit else {}
    return Answer({"items": [delivery_json(row) for row in rows[: query.limit]], **more})


async def pause_hook(call: ApiCall) -> Result:
    await call.engine.store.pause_hook(await _hook(call), is_paused=True)
    return Answer({"name": call.path["hook"], "paused": True})


async def resume_hook(call: ApiCall) -> Result:
    await call.engine.store.pause_hook(await _hook(call), is_paused=False)
    return Answer({"name": call.path["hook"], "paused": False})


async def retry_hook(call: ApiCall) -> Result:
    """Deliveries that were given up are tried again."""
    count = await call.engine.store.retry_deliveries(await _hook(call), call.engine.clock.now())
    return Answer({"name": call.path["hook"], "retried": count})


async def _hook(call: ApiCall) -> str:
    call.caller.need_all_namespaces()
    name = call.path["hook"]
    call.audit(f"hook/{name}")
    if all(row.name != name for row in await call.engine.store.hooks()):
        raise HookNotFound(f"there is no hook {name!r}")
    return name


async def whoami(call: ApiCall) -> Result:
    return Answer(who_json(call.caller))


async def list_access_tokens(call: ApiCall) -> Result:
    return Answer({"items": await list_tokens(call.engine, call.caller.namespaces)})


async def create_access_token(call: ApiCall) -> Result:
    body: m.TokenBody = call.body
    for namespace in body.namespaces:
        check_namespace(namespace)
        call.caller.need_namespace(namespace)
    if call.caller.namespaces is not None and not body.namespaces:
        raise AccessDenied("a token may reach no further than the one that makes it", hint="Name your namespaces.")
    call.audit(f"token/{body.name}")
    call.is_secret = True
    token = await create_token(
        call.engine,
        body.name,
        AccessRole(body.role),
        namespaces=body.namespaces,
        pools=body.pools,
        expires_in=None if body.expires_in is None else int(body.expires_in * SECOND),
        by=call.caller.identity,
    )
    await call.server.authentication.tokens.read()
    shown = {
        "name": token.name,
        "role": token.role,
        "namespaces": None if token.namespaces is None else list(token.namespaces),
        "pools": list(token.pools),
        "expires_at": token.expires_at,
        "token": token.token,
    }
    return Answer(shown, 201, {"Location": f"/api/v1/tokens/{token.name}"})


async def revoke_access_token(call: ApiCall) -> Result:
    call.audit(f"token/{call.path['name']}")
    revoked = await revoke_token(call.engine, call.path["name"], call.caller.namespaces)
    await call.server.authentication.tokens.read()  # before: it leases nothing more
    await call.engine.store.end_leases(call.path["name"], call.engine.clock.now())
    return Answer(revoked)


async def list_operations(call: ApiCall) -> Result:
    """Who did what to the run, for whoever sees it."""
    query: m.PageQuery = call.query
    rows, cursor = await list_audit(call.engine, run=call.run.id, cursor=query.cursor, limit=query.limit)
    items = [audit_json(row, with_source=False) for row in rows]
    return Answer({"items": items} | ({"next": cursor} if cursor else {}))


async def list_audit_rows(call: ApiCall) -> Result:
    """The whole log for an admin of all namespaces; that of a run for whoever sees the run, without addresses."""
    query: m.AuditQuery = call.query
    run = None
    if query.run is not None:
        run = (await visible_run(call.engine, call.caller, query.run)).id
    else:
        call.caller.need(AccessRole.ADMIN)
        call.caller.need_all_namespaces()
    rows, cursor = await list_audit(call.engine, run=run, cursor=query.cursor, limit=query.limit)
    items = [audit_json(row, with_source=run is None) for row in rows]
    return Answer({"items": items} | ({"next": cursor} if cursor else {}))
