"""What resources may say, as OpenAPI schemas: made from the shapes that they are validated with."""

from functools import lru_cache
from typing import Any

from perdure.dialects.story.document import shapes as s
from perdure.dialects.story.document.field_texts import TEXTS
from perdure.dialects.story.document.steps import STEP, StepShape, StepType
from perdure.dialects.story.document.validation import METADATA, RULES
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.steps import STEP_KINDS, TYPES
from perdure.dialects.story.steps.gate import DECISIONS
from perdure.documents import schema_parts

Schema = dict[str, Any]

ANY: Schema = {"x-kubernetes-preserve-unknown-fields": True}

DESCRIPTIONS = {
    "Story": "A workflow: a graph of steps, with compensations if it fails and steps that always run last.",
    "Story.spec": "What the workflow does.",
    "Story.spec.version": "Label that references may ask for.",
    "Story.spec.pattern": "How it runs: batch, or streaming.",
    "Story.spec.inputsSchema": "JSON Schema of the inputs of a run, with defaults.",
    "Story.spec.outputsSchema": "JSON Schema of the output of a run.",
    "Story.spec.output": "Template of the output of a run that succeeds.",
    "Story.spec.steps": "Steps of the main graph.",
    "Story.spec.compensations": "Steps that run only if the main graph has failed.",
    "Story.spec.finally": "Steps that always run, last.",
    "Story.spec.policy": "Timeouts, retries, concurrency, queue and priority of all runs.",
    "Story.spec.transports": "Streaming only: transports between steps.",
    "Engram": "A configured worker, which steps refer to.",
    "Impulse": "A configured trigger, which starts Stories.",
    "EngramTemplate": "Code of Engrams, with its schemas and recommended defaults.",
    "ImpulseTemplate": "Code of Impulses, with its schemas and recommended defaults.",
    "StoryRun": "One execution of a Story.",
    "StoryRun.spec": "What was asked for; only cancelRequested can change.",
    "StoryRun.spec.storyRef": "Story to run.",
    "StoryRun.spec.inputs": "Inputs of the run.",
    "StoryRun.spec.cancelRequested": "Set to true to cancel the run.",
    "StepRun": "One execution of a step.",
    "StoryTrigger": "A durable request to start a Story.",
    "EffectClaim": "The lease and completion of one side effect.",
    "ReferenceGrant": "Lets resources of other namespaces refer to resources of this one.",
    "Transport": "A way in which steps of streaming Stories exchange packets.",
    "TransportBinding": "A step of a streaming run, bound to its transport.",
}


STEP_TYPES = {
    "condition": "A step without work: only its `if` matters (STY-081).",
    "parallel": "Its branches start together; it ends when all have ended (STY-092 to STY-095).",
    "sleep": "Waits for a duration (STY-083, STY-084).",
    "stop": "Ends the main block with the phase that it names (STY-085, STY-086).",
    "executeStory": "Runs another Story (STY-087 to STY-091).",
    "wait": "Waits until its condition holds (STY-096 to STY-100).",
    "gate": "Waits for a decision (STY-101 to STY-105).",
}
REFERENCES = {
    "storyRef": "Story",
    "engramRef": "Engram",
    "impulseRef": "Impulse",
    "transportRef": "Transport",
    "ref": "Engram",
}
"""Members that name a resource, by the kind that they name."""

