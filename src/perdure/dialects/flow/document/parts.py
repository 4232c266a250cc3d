"""The rules for the parts that Steps share (sections 2.2 and 2.3 of MWL)."""

from perdure.dialects.flow.document.cursor import Cursor, EnclosingFlow, Rule, comment
from perdure.dialects.flow.middleware.protocol import PHASES
from perdure.dialects.flow.plan.provider_catalog import uri_type
from perdure.dialects.flow.plan.secrets import secret_places
from perdure.dialects.flow.run.subrun import NAME as RUN


def anything(cursor: Cursor) -> None:
    """A literal or an expression, of any type."""
    refuse_secrets(cursor)


def _typed(kind: str) -> Rule:
    """An expression, or a literal of this kind (O-30)."""

    def rule(cursor: Cursor) -> None:
        if not cursor.is_expression:
            cursor.is_literal(kind)

    return rule


string = _typed("a string")
array = _typed("an array")
arguments = _typed("an object")


def middleware_arguments(cursor: Cursor) -> None:
    arguments(cursor)
    if "call" not in (cursor.value if isinstance(cursor.value, dict) else ()):
        refuse_secrets(cursor)


boolean = _typed("a boolean")
boolean_or_null = _typed("a boolean or null")
object_or_null = _typed("an object or null")

ENVELOPE: dict[str, Rule] = {
    "type": string,
    "code": string,
    "message": string,
    "details": anything,
    "retryable": boolean_or_null,
    "previous": object_or_null,
}


def assign(cursor: Cursor) -> None:
    if cursor.has("an object"):
        refuse_secrets(cursor)


def next_step(cursor: Cursor) -> None:
    if not cursor.has("a string"):
        return
    assert cursor.enclosing is not None
    steps = cursor.enclosing.raw.get("steps")
    if isinstance(steps, dict) and cursor.value not in steps:
        message = f"there is no Step {cursor.value!r} in this Flow{cursor.guess(cursor.value, list(steps))}"
        cursor.problem("MWL-024", message, hint="`next` names a Step of the same `steps` object.")


# Clauses.


def catch(cursor: Cursor) -> None:
    each(cursor, _catch_clause)


def _catch_clause(cursor: Cursor) -> None:
    cursor.closed(CATCH, ("match", "next"), subject="a catch clause")


def matcher(cursor: Cursor) -> None:
    if not cursor.closed(MATCHER, code="MWL-041", subject="a failure matcher"):
        return
    if not cursor.value:
        cursor.problem("MWL-041", "a failure matcher needs at least one of 'codes', 'types' and 'retryable'")


def patterns(cursor: Cursor) -> None:
    if not cursor.has("an array", "MWL-041"):
        return
    if not cursor.value:
        cursor.problem("MWL-041", f"{cursor.path[-1]!r} must not be empty")
    for index in range(len(cursor.value)):
        cursor.at(index).has("a string", "MWL-041")


def types(cursor: Cursor) -> None:
    patterns(cursor)
    if isinstance(cursor.value, list) and "success" in cursor.value:
        cursor.problem("MWL-041", "'types' lists failure types: 'success' is not allowed")


def retryable(cursor: Cursor) -> None:
    cursor.has("a boolean", "MWL-041")


CATCH: dict[str, Rule] = {
    "match": matcher,
    "output": anything,
    "assign": assign,
    "next": next_step,
    "comment": comment,
}
MATCHER: dict[str, Rule] = {"codes": patterns, "types": types, "retryable": retryable}


def refuse_success(cursor: Cursor) -> None:
    if cursor.value.get("type") == "success":
        cursor.problem("MWL-040", "a failure cannot have the type 'success'", "type")


# Calls.


def call(cursor: Cursor) -> None:
    if cursor.closed(CALL, subject="a call"):
        cursor.exactly_one("provider", "flow", code="MWL-028")
        provider = cursor.value.get("provider")
        target = cursor.report.catalog.call(provider) if isinstance(provider, str) else None
        makes_data = "flow" in cursor.value or (target is not None and target.name in ("", RUN))
        if makes_data and "with" in cursor.value:
            refuse_secrets(cursor.at("with"))


def refuse_secrets(cursor: Cursor) -> None:
    """A secret may only be passed to a provider: anywhere else it would become data."""
    for path, name in secret_places(cursor.value):
        at = cursor
        for step in path:
            at = at.at(step)
        hint = "Name it in `with` of the call of a provider that needs it."
        at.problem("SECRET", f"the secret {name!r} would become data here", hint=hint)


SUCCESS_ARM: dict[str, Rule] = {"value": anything, "assign": assign}
FAILURE_ARM: dict[str, Rule] = {"assign": assign}


def success_arm(cursor: Cursor) -> None:
    cursor.closed(SUCCESS_ARM, subject="'onSuccess' of a call")


def failure_arm(cursor: Cursor) -> None:
    cursor.closed(FAILURE_ARM, subject="'onFailure' of a call")


def call_provider(cursor: Cursor) -> None:
    if not _is_uri(cursor, "provider.call"):
        return
    catalog = cursor.report.catalog
    call = catalog.call(cursor.value)
    if call is None:
        message = f"there is no provider {cursor.value!r}{_near_provider(cursor, catalog.call_uris())}"
        cursor.problem("MWL-031", message, hint="Load your own providers with --load.")
    elif call.name and (refusal := catalog.refusal(call.name)) is not None:
        cursor.problem("POLICY", refusal, hint="An operator can allow it; see docs/security.md.")


