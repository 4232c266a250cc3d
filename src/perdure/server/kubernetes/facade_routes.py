"""The routes of the Kubernetes API; what they serve is in `discovery`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.server.calls import ApiCall, Result
from perdure.server.handlers import system_handlers as system
from perdure.server.kubernetes import access_reviews, discovery, openapi_pages
from perdure.server.kubernetes import object_handlers as objects
from perdure.server.kubernetes.feed_tail import FeedTail
from perdure.server.kubernetes.run_resources import RunViews
from perdure.server.kubernetes.selectors import ObjectQuery
from perdure.server.route_table import Handler, Route
from perdure.views.administration.access_tokens import AccessRole

if TYPE_CHECKING:
    from perdure.engine.client import Client

VIEWER = AccessRole.VIEWER
GROUP = "/apis/{group}/{version}"
CORE = "/api/v1"
NAMESPACES = f"{CORE}/namespaces"
REVIEWING = (discovery.AUTHORIZATION, discovery.AUTHENTICATION)
PLACES = (
    f"{GROUP}/{{plural}}",
    f"{GROUP}/namespaces/{{namespace}}/{{plural}}",
    f"{NAMESPACES}/{{namespace}}/{{plural}}",
)


ANY_TYPE: dict[str, Any] = {"is_text": True, "text_type": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}


def _page(path: str, handler: Handler, summary: str, **more: Any) -> Route:
    return Route("GET", path, VIEWER, handler, summary, query=ObjectQuery, **more)


def _read(path: str, handler: Handler, summary: str, **more: Any) -> Route:
    return Route("GET", path, VIEWER, handler, summary, query=ObjectQuery, check=objects.check_reading, **more)


def _of_group(group: str, handler: Handler) -> Handler:
    """For paths in which the group is literal."""

    async def answer(call: ApiCall) -> Result:
        call.path = {**call.path, "group": group}
        return await handler(call)

    answer.__name__ = handler.__name__
    return answer


def _write(method: str, path: str, handler: Handler, summary: str) -> Route:
    return Route(
        method,
        path,
        AccessRole.OPERATOR,
        handler,
        summary,
        query=ObjectQuery,
        check=objects.check_writing,
        changes=True,
        is_raw=True,
    )


def _collection(path: str) -> tuple[Route, ...]:
    return (
        _read(path, objects.list_objects, "objects of a kind", is_expensive=True),
        _write("POST", path, objects.create_object, "create an object"),
        _write("DELETE", path, objects.delete_collection, "delete all that match"),
    )


def _object(path: str) -> tuple[Route, ...]:
    return (
        _read(path, objects.get_object, "one object"),
        _write("PUT", path, objects.replace_object, "replace an object"),
        _write("PATCH", path, objects.patch_object, "change an object"),
    )


FACADE_ROUTES = (
    _page("/version", system.get_version, "the version of the server"),
    _page("/api", discovery.list_core_versions, "versions of the core group"),
    _page("/apis", discovery.list_groups, "groups"),
    _page("/apis/{group}", discovery.get_group, "one group"),
    _page("/openapi/v2", openapi_pages.get_swagger, "all objects, in version 2", **ANY_TYPE),
    _page("/openapi/v3", openapi_pages.list_openapi, "pages of OpenAPI"),
    _page("/openapi/v3/{place+}", openapi_pages.get_openapi_page, "objects and operations of a group"),
    _page(GROUP, discovery.list_resource_kinds, "resources of a group"),
    _page(CORE, discovery.list_resource_kinds, "resources of the core group"),
    *(
        Route(
            "POST",
            f"/apis/{group}/{{version}}/{{review}}",
            VIEWER,
            access_reviews.review_access,
            "what the token may do",
            query=ObjectQuery,
            is_raw=True,
            is_for_every_role=True,
        )
        for group in REVIEWING
    ),
    *(
        _page(f"/apis/{group}{below}", _of_group(group, handler), "resources of a group")
        for group in REVIEWING
        for below, handler in (("", discovery.get_group), ("/{version}", discovery.list_resource_kinds))
    ),
    *_collection(f"{CORE}/{{plural}}"),  # of all namespaces
    *_collection(NAMESPACES),
    *_object(f"{NAMESPACES}/{{namespace}}"),
    _write("DELETE", f"{NAMESPACES}/{{namespace}}", objects.delete_object, "delete a namespace"),
    *(
        route
        for path in PLACES
        for route in (
            *_collection(path),
            *_object(f"{path}/{{name}}"),
            _write("DELETE", f"{path}/{{name}}", objects.delete_object, "delete an object"),
            *_object(f"{path}/{{name}}/{{part}}"),
        )
    ),
)


class KubernetesFacade:
    """The routes, and what they share in one process."""

    def __init__(self, routes: Sequence[Route], engine: "Client") -> None:
        self.routes = routes
        self.run_views = RunViews()
        self.feed_tail = FeedTail(engine, self.run_views)