TEMPLATES = {"Engram": "EngramTemplate", "Impulse": "ImpulseTemplate"}
ROOTS = {
    "inputs": "Inputs of the run.",
    "steps": "Steps that have ended, each with its output.",
    "packet": "Streaming only: the packet at hand.",
    "step": "The step; in the key of a cache.",
    "engram": "The Engram; in the key of a cache.",
    "story": "The Story; in the key of a trigger.",
    "impulse": "The Impulse; in the key of a trigger.",
    "context": "What arrived; in the mapping of an Impulse.",
}

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
TIME: Schema = {"type": "string", "format": "date-time"}
CONDITIONS: Schema = {
    "type": "array",
    "description": "What is the case: Ready, Progressing, Degraded …",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            **dict.fromkeys(("type", "status", "reason", "message"), TEXT),
            "lastTransitionTime": TIME,
            "observedGeneration": COUNT,
        },
    },
}
GATE: Schema = {
    "type": "object",
    "properties": {
        "state": {"type": "string", "enum": list(DECISIONS), "description": "The decision; set it to decide."},
        "message": {**TEXT, "description": "Why it was decided so."},
        "updatedBy": {**TEXT, "description": "Who decided."},
        "updatedAt": {**TIME, "description": "When it was decided."},
    },
}
STATUS: dict[str, Schema] = {
    "Story": {
        "stepsTotal": {**COUNT, "description": "Steps of all blocks."},
        "usageCount": {**COUNT, "description": "Resources that refer to it."},
        "triggers": {**COUNT, "description": "Runs that it has had."},
        "validationStatus": {**TEXT, "description": "valid, or invalid."},
        "validationErrors": {"type": "array", "items": TEXT},
        "validationWarnings": {"type": "array", "items": TEXT},
    },
    "StoryRun": {
        "phase": {**TEXT, "description": "How far it is: Pending, Running, Paused, Succeeded, Failed …"},
        "message": {**TEXT, "description": "About the phase, for people."},
        "startedAt": TIME,
        "finishedAt": TIME,
        "duration": TEXT,
        "attempts": {**COUNT, "description": "How often it was started or redriven."},
        "active": {"type": "array", "items": TEXT, "description": "Steps that run or wait."},
        "completed": {"type": "array", "items": TEXT, "description": "Steps that have succeeded."},
        "gates": {
            "type": "object",
            "description": "Decisions of gates by step; these can be changed through the subresource status.",
            "additionalProperties": GATE,
        },
        "stepStates": {
            "type": "object",
            "description": "Each step that was reached.",
            "additionalProperties": {
                "type": "object",
                "properties": {"phase": TEXT, "message": TEXT, "startedAt": TIME, "finishedAt": TIME},
                **ANY,
            },
        },
        **dict.fromkeys(("stepsTotal", "stepsComplete", "stepsFailed", "stepsSkipped"), COUNT),
        "output": {"description": "Of a run that has succeeded.", **ANY},
        "error": {"description": "Of a run that has failed.", **ANY},
    },
    "StepRun": {"phase": TEXT, "message": TEXT, "startedAt": TIME, "finishedAt": TIME, "output": ANY, "error": ANY},
}


def _status(kind: str) -> Schema:
    return {"conditions": CONDITIONS, "observedGeneration": COUNT, **STATUS.get(kind, {})}


@lru_cache
def schema_of(kind: str) -> Schema:
    """Of `spec` and `status`, with the description of the kind."""
    spec = _schema(RULES[kind].spec, f"{kind}.spec") if kind in RULES else dict(ANY)
    status = {"type": "object", "description": "What the engine says about it.", "properties": _status(kind), **ANY}
    return {"description": DESCRIPTIONS.get(kind, ""), "properties": {"spec": spec, "status": status}}


def _schema(shape: s.Shape, path: str) -> Schema:
    schema = _plain(shape, path)
    text = DESCRIPTIONS.get(path) or schema_parts.field_text(path.split("."), TEXTS)
    return {"description": text, **schema} if text else schema


def _plain(shape: s.Shape, path: str) -> Schema:
    match shape:
        case s.TextShape(least, most):
            lengths = {"minLength": least} if least else {}
            return {"type": "string", **lengths, **({} if most is None else {"maxLength": most})}
        case s.NameShape(most):
            return {"type": "string", "maxLength": most, "pattern": f"^{s.NAME.pattern}$"}
        case s.IntegerShape(least, most):
            bounds = {"minimum": least, "maximum": most}
            return {"type": "integer", **{name: value for name, value in bounds.items() if value is not None}}
        case s.BooleanShape():
            return {"type": "boolean"}
        case s.ChoiceShape(words, other):
            return {"type": "string", "enum": [*words, *(word for word, _ in other)]}
        case s.DurationShape():
            return {"type": "string", "format": "duration"}
        case s.TimestampShape():
            return {"type": "string", "format": "date-time"}
        case s.ListShape(item, least, most):
            counts = {"minItems": least} if least else {}
            counts |= {} if most is None else {"maxItems": most}
            return {"type": "array", "items": _plain(item, path), "x-kubernetes-list-type": "atomic", **counts}
        case s.MapShape(member):
            return {"type": "object", "additionalProperties": _plain(member, path)}
        case s.FieldsShape(members, required):
            properties = {name: _schema(member, f"{path}.{name}") for name, member in members.items()}
            needed = {"required": list(required)} if required else {}
            return {"type": "object", "properties": properties, **needed}
        case StepShape():
            return _plain(STEP, path)
        case StepType():
            return {"type": "string", "enum": list(TYPES)}
        case s.ReferenceShape():
            return _plain(s.REFERENCE, path)
        case s.KubernetesShape(inner):
            return {"description": "Only Kubernetes uses it; kept and ignored.", **_plain(inner, path)}
        case s.ObjectShape() | s.JsonSchemaShape():
            return {"type": "object", **ANY}
        case _:
            return dict(ANY)


