"""The JSON Schema of Flows, made from the rules that they are validated with: each rule has its schema here."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from perdure.dialects.flow.document import flows, parts
from perdure.dialects.flow.document.cursor import Rule, comment
from perdure.dialects.flow.middleware import KNOWN
from perdure.dialects.flow.steps import ACTIONS, gather, match, raise_
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents import schema_parts as s

_EXPRESSION: s.Schema = {"type": "string", "pattern": r"\{\{"}
_STEP_NAME = s.with_facts(s.TEXT, refers="step")
_NAMES: s.Schema = {"type": "array", "items": s.TEXT, "minItems": 1}

_RULES: dict[Rule, s.Schema] = {
    parts.anything: s.ANYTHING,
    parts.string: s.TEXT,
    parts.array: s.either({"type": "array"}, _EXPRESSION),
    parts.arguments: s.with_facts(s.either(s.OPEN, _EXPRESSION), arguments_of="provider"),
    parts.middleware_arguments: s.either(s.OPEN, _EXPRESSION),
    parts.boolean: s.either(s.SWITCH, _EXPRESSION),
    parts.boolean_or_null: s.either({"type": ["boolean", "null"]}, _EXPRESSION),
    parts.object_or_null: s.either({"type": ["object", "null"]}, _EXPRESSION),
    parts.assign: s.with_facts(s.OPEN, declares_members="variable"),
    parts.next_step: _STEP_NAME,
    parts.catch: s.list_of(s.part("catch")),
    parts.matcher: s.part("matcher"),
    parts.patterns: _NAMES,
    parts.types: _NAMES,
    parts.retryable: s.SWITCH,
    parts.call: s.part("call"),
    parts.call_provider: s.with_facts(s.TEXT, names_provider=True),
    parts.flow_target: s.either(s.with_facts(s.TEXT, refers="flow"), s.part("flow")),
    parts.success_arm: s.part("successArm"),
    parts.failure_arm: s.part("failureArm"),
    parts.step_stack: s.list_of(s.part("middleware")),
    parts.middleware_provider: s.with_facts(s.TEXT, words=dict.fromkeys(KNOWN, "")),
    comment: s.TEXT,
    flows.flow_schema: {"const": flows.FLOW_SCHEMA},
    flows.entrypoint: _STEP_NAME,
    flows.steps: s.with_facts({**s.map_of(s.part("step")), "minProperties": 1}, declares_members="step"),
    flows.flows: s.with_facts(s.map_of(s.part("flow")), declares_members="flow"),
    flows.middleware: s.list_of(s.part("middleware")),
    flows.parameters: {"type": "object", "properties": {"type": {"const": "object"}}, "required": ["type"]},
    gather.scatter: s.list_of(s.part("call"), 1),
    gather.completion: s.part("completion"),
    gather.successes: s.either(s.NUMBER, _EXPRESSION),
    gather.wait: s.SWITCH,
    gather.concurrency: {"type": ["integer", "null"], "minimum": 1},
    match.match_cases: s.list_of(s.part("case")),
    match.match_default: s.part("default"),
    match.predicate: _EXPRESSION,
    raise_.raised: s.part("failure"),
}
_TEXTS = {
    "$schema": "The language and its version.",
    "entrypoint": "The Step that runs first.",
    "steps": "Steps by name; each names the next one.",
    "flows": "Flows that calls in this one may name.",
    "parameters": "JSON Schema of the arguments (`with`) of a call of this Flow.",
    "middleware": "What runs around the call or the Flow: retries, timeouts, cleanup.",
    "comment": "For people; never evaluated.",
    "action": "What the Step does.",
    "call": "The provider or the Flow to call, and with what.",
    "calls": "Several calls at once.",
    "over": "The list of which each element is passed to a call.",
    "concurrency": "At most so many calls at once.",
    "completion": "How many calls must succeed, and whether the rest is waited for.",
    "input": "What is passed on as input, instead of the input of the Step.",
    "output": "What the next Step gets as its input.",
    "assign": "Variables that are set.",
    "catch": "Where failures lead; the first clause that matches counts.",
    "next": "The Step that follows.",
    "cases": "Conditions in order, each with a next Step.",
    "default": "The next Step if no case matches.",
    "when": "An expression that gives true or false.",
    "for": "How long to sleep: a duration such as PT5M.",
    "until": "The instant to sleep until.",
    "value": "The result of the Flow.",
    "result": "The failure that is raised; none raises the current one again.",
    "provider": "The URI of a provider, such as mwl:provider.call/perdure/http/v1.",
    "flow": "The name of a Flow in scope, or a Flow.",
    "with": "Arguments.",
    "onEntry": "What happens on the way in, before what it is around.",
    "onSuccess": "What happens when it has succeeded.",
    "onFailure": "What happens when it has failed.",
    "onAlways": "What happens at its end, whatever the end is.",
    "match": "Which failures the clause is for.",
    "codes": "Codes of failures, or patterns of codes.",
    "types": "Types of failures.",
    "retryable": "Whether the failure may be retried.",
    "type": "Type of the failure, or of what the schema describes.",
    "code": "Code of the failure, such as App.OutOfStock.",
    "message": "A sentence for people.",
    "details": "More about the failure.",
    "previous": "The failure that led to it.",
    "successes": "How many calls must succeed.",
    "wait": "Whether the calls that are left are waited for.",
}
_MET = ("input", "metadata")
_ROOTS = {
    "vars": ("Variables of this call of the Flow, which `assign` sets.", ()),
    "execution": ("The run.", ("id", "metadata", "platform")),
    "frame": ("This call of the Flow: what it got.", _MET),
    "failure": ("The failure that is handled here.", tuple(parts.ENVELOPE)),
    "step": ("The Step; results exist from `output` on.", ("name", "id", "action", *_MET, "result", "results")),
    "match": ("What the cases of a Match look at.", _MET),
    "call": ("The call; its result exists in `onSuccess` and `onFailure`.", (*_MET, "index", "result")),
    "middleware": ("The middleware; its result exists after the call.", (*_MET, "result")),
    "flow": ("The Flow that was called.", ("input", "result", "vars", "metadata")),
    "provider": ("The provider that was called.", ("input", "result", "metadata")),
}
_FACTS: s.Schema = {
    "provider": "mwl:provider.call/perdure/{name}/v1",
    "expressions": {
        "roots": {name: {"text": text, "members": list(members)} for name, (text, members) in _ROOTS.items()},
        "names": {"vars": "variable"},
    },
}
_SCOPES: s.Schema = {"scopes": ["step", "flow", "variable"], "lexical": ["flow"]}


def _object(rules: Mapping[str, Rule], required: Sequence[str] = ()) -> s.Schema:
    described = {name: _member(name, rule) for name, rule in rules.items()}
    return s.members(rules, described, required)


def _member(name: str, rule: Rule) -> s.Schema:
    return s.described(_TEXTS[name], _RULES[rule]) if name in _TEXTS else _RULES[rule]


@lru_cache
def document_schema() -> s.Schema:
    steps = [
        {
            "if": {"properties": {"action": {"const": action.name}}, "required": ["action"]},
            "then": _step(action),
        }
        for action in ACTIONS.values()
    ]
    action = s.with_facts(
        s.described(_TEXTS["action"], s.choice(ACTIONS)), words={name: action.text for name, action in ACTIONS.items()}
    )
    phases = {
        phase: s.members(rules, {name: _member(name, rule) for name, rule in rules.items()})
        for phase, rules in parts.PHASE_MEMBERS.items()
    }
    cleanup = s.members(
        ("call", "middleware"), {"call": s.part("call"), "middleware": s.list_of(s.part("middleware"))}, ("call",)
    )
    structural = {
        "if": {"properties": {"provider": {"enum": [uri for uri, known in KNOWN.items() if known.dispatches]}}},
        "then": {"properties": {"onAlways": {"properties": {"with": cleanup}}}},
        "else": {"properties": {"onAlways": {"properties": {"with": _RULES[parts.middleware_arguments]}}}},
    }
    phases["onAlways"]["properties"]["with"] = s.described(_TEXTS["with"], s.ANYTHING)
    middleware = {name: _member(name, rule) for name, rule in parts.MIDDLEWARE.items()}
    shared = {
        "flow": s.with_facts(_object(flows.FLOW, ("entrypoint", "steps")), **_SCOPES),
        "step": {"type": "object", "properties": {"action": action}, "required": ["action"], "allOf": steps},
        "call": {**_object(parts.CALL), "oneOf": [{"required": ["provider"]}, {"required": ["flow"]}]},
        "successArm": _object(parts.SUCCESS_ARM),
        "failureArm": _object(parts.FAILURE_ARM),
        "catch": _object(parts.CATCH, ("match", "next")),
        "matcher": {**_object(parts.MATCHER), "minProperties": 1},
        "middleware": {**s.members(parts.MIDDLEWARE, {**middleware, **phases}, ("provider",)), **structural},
        "completion": _object(gather.COMPLETION, ("successes",)),
        "case": _object(match.CASE, ("when", "next")),
        "default": _object(match.DEFAULT, ("next",)),
        "failure": _object(parts.ENVELOPE, ("code",)),
    }
    root = _object({"$schema": flows.flow_schema, **flows.FLOW}, ("$schema", "entrypoint", "steps"))
    root = s.with_facts(root, **_FACTS, **_SCOPES)
    document = s.document("flow", "A Flow: Metolia Workflow Language v0.1", root, shared)
    s.describe(document, _TEXTS)
    return document


def _step(action: Action) -> s.Schema:
    schema = _object({**action.members, "comment": comment}, action.required)
    schema["properties"]["action"] = {"const": action.name}
    if action.one_of:
        schema["oneOf"] = [{"required": list(members)} for members in action.one_of]
    return schema
