"""Which form each kind has, and what else is asked of it: a new kind is one line here."""

from collections.abc import Callable

import msgspec

from perdure.dialects.story.document import engrams, impulses, runs, story, transports, triggers
from perdure.dialects.story.document.context import Case
from perdure.dialects.story.document.policies import LABELS
from perdure.dialects.story.document.shapes import Anything, Fields, Kubernetes, Name, Shape, Text, Whole


class Rules(msgspec.Struct, frozen=True):
    spec: Shape
    judge: Callable[[Case], None] = lambda case: None
    is_run_object: bool = False  # written by programs: judged up to the first problem, and on every update


RULES: dict[str, Rules] = {
    "Story": Rules(story.STORY, story.validate_story),
    "Engram": Rules(engrams.ENGRAM, engrams.validate_engram),
    "EngramTemplate": Rules(engrams.ENGRAM_TEMPLATE, engrams.validate_template),
    "Impulse": Rules(impulses.IMPULSE, impulses.validate_impulse),
    "ImpulseTemplate": Rules(impulses.IMPULSE_TEMPLATE, impulses.validate_impulse_template),
    "Transport": Rules(transports.TRANSPORT, transports.validate_transport),
    "TransportBinding": Rules(transports.BINDING),
    "ReferenceGrant": Rules(transports.GRANT),
    "StoryRun": Rules(runs.STORY_RUN, runs.validate_story_run, is_run_object=True),
    "StepRun": Rules(runs.STEP_RUN, runs.validate_step_run, is_run_object=True),
    "StoryTrigger": Rules(triggers.STORY_TRIGGER, triggers.validate_story_trigger, is_run_object=True),
    "EffectClaim": Rules(triggers.EFFECT_CLAIM, triggers.validate_effect_claim, is_run_object=True),
}

_METADATA = Fields(
    {
        "name": Name(253),
        "namespace": Name(),
        "labels": LABELS,
        "annotations": LABELS,
        "generateName": Text(most=253),
        "uid": Text(),
        "generation": Whole(0),
        "creationTimestamp": Text(),
        "resourceVersion": Text(),
        **dict.fromkeys(
            ("managedFields", "ownerReferences", "finalizers", "deletionTimestamp", "selfLink"),
            Kubernetes(Anything()),
        ),
    }
)


def whole(kind: str) -> Fields:
    """The form of a whole resource (STY-001)."""
    return Fields(
        {
            "apiVersion": Anything(),
            "kind": Anything(),
            "metadata": _METADATA,
            "spec": RULES[kind].spec,
            "status": Anything(),
        },
        required=("metadata", "spec"),
    )