def _near_provider(cursor: Cursor, uris: list[str]) -> str:
    """Compares names: what all addresses begin with would make any two of them look alike."""
    names = {uri.split("/")[-2]: uri for uri in uris}
    name = cursor.value.split("/")[-2]
    if name in names:
        return f"; did you mean {names[name]!r}?"
    guess = cursor.guess(name, list(names))
    return next((f"; did you mean {uri!r}?" for near, uri in names.items() if f"{near!r}?" in guess), "")


def _is_uri(cursor: Cursor, expected: str) -> bool:
    if not cursor.has("a string"):
        return False
    kind = uri_type(cursor.value)
    if kind is None:
        cursor.problem(
            "MWL-031", f"{cursor.value!r} is not a provider URI", hint="For example: mwl:provider.call/perdure/http/v1."
        )
    elif kind != expected:
        cursor.problem("MWL-031", f"expected a {expected} URI here, not a {kind} URI")
    return kind == expected


def flow_target(cursor: Cursor) -> None:
    from perdure.dialects.flow.document.flows import flow

    assert cursor.enclosing is not None
    if isinstance(cursor.value, dict):
        _add_edge(cursor, cursor.path)
        flow(cursor, is_root=False)
    elif cursor.has("a string"):
        around: EnclosingFlow | None = cursor.enclosing
        while around is not None:
            flows = around.raw.get("flows")
            if isinstance(flows, dict) and cursor.value in flows:
                _add_edge(cursor, (*around.path, "flows", cursor.value))
                return
            around = around.outer
        cursor.problem(
            "MWL-029",
            f"there is no Flow named {cursor.value!r} in scope here{cursor.guess(cursor.value, _flow_names(cursor))}",
        )


def _flow_names(cursor: Cursor) -> list[str]:
    names: list[str] = []
    around = cursor.enclosing
    while around is not None:
        flows = around.raw.get("flows")
        names += flows if isinstance(flows, dict) else []
        around = around.outer
    return names


def _add_edge(cursor: Cursor, callee: tuple[str | int, ...]) -> None:
    assert cursor.enclosing is not None
    cursor.report.edges.setdefault(cursor.enclosing.path, []).append((callee, cursor.path))


CALL: dict[str, Rule] = {
    "provider": call_provider,
    "flow": flow_target,
    "input": anything,
    "with": arguments,
    "onSuccess": success_arm,
    "onFailure": failure_arm,
    "comment": comment,
}


# Middleware.


def step_stack(cursor: Cursor) -> None:
    each(cursor, _middleware_entry)


flow_stack = step_stack


def _middleware_entry(cursor: Cursor) -> None:
    if not cursor.closed(MIDDLEWARE, ("provider",), subject="a middleware entry"):
        return
    uri = cursor.value.get("provider")
    provider = cursor.report.catalog.middleware.get(uri) if isinstance(uri, str) else None
    for phase in PHASES:
        if phase in cursor.value:
            _phase(cursor.at(phase), phase, is_structural=provider is not None and provider.dispatches)
    if provider is None:
        return
    if provider.dispatches:
        _structural(cursor)
    for phase, key in provider.required:
        block = cursor.value.get(phase)
        if not isinstance(block, dict) or key not in block:
            cursor.problem("MWL-043", f"this middleware needs '{phase}.{key}'")


def middleware_provider(cursor: Cursor) -> None:
    if not _is_uri(cursor, "provider.middleware"):
        return
    middleware = cursor.report.catalog.middleware
    provider = middleware.get(cursor.value)
    if provider is None:
        cursor.problem(
            "MWL-031", f"there is no middleware {cursor.value!r}{cursor.guess(cursor.value, list(middleware))}"
        )
    elif cursor.level not in provider.attachment:
        cursor.problem("MWL-032", f"{cursor.value!r} cannot be attached at the {cursor.level} level")


MIDDLEWARE: dict[str, Rule] = {
    "provider": middleware_provider,
    "comment": comment,
    **dict.fromkeys(PHASES, anything),
}
_EVERY_PHASE: dict[str, Rule] = {"when": boolean, "with": middleware_arguments, "assign": assign}
PHASE_MEMBERS: dict[str, dict[str, Rule]] = {
    "onEntry": {**_EVERY_PHASE, "output": anything},
    "onSuccess": {**_EVERY_PHASE, "value": anything},
    "onFailure": {**_EVERY_PHASE, **ENVELOPE},
    "onAlways": _EVERY_PHASE,
}


def _phase(cursor: Cursor, name: str, is_structural: bool) -> None:
    members = PHASE_MEMBERS[name]
    if is_structural and name == "onAlways":
        members = {**members, "with": anything}
    if cursor.closed(members, subject=f"'{name}'") and name == "onFailure":
        refuse_success(cursor)


def _structural(cursor: Cursor) -> None:
    """The cleanup of `finally` is a part of the document, not a value (MWL-044)."""
    block = cursor.value.get("onAlways")
    arguments = block.get("with") if isinstance(block, dict) else None
    if not isinstance(arguments, dict):
        cursor.problem("MWL-044", "'onAlways.with' must be an object with the 'call' to be dispatched")
        return
    inside = cursor.at("onAlways", "with")
    inside.closed({"call": call, "middleware": step_stack}, ("call",), "MWL-044", "'onAlways.with'")


def each(cursor: Cursor, rule: Rule, code: str = "MWL-022") -> None:
    if cursor.has("an array", code):
        for index in range(len(cursor.value)):
            rule(cursor.at(index))