@lru_cache
def document_schema() -> Schema:
    """Of files: one resource each, by its kind."""
    kinds = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {
                "properties": {
                    "apiVersion": {"const": RESOURCE_KINDS[kind].api_version},
                    **_with_facts(_of_file(kind), kind),
                }
            },
        }
        for kind in RULES
    ]
    metadata = _closed(_plain(METADATA, "metadata"))
    members = metadata["properties"]
    members["name"] = schema_parts.with_facts(members["name"], declares_by="kind")
    named = {"type": "string", "description": "What the document declares.", "enum": list(RULES)}
    facts = {
        "workspace": [*RULES],
        "expressions": {
            "roots": {name: {"text": text, "members": []} for name, text in ROOTS.items()},
            "names": {"steps": "step"},
            "members": {"steps": ["output", "phase", "error"]},
            "has_aliases": True,
        },
    }
    root = {
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": named, "metadata": metadata, "spec": {}, "status": {}},
        "required": ["apiVersion", "kind", "metadata"],
        "additionalProperties": False,
        "allOf": kinds,
    }
    step = _closed(_plain(STEP, "Story.spec.steps"))
    shared = {"step": _with_facts(step, "Story"), "typedStep": _typed_step()}
    root = schema_parts.with_facts(root, **facts)
    document = schema_parts.document(
        "story", "A resource of BubuStack: a Story, an Engram, an Impulse, …", root, shared
    )
    schema_parts.describe(document, TEXTS)
    return document


def _typed_step() -> Schema:
    """The members of `with` that each type of step reads; the branches of a parallel step are steps."""
    types = []
    for name in TYPES:
        kind = STEP_KINDS[name]
        members: Schema = {member: {} for member in kind.members}
        members |= {kind.branches_member: {"items": schema_parts.part("step")}} if kind.branches_member else {}
        then = {"properties": {"with": _with_facts({"type": "object", "properties": members}, "Story")}}
        types.append({"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": then})
    return {"type": "object", "allOf": types}


def _with_facts(part: Any, kind: str) -> Any:
    """The schema of a resource, or a part of it, with what names in it mean."""
    if isinstance(part, list):
        return [_with_facts(item, kind) for item in part]
    if not isinstance(part, dict):
        return part
    schema = {name: _with_facts(member, kind) for name, member in part.items()}
    members: Schema = schema.get("properties", {})
    named = {"templateRef": TEMPLATES.get(kind), **REFERENCES}
    for name in members.keys() & named.keys():
        members[name] = _naming(members[name], named[name] or "")
    if is_step := members.keys() >= {"needs", "requires", "ref"}:
        members["name"] = schema_parts.with_facts(members["name"], declares="step")
        members["needs"]["items"] = schema_parts.with_facts(members["needs"]["items"], refers="step")
        members["requires"]["items"] = schema_parts.with_facts(members["requires"]["items"], path=True)
        members["transport"] = schema_parts.with_facts(members["transport"], refers="transport")
        members["type"] = schema_parts.with_facts(members["type"], words=STEP_TYPES)
    if not is_step and "transports" in members:
        declared = members["transports"]["items"]["properties"]
        declared["name"] = schema_parts.with_facts(declared["name"], declares="transport")
    return schema


def _naming(schema: Schema, kind: str) -> Schema:
    """A reference: a name, or an object with a name."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_naming(option, kind) for option in schema["anyOf"]]}
    members = schema.get("properties", {})
    if schema.get("type") == "string":
        return schema_parts.with_facts(schema, refers=kind)
    name = schema_parts.with_facts(members.get("name", {}), refers=kind)
    return schema_parts.with_facts({**schema, "properties": {**members, "name": name}}, refers=kind)


_TYPED: Schema = schema_parts.part("typedStep")


def _of_file(kind: str) -> Schema:
    """Without what only Kubernetes reads of a schema; objects whose members are known have no others."""
    properties: Schema = _closed(schema_of(kind)["properties"])
    return properties


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    shown = {name: _closed(member) for name, member in part.items() if not name.startswith("x-kubernetes-")}
    is_object = part.get("type") == "object" and isinstance(part.get("properties"), dict)
    if not is_object or "additionalProperties" in part:
        return shown
    shown["additionalProperties"] = False
    if part.get("required") == list(STEP.required) and part["properties"].keys() == STEP.members.keys():
        return {**shown, "allOf": [_TYPED]}
    is_reference = part["properties"] == _plain(s.REFERENCE, "")["properties"]
    return {"anyOf": [{"type": "string"}, shown]} if is_reference else shown  # a text is its `name`
