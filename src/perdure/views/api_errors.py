"""Refusals that only a server makes, or a client of one hears. Each has its HTTP status and its page."""

from typing import ClassVar

from perdure.kernel.errors import PerdureError

HINT_OF_REQUESTS = "`GET /openapi.json` describes what a request may say."
"""What the API says where a command names its --help."""


class ApiError(PerdureError):
    """A request was refused by the server."""

    code = "API"
    hint = "Follow what the message says."
    status: ClassVar[int] = 400
    retry_after: int | None = None  # seconds


class UnknownMember(ApiError):
    """The request has a member or a parameter that this server does not know."""

    code = "UNKNOWN-MEMBER"
    hint = "Correct the spelling, or ask a server of the version that knows it; /openapi.json lists what exists."


class NotAuthenticated(ApiError):
    """The request has no access token, or one that is not known, expired or revoked."""

    code = "NOT-AUTHENTICATED"
    hint = "Send `Authorization: Bearer TOKEN`; `perdure token create` makes a token."
    status = 401


class AccessDenied(ApiError):
    """The access token does not allow this."""

    code = "ACCESS-DENIED"
    hint = "Use a token with the role that the message names."
    status = 403


class PolicyDenied(ApiError):
    """The operator's policy does not allow what the document asks for."""

    code = "POLICY"
    hint = "An operator can allow it: [policy] in the settings file; see docs/security.md."
    status = 403


class NamespaceNotFound(ApiError):
    """There is no such namespace, or the access token may not see it."""

    code = "NAMESPACE-NOT-FOUND"
    hint = "Use a namespace of your token; `GET /api/v1/whoami` lists them."
    status = 404


class RouteNotFound(ApiError):
    """The server has nothing under this path."""

    code = "ROUTE-NOT-FOUND"
    hint = "/openapi.json lists all paths."
    status = 404


class LargeValueNotFound(ApiError):
    """The run, or the task of the lease, has no such value or document."""

    code = "VALUE-NOT-FOUND"
    hint = "Ask for a digest that the history of the run, or the answer of the lease, has named."
    status = 404


class PoolNotFound(ApiError):
    """No route, task or worker names this pool."""

    code = "POOL-NOT-FOUND"
    hint = "List the pools: GET /api/v1/pools."
    status = 404


class HookNotFound(ApiError):
    """There is no hook of that name."""

    code = "HOOK-NOT-FOUND"
    hint = "List the hooks: GET /api/v1/hooks."
    status = 404


class TokenNotFound(ApiError):
    """There is no token of that name."""

    code = "TOKEN-NOT-FOUND"
    hint = "List the tokens with `perdure token list`."
    status = 404


class MethodNotAllowed(ApiError):
    """The path exists, but not for this method."""

    code = "METHOD-NOT-ALLOWED"
    hint = "The header Allow lists the methods."
    status = 405


class NotAcceptable(ApiError):
    """The request accepts no media type in which this can be answered."""

    code = "NOT-ACCEPTABLE"
    hint = "Send `Accept: application/json`, or no Accept header."
    status = 406


class RequestTimeout(ApiError):
    """The request was not sent completely within the time limit."""

    code = "REQUEST-TIMEOUT"
    hint = "Send it again, in one piece."
    status = 408


class PositionExpired(ApiError):
    """Changes behind this position of the change feed are not kept any more, or it is not a position of this feed."""

    code = "POSITION-EXPIRED"
    hint = "Ask for the position without `after`, read the list of runs again, and continue from there."
    status = 410


class BodyTooLarge(ApiError):
    """The body of the request is larger than the server accepts."""

    code = "BODY-TOO-LARGE"
    hint = "Send less, or have the operator raise the limit."
    status = 413


class UnsupportedMediaType(ApiError):
    """The body is not JSON, or does not say so."""

    code = "MEDIA-TYPE"
    hint = "Send `Content-Type: application/json`."
    status = 415


class HostUnknown(ApiError):
    """The Host header names neither an address that the server listens on nor one of its configured names."""

    code = "HOST-UNKNOWN"
    hint = "Use the address that the server printed, or have the operator add the name: --host NAME."
    status = 421


class HeaderTooLarge(ApiError):
    """The header of the request is larger than the server accepts."""

    code = "HEADER-TOO-LARGE"
    hint = "Send fewer or shorter header fields."
    status = 431


class TooManyRequests(ApiError):
    """More requests, streams or refused log-ins than the server allows."""

    code = "TOO-MANY-REQUESTS"
    hint = "Wait as long as Retry-After says."
    status = 429
    retry_after = 1


class NotReady(ApiError):
    """The server cannot answer now: it stops, or its store does not answer."""

    code = "NOT-READY"
    hint = "Try again after the time that Retry-After names, or ask another server."
    status = 503
    retry_after = 1


class NotOffered(ApiError):
    """The path is known from another program, and Perdure does not offer what it stands for."""

    code = "NOT-OFFERED"
    hint = "/openapi.json lists what exists."
    status = 501


class ServerUnreachable(ApiError):
    """Nobody answers at the server's address, or somebody who is not a Perdure server."""

    code = "SERVER-UNREACHABLE"
    hint = "Check the address, and that the server runs: `perdure serve` prints its address."
    status = 503
