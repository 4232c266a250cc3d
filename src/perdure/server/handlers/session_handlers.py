"""Log-in and log-out of browsers."""

from typing import Annotated

import msgspec

from perdure.server.browser_sessions import BrowserSessions, csrf_of
from perdure.server.calls import Answer, ApiCall, Caller, Result
from perdure.server.request_types import Body
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.errors import BadRequest
from perdure.views.times import iso


class SessionBody(Body):
    """One of them."""

    token: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    code: Annotated[str, msgspec.Meta(max_length=200)] | None = None


async def begin_session(call: ApiCall) -> Result:
    body: SessionBody = call.body
    authentication = call.server.authentication
    sessions: BrowserSessions = authentication.sessions
    call.is_secret = True
    if (body.token is None) == (body.code is None):
        raise BadRequest("a session is made from `token` or from `code`")
    if body.token is not None:
        row = await authentication.tokens.find(body.token)
    else:
        row = await sessions.take_code(body.code or "")
    if row is None:
        authentication.refuse(call.source, "this token or code is not known here, has expired or was used")
    authentication.count_log_in(row.name)
    secret, header = await sessions.begin(row.name)
    about = (row.name, AccessRole(row.role), "token", row.namespaces, row.pools, row.expires_at)
    call.caller = Caller(*about, csrf=csrf_of(secret))
    return Answer(who_json(call.caller), 201, {"Set-Cookie": header})


async def end_session(call: ApiCall) -> Result:
    if not call.caller.session:
        raise BadRequest("this request has no session", hint="A token is revoked: perdure token revoke NAME.")
    sessions: BrowserSessions = call.server.authentication.sessions
    await sessions.end(call.caller.session)
    return Answer(None, 204, {"Set-Cookie": sessions.end_header()})


def who_json(caller: Caller) -> dict[str, object]:
    who: dict[str, object] = {
        "name": caller.name,
        "role": caller.role.value,
        "namespaces": None if caller.namespaces is None else list(caller.namespaces),
        "pools": list(caller.pools),
        "expires_at": iso(caller.expires_at),
        "via": caller.via,
    }
    return who | {name: value for name, value in (("issuer", caller.issuer), ("csrf", caller.csrf)) if value}
