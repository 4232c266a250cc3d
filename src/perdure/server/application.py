"""The application: from a request to its answer, in one order for all routes.

Host and Origin ─▶ who (401, 429, 503) ─▶ route (404, 405, 406) ─▶ run (404) ─▶ role (403) ─▶ body (400, 413, 415)
─▶ handler ─▶ audit ─▶ answer
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from perdure.engine.decision_threads import done_aside
from perdure.engine.random_ids import new_request_id
from perdure.engine.tasks.leased_tasks import LeasedTasks
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.json_values import jsontext
from perdure.server.authentication import Authentication, check_origin, network_of
from perdure.server.calls import Answer, ApiCall, Caller, EventStream, Result, SeenRequest, check_body, visible_run
from perdure.server.console_files import ConsoleFiles, read_console
from perdure.server.kubernetes.statuses import is_kubernetes_path, status_json
from perdure.server.limits import CallerPlaces, HeldBytes, LargeBytes, Rates, RequestLimits, SharedPlaces
from perdure.server.openapi import describe
from perdure.server.problems import ServerFault, problem_json
from perdure.server.request_reading import (
    check_accept,
    digest_of_request,
    idempotency_key,
    largest_body,
    read_body,
    read_json,
    read_query,
    read_typed,
)
from perdure.server.responses import (
    ANSWERED_ONCE,
    STREAM_HEADERS,
    FollowedStream,
    add_headers,
    make_response,
    told_again,
)
from perdure.server.route_table import Route, RouteTable, split_path
from perdure.server.worker_protocol.secret_sending import SecretSender
from perdure.server.worker_protocol.task_bodies import PutValues
from perdure.stores.access import Act, RequestKey, RequestKeyRow, RequestKeyTaken
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.administration.audit_log import AuditEntry, AuditLog
from perdure.views.administration.prometheus_text import Metric
from perdure.views.administration.server_metrics import ServerMetrics
from perdure.views.administration.server_settings import ServerSettingsLog
from perdure.views.administration.worker_pools import WorkerPresence
from perdure.views.api_errors import ApiError, NotReady, RouteNotFound
from perdure.views.errors import BadRequest
from perdure.views.runs.live_events import LiveEvents
from perdure.views.runs.run_changes import ChangeFeed
from perdure.wiring import Engine

if TYPE_CHECKING:
    from perdure.server.connection_counts import ConnectionCounts
    from perdure.server.kubernetes.facade_routes import KubernetesFacade

_log = logging.getLogger("perdure.server")

UNKNOWN = "unknown"  # what is asked for under a path that does not exist
ANSWER_LOOKS = 40  # 50 ms apart, for the answer to a request that was sent twice at the same time
OPEN = "open"  # how somebody is known who needs no token
LARGEST_OPEN_BODY = 16 << 10  # bytes: nobody knows who has sent it, and a token has fewer
SIGNATURE = "signature"  # how somebody is known whose signature is not checked yet: the body is read first


@dataclass
class ApiServer:
    """What handlers know about the process, and what the application is made of."""

    engine: Engine
    documents: Engine
    authentication: Authentication
    audit: AuditLog
    live: LiveEvents
    changes: ChangeFeed
    routes: Sequence[Route]
    facade: "KubernetesFacade"
    name: str
    version: str
    hosts: frozenset[str] = frozenset()
    limits: RequestLimits = field(default_factory=RequestLimits)
    is_stopping: bool = False
    is_draining: bool = False  # it still answers, but wants no new requests
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    is_tls: bool = False
    metrics: ServerMetrics | None = None
    store_url: str = ""
    routes_to_pools: Mapping[str, str] = field(default_factory=dict)
    console: ConsoleFiles = field(default_factory=partial(read_console, None))
    offers_write_tools: bool = False  # to language models, over HTTP
    group: "ConnectionCounts | None" = None  # the processes that are this server together
    application: "Application" = field(init=False)
    settings: ServerSettingsLog = field(init=False)

    def __post_init__(self) -> None:
        self.tasks, self.presence = LeasedTasks(self.engine), WorkerPresence(self.engine)
        self.secrets, self.put_values = SecretSender(self.engine), PutValues()
        self.plays = SharedPlaces(self.limits.plays, "simulations and tests")

    @cached_property
    def description(self) -> dict[str, Any]:
        return describe(self.routes, self.version)

    def own_metrics(self) -> list[Metric]:
        assert self.metrics is not None
        feed = {"perdure_feed_followers": self.changes.followers, "perdure_feed_lag_seconds": self.changes.lag}
        return self.metrics.own(feed)

    def stop(self) -> None:
        """No new work; whoever waits is answered with what there is."""
        self.is_stopping = True
        self.stopping.set()
        self.tasks.stop_waiting()
        self.changes.close()


class Application:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        server.application = self
        self._version = server.version.encode()
        self._router = RouteTable(server.routes)
        self._facade = RouteTable(server.facade.routes)
        self._rates = Rates(server.limits)
        self._streams = CallerPlaces(server.limits.streams, "live streams")
        self._expensive = CallerPlaces(server.limits.expensive, "reads of whole runs")
        self._large = LargeBytes(server.limits)
        self._turn = asyncio.Lock()
        self._strangers = CallerPlaces(server.limits.signed, "requests without a token")
        self._neighbours = CallerPlaces(max(1, server.limits.signed // 2), "requests without a token from one address")
        self._strangers_limits = server.limits.of_strangers(server.limits.signed_body)
        self._open_limits = server.limits.of_strangers(LARGEST_OPEN_BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._converse(scope, receive, send)
            return
        began = time.perf_counter()
        response, operation = await self._respond(Request(scope, receive), new_request_id())
        if self._server.metrics is not None:
            self._server.metrics.count_request(operation, response.status_code, time.perf_counter() - began)
        add_headers(response, self._version, is_last=self._server.is_stopping)
        await response(scope, receive, send)

    async def _converse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket: who is refused is answered as any other request, who is not is a streaming worker."""
        from perdure.server.worker_protocol.stream_connections import SocketConnection, serve_connection

        request_id = new_request_id()
        connection = HTTPConnection(scope)
        seen = SeenRequest(connection.client.host if connection.client else "", UNKNOWN)
        try:
            await receive()  # websocket.connect
            caller = await self._stream_worker(connection, seen)
            with self._streams.one(caller.identity):
                await send({"type": "websocket.accept"})
                await serve_connection(self._server, caller, SocketConnection(receive, send))
        except PerdureError as refusal:
            response = self._refusal(refusal, request_id, seen)
            add_headers(response, self._version, is_last=False)
            await WebSocket(scope, receive, send).send_denial_response(response)

    async def _stream_worker(self, connection: HTTPConnection, seen: SeenRequest) -> Caller:
        path, route = connection.scope.get("raw_path") or connection.url.path.encode(), None
        with suppress(ApiError, BadRequest):  # whoever is unknown is told that first
            route, _ = self._router.find("GET", split_path(path))
            seen.verb = route.verb
        headers, seen.address = self._server.authentication.read_headers(connection.scope, seen.address)
        host = check_origin(headers, self._server.hosts, is_health=False)
        caller = seen.caller = await self._server.authentication.caller(headers, seen.address, host, "WEBSOCKET")
        self._rates.take(caller.identity)
        if route is None or route.role is not AccessRole.WORKER:
            raise RouteNotFound("this path accepts no WebSocket")
        caller.need(route.role)
        if self._server.is_stopping:
            raise NotReady("this server is stopping")
        return caller

    async def _respond(self, request: Request, request_id: str) -> tuple[Response, str]:
        """The answer, and which operation was asked for."""
        address = request.client.host if request.client else ""
        seen = SeenRequest(address=address, verb=UNKNOWN)
        try:
            return await self._answer(request, request_id, seen), seen.verb
        except PerdureError as refusal:
            return self._refusal(refusal, request_id, seen), seen.verb
        except asyncio.CancelledError:
            if not self._server.is_stopping:  # else its time is up
                raise
            return self._refusal(NotReady("this server is stopping"), request_id, seen), seen.verb
        except Exception:
            _log.exception("request %s (%s %s) failed", request_id, request.method, seen.verb)
            return self._refusal(ServerFault(f"request {request_id} failed"), request_id, seen), seen.verb

    def _refusal(self, refusal: PerdureError, request_id: str, seen: SeenRequest) -> Response:
        answer = status_json(refusal, seen.path) if seen.is_kubernetes else problem_json(refusal, request_id)
        status, headers, body = answer
        refusal.__traceback__ = None  # its frames have the body of the request, and perhaps the refusal itself
        if seen.must_audit(status):
            who = seen.caller
            self._server.audit.refuse(
                AuditEntry(
                    who.name if who else "",
                    who.via if who else "",
                    seen.verb,
                    refusal.code,
                    source=seen.address,
                    request=request_id,
                )
            )
        if status == 413 or status == 408:
            headers["Connection"] = "close"
        return Response(body, status, headers)

    async def _answer(self, request: Request, request_id: str, seen: SeenRequest) -> Response:
        server = self._server
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        router = self._router
        if is_kubernetes_path(raw_path, request.headers):
            seen.is_kubernetes, raw_path, router = True, raw_path.removesuffix(b"/"), self._facade
        route: Route | None = None
        with suppress(ApiError, BadRequest):  # whoever is unknown is told that first
            route, seen.path = router.find(request.method, split_path(raw_path))
        values = seen.path
        if route is not None:
            seen.verb, seen.changes = route.verb, route.changes
        is_open = route is not None and route.role is None
        headers, seen.address = server.authentication.read_headers(request.scope, seen.address)
        host = check_origin(headers, server.hosts, is_health=is_open and not seen.changes)
        if is_open:
            caller = Caller("", AccessRole.VIEWER, via=OPEN)
        elif route and route.takes_signatures and await server.authentication.is_stranger(headers, seen.address, host):
            caller = Caller("", AccessRole.OPERATOR, via=SIGNATURE)
        else:
            caller = await server.authentication.caller(headers, seen.address, host, request.method)
            seen.caller = caller.as_recorded(headers)
            if route is None or not route.is_refused_last:
                self._rates.take(caller.identity)
        if route is None:
            route, values = router.find(request.method, split_path(raw_path))
        wants_stream = check_accept(route, headers)
        call = ApiCall(
            server.engine, server.documents, caller, values, headers, request_id=request_id, source=seen.address
        )
        call.live, call.server, call.is_gone = server.live, server, request.is_disconnected
        if route.changes:
            call.begin_act(route.verb)
        if route.names_run:
            call.row = await visible_run(server.engine, caller, values["id"])
            call.audit(f"run/{call.row.id}", run=call.row.id, namespace=call.row.namespace)
        if route.check is not None:
            route.check(call)
        most = largest_body(route, headers, self._limits_of(caller))
        body = await self._large.room(caller.identity, most)
        try:
            await self._check_role(request, route, call)
            if server.is_stopping and route.changes:
                raise NotReady("this server is stopping")
            if caller.via != SIGNATURE:
                return await self._carry_out(request, route, call, body, wants_stream=wants_stream)
            with self._neighbours.one(network_of(seen.address)), self._strangers.one(""):
                return await self._carry_out(request, route, call, body, wants_stream=wants_stream)
        finally:
            body.set(0)
            call.end_act()

    def _limits_of(self, caller: Caller) -> RequestLimits:
        return {SIGNATURE: self._strangers_limits, OPEN: self._open_limits}.get(caller.via, self._server.limits)

    async def _check_role(self, request: Request, route: Route, call: ApiCall) -> None:
        caller = call.caller
        if route.is_for_every_role or route.role is None or caller.role.includes(route.role):
            return
        if route.body is not None and caller.namespaces is not None:
            text = await read_body(request, call.headers, self._server.limits)
            value: Any = None
            with suppress(BadRequest, ApiError):
                value = await done_aside(len(text), partial(read_json, route, call.headers, text))
            check_body(caller, value)
        caller.need(route.role)

    async def _carry_out(
        self, request: Request, route: Route, call: ApiCall, body: HeldBytes, *, wants_stream: bool
    ) -> Response:
        caller, headers = call.caller, call.headers
        call.query = read_query(route.query, request.scope.get("query_string", b""))
        text = await read_body(request, headers, self._limits_of(caller), is_value=route.takes_value)
        body.set(len(text))
        await call.check_caller()
        value: Any = None
        key = idempotency_key(headers) if route.takes_key and caller.via != SIGNATURE else None
        if route.is_raw:
            call.raw_body = text
            if key is not None:
                value = (await done_aside(len(text), partial(sha256, text))).hexdigest()
        elif route.body is not None:
            value, call.body = await done_aside(len(text), partial(read_typed, route, headers, text))
        elif text.strip():
            raise BadRequest("this request takes no body")
        if key is not None:
            call.key = sha256(f"{caller.via}\0{caller.name}\0{key}".encode()).hexdigest()[:32]
        if key is not None and route.is_keyed_by_run:
            call.body_digest = await done_aside(len(text), partial(digest_of_request, request, value))
            key = None
        if wants_stream:
            return await self._stream(request, route, call)
        if call.act is not None:
            call.engine = call.engine.acting(call.act)
        result = await (self._once(request, route, call, key, text, value) if key else self._handle(route, call))
        if isinstance(result, EventStream):
            return await self._followed(request, call, result)
        return await make_response(result, partial(self._large.hold, caller.identity))

    async def _handle(self, route: Route, call: ApiCall) -> Result:
        if not route.is_expensive:
            result = await route.handler(call)
        else:
            async with self._expensive_turn(call):
                await call.check_caller()
                try:
                    async with asyncio.timeout(route.longest or self._server.limits.expensive_wait * 6):
                        result = await route.handler(call)
                except TimeoutError:
                    raise NotReady("this takes too long now") from None
        if call.act is not None and not call.act.is_recorded:  # nothing was changed, or nothing that is in the store
            await self._record(call.act)
        return result

    def _expensive_turn(self, call: ApiCall) -> AbstractAsyncContextManager[None]:
        return self._expensive.turn(call.caller.identity, self._server.limits.expensive_wait)

    async def _record(self, act: Act) -> None:
        if act.key is None:
            await self._server.audit.record(act)
        else:
            await self._server.engine.store.acting(act).add_audit_rows([act.record().audit])

    async def _once(self, request: Request, route: Route, call: ApiCall, key: str, text: bytes, value: Any) -> Result:
        """Under an Idempotency-Key that no run keeps: the same answer again, for a day."""
        assert call.act is not None
        store, who = self._server.engine.store, call.caller.owner_of_keys
        now = self._server.engine.clock.now()
        asked = RequestKeyRow(await done_aside(len(text), partial(digest_of_request, request, value)), now)
        known = await store.request_key(who, key)
        if known is None:
            call.act.key = RequestKey(who, key, asked)
            with suppress(RequestKeyTaken):  # by the same request, sent at the same time
                result = await self._handle(route, call)
                assert isinstance(result, Answer)
                body = None if call.is_secret else jsontext.encode(result.body)
                await store.answer_request_key(who, key, result.status, body)
                return result
            known = await self._answered(who, key)
        if known.digest != asked.digest:
            raise Conflict("the Idempotency-Key was used for another request", hint="Use another key.")
        if known.status is None:  # the process ended after the act, and before its answer was kept
            return told_again(route, call)
        if known.answer is None:
            raise Conflict(ANSWERED_ONCE, hint="Use another key.")
        return Answer(jsontext.decode(known.answer), known.status)

    async def _answered(self, who: str, key: str) -> RequestKeyRow:
        """What another request has done under a key, with its answer as soon as that is there."""
        for _ in range(ANSWER_LOOKS):
            known = await self._server.engine.store.request_key(who, key)
            if known is not None and known.status is not None:
                return known
            await asyncio.sleep(0.05)
        if known is None:
            raise NotReady("another request under the same Idempotency-Key is under way")
        return known

    async def _stream(self, request: Request, route: Route, call: ApiCall) -> Response:
        async with self._expensive_turn(call):  # where it continues is looked up in the whole history
            await call.check_caller()
            result = await route.handler(call)
        return await (make_response(result) if isinstance(result, Answer) else self._followed(request, call, result))

    async def _followed(self, request: Request, call: ApiCall, result: EventStream) -> Response:
        if request.method == "HEAD":  # its headers are asked for, and nobody follows
            await result.events.aclose()
        stream = FollowedStream(result.events, headers={**STREAM_HEADERS, **result.headers})
        stream.turn = self._turn
        stream.place.enter_context(self._streams.one(call.caller.identity))
        return stream
