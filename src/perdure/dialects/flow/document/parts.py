"""The parts that Steps are made of, and what each must look like (sections 2.2 and 2.3 of MWL)."""

from typing import Any

from perdure.dialects.flow.document.cursor import Context, Cursor, Rule, comment
from perdure.dialects.flow.middleware.protocol import PHASES
from perdure.dialects.flow.plan.provider_catalog import uri_type
from perdure.dialects.flow.plan.secrets import secret_places
from perdure.dialects.flow.run.subrun import NAME as RUN


def anything(look: Cursor) -> None:
    """A literal or an expression, of any type."""
    refuse_secrets(look)


def _typed(kind: str) -> Rule:
    """An expression, or a literal of this kind (O-30)."""

    def rule(look: Cursor) -> None:
        if not look.is_expression:
            look.is_or_report(kind)

    return rule


string = _typed("a string")
array = _typed("an array")
arguments = _typed("an object")


def _middleware_arguments(look: Cursor) -> None:
    arguments(look)
    if "call" not in (look.value if isinstance(look.value, dict) else ()):
        refuse_secrets(look)


boolean = _typed("a boolean")

ENVELOPE: dict[str, Rule] = {
    "type": string,
    "code": string,
    "message": string,
    "details": anything,
    "retryable": _typed("a boolean or null"),
    "previous": _typed("an object or null"),
}


def assign(look: Cursor) -> None:
    if look.has("an object"):
        refuse_secrets(look)


def next_step(look: Cursor) -> None:
    if not look.has("a string"):
        return
    assert look.around is not None
    steps = look.around.raw.get("steps")
    if isinstance(steps, dict) and look.value not in steps:
        message = f"there is no Step {look.value!r} in this Flow{look.guess(look.value, list(steps))}"
        look.problem("MWL-024", message, hint="`next` names a Step of the same `steps` object.")


# Clauses.


def catch(look: Cursor) -> None:
    _each(look, _catch_clause)


def _catch_clause(look: Cursor) -> None:
    members = {"match": matcher, "output": anything, "assign": assign, "next": next_step, "comment": comment}
    look.closed(members, ("match", "next"), what="a catch clause")


def matcher(look: Cursor) -> None:
    if not look.closed(
        {"codes": _patterns, "types": _types, "retryable": _retryable}, code="MWL-041", what="a failure matcher"
    ):
        return
    if not look.value:
        look.problem("MWL-041", "a failure matcher needs at least one of 'codes', 'types' and 'retryable'")


def _patterns(look: Cursor) -> None:
    if not look.has("an array", "MWL-041"):
        return
    if not look.value:
        look.problem("MWL-041", f"{look.path[-1]!r} must not be empty")
    for index in range(len(look.value)):
        look.at(index).has("a string", "MWL-041")


def _types(look: Cursor) -> None:
    _patterns(look)
    if isinstance(look.value, list) and "success" in look.value:
        look.problem("MWL-041", "a success is no failure: 'types' cannot hold 'success'")


def _retryable(look: Cursor) -> None:
    look.has("a boolean", "MWL-041")


def match_cases(look: Cursor) -> None:
    _each(look, _match_case, code="MWL-039")


def _match_case(look: Cursor) -> None:
    members = {"when": _predicate, "output": anything, "assign": assign, "next": next_step, "comment": comment}
    if look.closed(members, ("next",), what="a Match case") and "when" not in look.value:
        look.problem("MWL-039", "a Match case lacks 'when'")


def _predicate(look: Cursor) -> None:
    if not look.is_expression:
        look.problem("MWL-039", "'when' of a Match case must be an expression", hint='Write "{{ … }}".')


def match_default(look: Cursor) -> None:
    members = {"output": anything, "assign": assign, "next": next_step, "comment": comment}
    look.closed(members, ("next",), "MWL-022", "a Match default", foreign={"when": "MWL-039"})


def raised(look: Cursor) -> None:
    if look.closed(ENVELOPE, what="a Raise result"):
        if "code" not in look.value:
            look.problem("MWL-040", "a Raise result lacks 'code'")
        _no_success(look)


def _no_success(look: Cursor) -> None:
    if look.value.get("type") == "success":
        look.problem("MWL-040", "a failure cannot have the type 'success'", "type")


# Gather.


def scatter(look: Cursor) -> None:
    if not look.has("an array", "MWL-035"):
        return
    if not look.value:
        look.problem("MWL-035", "'calls' must not be empty")
    for index in range(len(look.value)):
        call(look.at(index))


def completion(look: Cursor) -> None:
    if look.closed({"successes": _successes, "wait": _wait}, what="'completion'") and "successes" not in look.value:
        look.problem("MWL-037", "'completion' lacks 'successes'")


def _successes(look: Cursor) -> None:
    if not look.is_expression and not _is_whole(look.value):
        look.problem("MWL-037", "'successes' must be an integer or an expression")


def _wait(look: Cursor) -> None:
    look.has("a boolean", "MWL-037")


def concurrency(look: Cursor) -> None:
    if look.is_expression:
        look.problem("MWL-042", "'concurrency' is literal: an expression cannot stand here")
    elif look.value is not None and not (_is_whole(look.value) and look.value >= 1):
        look.problem("MWL-036", "'concurrency' must be null or an integer of at least 1")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)


def gather_form(look: Cursor) -> None:
    """`over` with `call`, or `calls` (MWL-034)."""
    present = [name for name in ("over", "call", "calls") if name in look.value]
    if present not in (["over", "call"], ["calls"]):
        said = ", ".join(repr(name) for name in present) or "neither"
        look.problem("MWL-034", f"a Gather has either 'over' with 'call' or 'calls', here: {said}")


# Calls.


