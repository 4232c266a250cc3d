"""What a resource is checked against: the other known resources and the operator's settings."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from perdure.dialects.story.document.cursor import DOUBTFUL, NOT_FOUND, STORY_REFERENCE, Cursor
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.plan.step_graph import StepGraph
from perdure.dialects.story.resources.reference_grants import refuse
from perdure.dialects.story.resources.resource import (
    NO_RESOURCES,
    KnownResources,
    Reference,
    Resource,
    name_of,
    namespace_of,
    read_reference,
)
from perdure.kernel.documents.problems import guess


class CheckContext(msgspec.Struct, frozen=True):
    known: KnownResources = NO_RESOURCES
    settings: Settings = DEFAULTS
    uses: dict[Reference, Any] = msgspec.field(default_factory=dict)  # filled by `usage`: what an Engram offers

    def may_name(self, cursor: Cursor, referrer: str, namespace: str, kind: str, target: Reference, code: str) -> bool:
        """Whether a reference into another namespace is allowed; reports if not (STY-042, STY-250)."""
        refusal = refuse(referrer, namespace, kind, target, self.known, self.settings)
        if refusal is not None:
            hint = "Set references.cross-namespace-policy, or put both into one namespace."
            cursor.problem(code, refusal, hint=hint)
        return refusal is None

    def find(self, kind: str, target: Reference) -> Resource | None:
        return self.known.find(kind, target.namespace, target.name)


class ResourceCase(msgspec.Struct, frozen=True):
    """One resource being validated: its text (`root`) and its normalized form; `stored` is the version it would
    replace.
    """

    root: Cursor
    resource: Resource
    context: CheckContext
    stored: Resource | None = None

    @property
    def spec(self) -> Cursor:
        return self.root.at("spec")

    @property
    def name(self) -> str:
        return name_of(self.resource)

    @property
    def namespace(self) -> str:
        return namespace_of(self.resource)


class StoryContext(msgspec.Struct, frozen=True):
    """The parts of a Story that the checks of its steps need."""

    name: str
    namespace: str
    is_streaming: bool
    graph: StepGraph
    transports: tuple[str, ...]
    context: CheckContext
    validate_inline: Callable[[Cursor, str, "StoryContext"], None]
    inputs_schema: Any = None

    def streams(self, block: str) -> bool:
        """Cleanup blocks run as batch even in streaming Stories (STY-139)."""
        return self.is_streaming and block == "steps"

    def check_inputs(self, cursor: Cursor, names: Iterable[str]) -> None:
        """Warn of inputs that the Story's schema does not have; an open schema allows others, but not misspelt ones."""
        schema = self.inputs_schema if isinstance(self.inputs_schema, dict) else {}
        properties = schema.get("properties")
        if not isinstance(properties, dict) or "patternProperties" in schema or "$ref" in schema:
            return
        for name in sorted(set(names) - properties.keys()):
            near = guess(name, tuple(properties))
            if near or schema.get("additionalProperties") is False:
                hint = f"Inputs: {', '.join(properties)}."
                cursor.warn(DOUBTFUL, f"inputsSchema has no input {name!r}{near}", hint=hint)


def check_sub_story(target: Cursor, name: str, story: StoryContext, *, may_be_itself: bool = False) -> None:
    """Check the Story that a step starts (STY-031, STY-042). A map may start its own Story, with fewer items each
    time.
    """
    reference = read_reference(target.value, story.namespace)
    if reference is None:
        return
    if not story.context.may_name(target, "Story", story.namespace, "Story", reference, STORY_REFERENCE):
        return
    if not may_be_itself and (reference.namespace, reference.name) == (story.namespace, story.name):
        message = f"step '{name}' of type 'executeStory' cannot reference the same story"
        target.problem(STORY_REFERENCE, message)
        return
    sub_story = story.context.find("Story", reference)
    if sub_story is None:
        message = f"step '{name}': there is no Story '{reference.key}' yet: the step will wait for it"
        target.warn(NOT_FOUND, message)
    elif (misfit := reference.misfit("Story", sub_story)) is not None:
        target.warn(STORY_REFERENCE, f"step '{name}': {misfit}: the step will fail")
