"""Schedules of Impulses and requests for runs: listed, paused and backfilled, on a store or through the API."""

from typing import Annotated, Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.server.calls import Answer, ApiCall, Result
from perdure.server.request_types import Body
from perdure.views.access import Query, Question, Scope
from perdure.views.errors import BadRequest
from perdure.views.resources.resource_list import check_visible, meant_namespace
from perdure.views.resources.schedule_json import firings_json, read_range, schedule_json
from perdure.views.times import iso
from perdure.wiring import schedules


class ScheduleQuery(Query):
    """`name`: one schedule, and its next times as if it were neither paused nor disabled; none: all of them."""

    name: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    next: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1


async def read_schedules(client: Client, scope: Scope, query: ScheduleQuery) -> list[dict[str, Any]]:
    namespace = meant_namespace(scope, query.namespace) or DEFAULT_NAMESPACE
    if query.name is not None or not query.all_namespaces:
        check_visible(scope, namespace)
    administration = schedules(client)
    if query.name is not None:
        view = await administration.find(query.name, namespace, query.next)
        return [{**schedule_json(view), "next": firings_json(view)}]
    views = await administration.list(None if query.all_namespaces else namespace)
    seen = [view for view in views if scope.namespaces is None or view.entry.namespace in scope.namespaces]
    return [schedule_json(view) for view in seen]


SCHEDULES = Question(
    "list_schedules", "/schedules", "schedules of Impulses, with their next times", ScheduleQuery, Any, read_schedules
)


class PauseScheduleBody(Body):
    name: str
    namespace: str | None = None
    reason: str = ""
    by: str | None = None


class BackfillBody(Body):
    """`begin` and `end` are times; without a zone they are meant in the zone of the schedule."""

    name: str
    begin: str = msgspec.field(name="from")
    end: str = msgspec.field(name="to")
    namespace: str | None = None
    overlap: str | None = None
    dry_run: bool = False


def _place(call: ApiCall, namespace: str | None) -> str:
    place = call.caller.meant_namespace(namespace) or DEFAULT_NAMESPACE
    call.caller.need_namespace(place)
    return place


async def pause_schedule(call: ApiCall) -> Result:
    body: PauseScheduleBody = call.body
    namespace = _place(call, body.namespace)
    call.audit(f"schedule/{body.name}", namespace=namespace)
    view = await schedules(call.engine).pause(body.name, namespace, by=call.caller.name, reason=body.reason)
    return Answer(schedule_json(view))


async def unpause_schedule(call: ApiCall) -> Result:
    body: PauseScheduleBody = call.body
    namespace = _place(call, body.namespace)
    call.audit(f"schedule/{body.name}", namespace=namespace)
    return Answer(schedule_json(await schedules(call.engine).unpause(body.name, namespace)))


async def backfill_schedule(call: ApiCall) -> Result:
    body: BackfillBody = call.body
    namespace = _place(call, body.namespace)
    call.audit(f"schedule/{body.name}", namespace=namespace)
    return Answer(await backfill_json(call.engine, body, namespace))


async def backfill_json(client: Client, asked: BackfillBody, namespace: str) -> dict[str, Any]:
    """Record the times of a range to be started, all of them or none; those that wait already are named."""
    administration = schedules(client)
    view = await administration.find(asked.name, namespace)
    zone = view.schedule.timetable.zone
    begin, end = read_range(asked.begin, asked.end, zone, client.clock.wall())
    done = await administration.backfill(
        asked.name, namespace, begin, end, overlap=asked.overlap, is_dry_run=asked.dry_run
    )
    return {
        "name": view.name,
        "timezone": str(zone),
        "from": iso(begin),
        "to": iso(end),
        "dry_run": asked.dry_run,
        "times": [iso(at) for at in done.times],
        "waiting": [iso(at) for at in done.waiting],
    }


class TriggerBody(Body):
    """`story` as `NAME` or `NAMESPACE/NAME`; instead of it an `impulse`, whose event is the input."""

    story: str | None = None
    version: str | None = None
    impulse: str | None = None
    input: Any = None
    token: str | None = None
    key: str | None = None
    namespace: str | None = None


async def trigger_story(call: ApiCall) -> Result:
    body: TriggerBody = call.body
    namespace = _place(call, body.namespace)
    if (body.story is None) == (body.impulse is None):
        raise BadRequest("a trigger names a Story, or the Impulse that has heard of something")
    call.audit(f"story/{body.story}" if body.story else f"impulse/{body.impulse}", namespace=namespace)
    reference = None
    if body.story is not None:
        place, slash, _ = body.story.rpartition("/")
        if slash:
            call.caller.need_namespace(place)
        reference = await story_reference(call.engine, body.story, body.version, namespace)
    request = await call.engine.trigger(
        reference, body.input, token=body.token, key=body.key, impulse=body.impulse, namespace=namespace
    )
    return Answer(request, 202)


async def story_reference(client: Client, story: str, version: str | None, namespace: str) -> dict[str, str]:
    """How a request names its Story, which is in the catalog."""
    place, slash, name = story.rpartition("/")
    kind = client.catalog.kind("story")
    if not await client.store.resources([key := client.catalog.key(kind, name, place or namespace)]):
        raise ResourceNotFound(f"there is no {kind.title(name)} in namespace {key.namespace!r}")
    reference = {"name": name, **({"namespace": place} if slash and place != namespace else {})}
    return {**reference, "version": version} if version else reference
