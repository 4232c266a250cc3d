"""From a checked document to a program. Nothing is validated here: that is done before, or at run time."""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.flow.middleware.hold_effects import HoldEffects
from perdure.dialects.flow.middleware.protocol import PHASES, Middleware
from perdure.dialects.flow.plan.program import (
    AMBIENT,
    Arm,
    Assign,
    CallProvider,
    Clause,
    Field,
    Flow,
    MiddlewareEntry,
    MiddlewarePhase,
    PlannedCall,
    Predicate,
    Program,
    Roots,
    Step,
    pointer,
)
from perdure.dialects.flow.plan.provider_catalog import OURS, ProviderCatalog
from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.plan.secrets import secret_places, without_secrets
from perdure.dialects.flow.steps import ACTIONS

STEP: Roots = AMBIENT | {"step"}
ENVELOPE_KEYS = ("type", "code", "message", "details", "retryable", "previous")

Lexical = tuple[tuple[str, dict[str, Any]], ...]
"""The chain of Flow objects from the innermost outwards, each with its site (MWL-050)."""


def compile_program(document: dict[str, Any], catalog: ProviderCatalog) -> Program:
    return Compiler(catalog).program(document)


class Compiler:
    def __init__(self, catalog: ProviderCatalog) -> None:
        self._catalog = catalog
        self._pending: list[tuple[Flow, dict[str, Any], Lexical]] = []
        self._program = Program(Flow(""), "flow")

    def program(self, document: dict[str, Any]) -> Program:
        program = self._program
        program.root = self._flow(document, "", ())
        while self._pending:  # a list, not recursion: chains of references may be long
            self._compile_flow(*self._pending.pop())
        return program

    def _flow(self, raw: dict[str, Any], site: str, around: Lexical) -> Flow:
        flow = self._program.flows.get(site)
        if flow is None:
            flow = self._program.flows[site] = Flow(site)
            self._pending.append((flow, raw, ((site, raw), *around)))
        return flow

    def _compile_flow(self, flow: Flow, raw: dict[str, Any], lexical: Lexical) -> None:
        flow.entrypoint = raw["entrypoint"]
        if "parameters" in raw:
            flow.parameters = Parameters(raw["parameters"])
        flow.outermost = self.stack(raw.get("middleware", []), pointer(flow.site, "middleware"), AMBIENT, lexical, None)
        for name, inner in raw.get("flows", {}).items():
            self._flow(inner, pointer(flow.site, "flows", name), lexical)
        for name, step in raw["steps"].items():
            site = pointer(flow.site, "steps", name)
            compiled = Step(site, name, ACTIONS[step["action"]], None, step.get("next", ""))
            compiled.output = self.field(step, "output", STEP, site)
            compiled.assign = self.assign(step, STEP, site)
            compiled.catch = tuple(self.clauses(step.get("catch", []), STEP, pointer(site, "catch")))
            compiled.fields = compiled.action.compile(self, step, site, lexical)
            flow.steps[name] = compiled

    # The parts that actions are made of.

    def field(self, raw: dict[str, Any], name: str, roots: Roots, site: str) -> Field | None:
        return Field(raw[name], roots, pointer(site, name)) if name in raw else None

    def assign(self, raw: dict[str, Any], roots: Roots, site: str) -> Assign:
        inside = pointer(site, "assign")
        return {name: Field(value, roots, pointer(inside, name)) for name, value in raw.get("assign", {}).items()}

    def clauses(self, raw: list[dict[str, Any]], roots: Roots, site: str) -> Iterator[Clause]:
        for index, clause in enumerate(raw):
            yield self.clause(clause, roots, pointer(site, index))

    def clause(self, raw: dict[str, Any], roots: Roots, site: str) -> Clause:
        when = Predicate(raw["when"], roots, pointer(site, "when")) if "when" in raw else None
        output = self.field(raw, "output", roots, site)
        return Clause(raw["next"], output, self.assign(raw, roots, site), raw.get("match"), when)

    def call(self, raw: dict[str, Any], site: str, roots: Roots, lexical: Lexical) -> PlannedCall:
        fields = roots | {"call"}
        secrets = tuple(secret_places(raw["with"])) if "provider" in raw and "with" in raw else ()
        if secrets:
            raw = {**raw, "with": without_secrets(raw["with"])}
        arms = fields | {"provider" if "provider" in raw else "flow"}
        call = self._program.calls[site] = PlannedCall(
            site,
            self._call_provider(raw["provider"]) if "provider" in raw else None,
            self._target(raw["flow"], site, lexical) if "flow" in raw else None,
            self.field(raw, "input", fields, site),
            self.field(raw, "with", fields, site),
            self._arm(raw, "onSuccess", arms, site),
            self._arm(raw, "onFailure", arms, site),
            f"#{site.removesuffix('/call')}" if site.endswith("/with/call") else "",
        )
        call.secrets = secrets
        call.holds_effects = _holds_effects(lexical[0][1].get("middleware", []))
        arguments = raw.get("with", {})
        if all(field is None or field.is_literal for field in (call.input, call.arguments)):
            call.fixed = arguments if isinstance(arguments, dict) else None
        return call

    def _arm(self, raw: dict[str, Any], name: str, roots: Roots, site: str) -> Arm | None:
        if name not in raw:
            return None
        inside = pointer(site, name)
        return Arm(self.field(raw[name], "value", roots, inside), self.assign(raw[name], roots, inside))

    def _call_provider(self, uri: str) -> CallProvider:
        provider = self._catalog.call(uri)
        if provider is None:
            # It existed when the run started (O-02); its task waits visibly until it is available again.
            ours = OURS.fullmatch(uri)
            provider = CallProvider(uri, ours["name"] if ours else uri, Parameters({"additionalProperties": True}))
        return provider

    def _target(self, reference: str | dict[str, Any], site: str, lexical: Lexical) -> Flow:
        if isinstance(reference, dict):
            return self._flow(reference, pointer(site, "flow"), lexical)
        for depth, (around, raw) in enumerate(lexical):
            if reference in raw.get("flows", {}):
                return self._flow(raw["flows"][reference], pointer(around, "flows", reference), lexical[depth:])
        raise LookupError(f"no Flow is called {reference!r}")

    def stack(
        self, raw: list[dict[str, Any]], site: str, roots: Roots, lexical: Lexical, operation: PlannedCall | None
    ) -> MiddlewareEntry | None:
        """The outermost entry of a stack around `operation`, or None for an empty stack."""
        if operation is not None and _holds_effects(raw):
            operation.holds_effects = True
        inner: MiddlewareEntry | PlannedCall | None = operation
        outermost: MiddlewareEntry | None = None
        for index in reversed(range(len(raw))):
            outermost = self._entry(raw[index], pointer(site, index), roots, lexical, inner)
            inner = outermost
        return outermost

    def _entry(
        self,
        raw: dict[str, Any],
        site: str,
        roots: Roots,
        lexical: Lexical,
        inner: MiddlewareEntry | PlannedCall | None,
    ) -> MiddlewareEntry:
        inside = roots | {"middleware"}
        provider = self._catalog.middleware.get(raw["provider"]) or _MissingMiddleware(raw["provider"])
        phases = {name: self._phase(raw[name], inside, pointer(site, name), provider) for name in PHASES if name in raw}
        entry = self._program.entries[site] = MiddlewareEntry(site, provider, phases, inner)
        if provider.dispatches:
            arguments, at = raw["onAlways"]["with"], pointer(site, "onAlways", "with")
            call = self.call(arguments["call"], pointer(at, "call"), inside, lexical)
            wrapped = self.stack(arguments.get("middleware", []), pointer(at, "middleware"), inside, lexical, call)
            entry.cleanup = wrapped or call
        return entry

    def _phase(self, raw: dict[str, Any], roots: Roots, site: str, provider: Middleware) -> MiddlewarePhase:
        is_structural = provider.dispatches and site.endswith("/onAlways")
        return MiddlewarePhase(
            Predicate(raw["when"], roots, pointer(site, "when")) if "when" in raw else None,
            None if is_structural else self.field(raw, "with", roots, site),
            self.field(raw, "output" if site.endswith("/onEntry") else "value", roots, site),
            {key: Field(raw[key], roots, pointer(site, key)) for key in ENVELOPE_KEYS if key in raw},
            self.assign(raw, roots, site),
        )


def _holds_effects(stack: list[dict[str, Any]]) -> bool:
    return any(entry["provider"] == HoldEffects.uri for entry in stack)


class _MissingMiddleware(Middleware):
    """Replaces a middleware that existed when the run started and is not loaded now."""

    def __init__(self, uri: str) -> None:
        self.uri = uri  # type: ignore[misc]

    @property
    def is_ours(self) -> bool:
        return True  # its exception is not a failure of the Flow: the run is held until the middleware is loaded

    def on_entry(self, context: Any) -> Any:
        raise LookupError(f"the middleware {self.uri} is not loaded; load it and wake the run")

    on_success = on_failure = on_always = on_entry