def call(look: Cursor) -> None:
    members: dict[str, Rule] = {
        "provider": _call_provider,
        "flow": _flow_target,
        "input": anything,
        "with": arguments,
        "onSuccess": _success_arm,
        "onFailure": _failure_arm,
        "comment": comment,
    }
    if look.closed(members, what="a call"):
        look.exactly_one("provider", "flow", code="MWL-028")
        provider = look.value.get("provider")
        target = look.findings.catalog.call(provider) if isinstance(provider, str) else None
        makes_data = "flow" in look.value or (target is not None and target.name in ("", RUN))
        if makes_data and "with" in look.value:
            refuse_secrets(look.at("with"))


def refuse_secrets(look: Cursor) -> None:
    """A secret goes to a provider, and nowhere else: anywhere else it would become data."""
    for path, name in secret_places(look.value):
        at = look
        for step in path:
            at = at.at(step)
        hint = "Name it in `with` of the call of a provider that needs it."
        at.problem("SECRET", f"the secret {name!r} would become data here", hint=hint)


def _success_arm(look: Cursor) -> None:
    look.closed({"value": anything, "assign": assign}, what="'onSuccess' of a call")


def _failure_arm(look: Cursor) -> None:
    look.closed({"assign": assign}, what="'onFailure' of a call")


def _call_provider(look: Cursor) -> None:
    if not _is_uri(look, "provider.call"):
        return
    catalog = look.findings.catalog
    call = catalog.call(look.value)
    if call is None:
        message = f"there is no provider {look.value!r}{look.guess(look.value, catalog.call_uris())}"
        look.problem("MWL-031", message, hint="Bring providers of your own with --load.")
    elif call.name and (refusal := catalog.refusal(call.name)) is not None:
        look.problem("POLICY", refusal, hint="An operator can allow it; see docs/security.md.")


def _is_uri(look: Cursor, wanted: str) -> bool:
    if not look.has("a string"):
        return False
    kind = uri_type(look.value)
    if kind is None:
        look.problem("MWL-031", f"{look.value!r} is no provider URI", hint="As in mwl:provider.call/perdure/http/v1.")
    elif kind != wanted:
        look.problem("MWL-031", f"a {wanted} URI must stand here, not a {kind} one")
    return kind == wanted


def _flow_target(look: Cursor) -> None:
    from perdure.dialects.flow.document.flows import flow

    assert look.around is not None
    if isinstance(look.value, dict):
        _edge(look, look.path)
        flow(look, is_root=False)
    elif look.has("a string"):
        around: Context | None = look.around
        while around is not None:
            flows = around.raw.get("flows")
            if isinstance(flows, dict) and look.value in flows:
                _edge(look, (*around.path, "flows", look.value))
                return
            around = around.outer
        look.problem("MWL-029", f"no Flow is called {look.value!r} here{look.guess(look.value, _names(look))}")


def _names(look: Cursor) -> list[str]:
    names: list[str] = []
    around = look.around
    while around is not None:
        flows = around.raw.get("flows")
        names += flows if isinstance(flows, dict) else []
        around = around.outer
    return names


def _edge(look: Cursor, callee: tuple[str | int, ...]) -> None:
    assert look.around is not None
    look.findings.edges.setdefault(look.around.path, []).append((callee, look.path))


# Middleware.


def step_stack(look: Cursor) -> None:
    _each(look, _entry)


flow_stack = step_stack


def _entry(look: Cursor) -> None:
    blocks: dict[str, Rule] = {"provider": _middleware, "comment": comment, **dict.fromkeys(PHASES, anything)}
    if not look.closed(blocks, ("provider",), what="a middleware entry"):
        return
    uri = look.value.get("provider")
    provider = look.findings.catalog.middleware.get(uri) if isinstance(uri, str) else None
    for phase in PHASES:
        if phase in look.value:
            _phase(look.at(phase), phase, is_structural=provider is not None and provider.dispatches)
    if provider is None:
        return
    if provider.dispatches:
        _structural(look)
    for phase, key in provider.required:
        block = look.value.get(phase)
        if not isinstance(block, dict) or key not in block:
            look.problem("MWL-043", f"this middleware needs '{phase}.{key}'")


def _middleware(look: Cursor) -> None:
    if not _is_uri(look, "provider.middleware"):
        return
    known = look.findings.catalog.middleware
    provider = known.get(look.value)
    if provider is None:
        look.problem("MWL-031", f"there is no middleware {look.value!r}{look.guess(look.value, list(known))}")
    elif look.level not in provider.attachment:
        look.problem("MWL-032", f"{look.value!r} cannot be attached at the {look.level} level")


def _phase(look: Cursor, name: str, is_structural: bool) -> None:
    members: dict[str, Rule] = {"when": boolean, "with": _middleware_arguments, "assign": assign}
    match name:
        case "onEntry":
            members["output"] = anything
        case "onSuccess":
            members["value"] = anything
        case "onFailure":
            members |= ENVELOPE
        case _ if is_structural:
            members["with"] = anything
        case _:
            pass
    if look.closed(members, what=f"'{name}'") and name == "onFailure":
        _no_success(look)


def _structural(look: Cursor) -> None:
    """The cleanup of `finally` is a part of the document, not a value (MWL-044)."""
    block = look.value.get("onAlways")
    written = block.get("with") if isinstance(block, dict) else None
    if not isinstance(written, dict):
        look.problem("MWL-044", "'onAlways.with' must be an object with the 'call' to be dispatched")
        return
    inside = look.at("onAlways", "with")
    inside.closed({"call": call, "middleware": step_stack}, ("call",), "MWL-044", "'onAlways.with'")


def _each(look: Cursor, rule: Rule, code: str = "MWL-022") -> None:
    if look.has("an array", code):
        for index in range(len(look.value)):
            rule(look.at(index))
