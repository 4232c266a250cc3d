"""Routes and how a request finds its own. Paths are split before they are decoded: `%2F` is part of a segment."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from perdure.server.calls import ApiCall, Result
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import MethodNotAllowed, RouteNotFound
from perdure.views.errors import BadRequest

Handler = Callable[[ApiCall], Awaitable[Result]]

SHORT_PATH, PATHS_KEPT = 40, 256  # bytes; how many are kept, split
PATHS_OF_RUNS = ("/api/v1/runs/{id}", "/api/executions/{id}", "/api/vars/{id}", "/api/ehdb/executions/{id}")


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API. Routing, OpenAPI, the client and the documentation are made from it."""

    method: str
    path: str  # `/api/v1/runs/{id}/cancel`; `{id}` names a run; `{path+}` stands for one segment or more
    role: AccessRole | None  # None: open, no token is asked for
    handler: Handler
    summary: str
    query: type | None = None  # a struct
    body: type | None = None  # a struct; None: no body is read
    answer: Any = None  # the type of the answer's body
    answers: Mapping[int, Any] = field(default_factory=dict)  # the types of answers with other statuses
    status: int = 200  # of the usual answer
    statuses: tuple[int, ...] = ()  # of others that are not refusals
    refusals: tuple[int, ...] = ()  # besides those that every route has
    changes: bool = False  # it is audited, and takes an Idempotency-Key
    is_keyed_by_run: bool = False  # the run, or its task, keeps the key; else a row does
    is_expensive: bool = False  # a few at a time per token
    longest: float | None = None  # seconds that an expensive one may take; None: as the limits say
    streams: bool = False  # it also answers with text/event-stream
    body_is_optional: bool = False
    takes_untyped_body: bool = False  # a body without a media type is read as JSON
    takes_signatures: bool = False  # the body may be signed instead of a token being sent; the handler checks it
    is_text: bool = False  # it is answered as text
    text_type: str = "text/plain"
    is_raw: bool = False  # the handler reads the body itself
    check: Callable[[ApiCall], None] | None = None  # what the caller may see, before what the role allows
    takes_value: bool = False  # a large value: the limit of its size is another one
    is_for_every_role: bool = False
    is_refused_last: bool = False  # it is not counted among the requests of its token
    verb: str = field(init=False)  # how the audit log and OpenAPI name it
    names_run: bool = field(init=False)
    takes_key: bool = field(init=False)  # an Idempotency-Key

    def __post_init__(self) -> None:
        object.__setattr__(self, "verb", self.handler.__name__.strip("_"))
        object.__setattr__(self, "takes_key", self.changes or self.is_keyed_by_run)
        object.__setattr__(self, "names_run", self.path.startswith(PATHS_OF_RUNS))

    @property
    def parameters(self) -> list[str]:
        return [part[1 : part.index("}")].rstrip("+") for part in self.path.split("/") if part.startswith("{")]


@dataclass(slots=True)
class _Node:
    """The routes below one beginning of a path."""

    literal: "dict[str, _Node]"
    parameter: "_Node | None"
    name: str
    routes: dict[str, Route]


class RouteTable:
    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node({}, None, "", {})
        self._long: dict[tuple[str, str, str], _Node] = {}  # by beginning, name and end of the path
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        beginning, plus, end = route.path.partition("+}")
        if plus:
            beginning, _, name = beginning.rpartition("/{")
            node = self._long.setdefault((beginning, name, end), _Node({}, None, name, {}))
        for part in [] if plus else filter(None, route.path.split("/")):
            if part.startswith("{"):
                if node.parameter is None:
                    node.parameter = _Node({}, None, part[1:-1], {})
                node = node.parameter
            else:
                node = node.literal.setdefault(part, _Node({}, None, "", {}))
        assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
        node.routes[route.method] = route

    def find(self, method: str, segments: Sequence[str]) -> tuple[Route, Mapping[str, str]]:
        """The route, and the values of its parameters."""
        node, values = self._find_node(segments) or self._find_long(segments)
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            methods = sorted({*node.routes, *(["HEAD"] if "GET" in node.routes else [])})
            raise MethodNotAllowed(f"{method} is not possible here", allow=", ".join(methods))
        return route, values

    def _find_node(self, segments: Sequence[str]) -> tuple[_Node, dict[str, str]] | None:
        node, values = self._root, {}
        for segment in segments:
            below = node.literal.get(segment)
            if below is None and node.parameter is not None:
                below = node.parameter
                values[below.name] = segment
            if below is None:
                return None
            node = below
        return (node, values) if node.routes else None

    def _find_long(self, segments: Sequence[str]) -> tuple[_Node, dict[str, str]]:
        """Of paths with a part of any length; their beginnings and ends are literal."""
        for (beginning, name, end), node in self._long.items():
            before, behind = beginning.strip("/").split("/"), end.strip("/").split("/") if end else []
            middle = segments[len(before) : len(segments) - len(behind)]
            if middle and [*segments] == [*before, *middle, *behind]:
                return node, {name: "/".join(middle)}
        raise RouteNotFound(f"there is nothing under /{'/'.join(segments)}")


def split_path(raw_path: bytes) -> Sequence[str]:
    """The segments of a path, each decoded for itself."""
    return _split_known(raw_path) if len(raw_path) <= SHORT_PATH else _split(raw_path)


def _split(raw_path: bytes) -> tuple[str, ...]:
    path = raw_path.partition(b"?")[0]
    if path in (b"", b"/"):
        return ()
    segments = []
    for part in path.removeprefix(b"/").split(b"/"):
        try:
            segment = unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            raise BadRequest(f"a part of the path is not UTF-8: {part[:60]!r}") from None
        if segment in ("", ".", ".."):
            raise BadRequest(f"{segment!r} is not a part of a path", hint="Leave out empty parts, `.` and `..`.")
        if "\0" in segment:
            raise BadRequest("a part of the path contains a NUL character")
        segments.append(segment)
    return tuple(segments)


_split_known = lru_cache(PATHS_KEPT)(_split)  # most requests are to a few short paths
