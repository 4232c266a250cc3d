"""The kinds of resources (section 1.1), with their plural and short names: `stories`, `srun`, `etpl`.

Columns of tables, short names and categories are those of the original custom resources (SRV-063).
"""

from typing import Any

from perdure.kernel.documents import resource_kinds
from perdure.kernel.documents.resource_kinds import PrinterColumn

CORE = "bubustack.io"
CATALOG = "catalog.bubustack.io"
RUNS = "runs.bubustack.io"
TRANSPORT = "transport.bubustack.io"
POLICY = "policy.bubustack.io"
VERSION = "v1alpha1"


class StoryResourceKind(resource_kinds.ResourceKind, frozen=True):
    @property
    def is_global(self) -> bool:
        """Whether resources of this kind belong to no namespace."""
        return not self.has_namespace


AGE = PrinterColumn("Age", "metadata.creationTimestamp", "date")
STATUS = PrinterColumn("Status", "status.validationStatus")
USAGE = PrinterColumn("Usage", "status.usageCount", "integer")
TRIGGERS = PrinterColumn("Triggers", "status.triggers", "integer")
PHASE = PrinterColumn("Phase", "status.phase")
TEMPLATE = PrinterColumn("Template", "spec.templateRef.name")
OF_STORY = PrinterColumn("Story", "spec.storyRef.name")
DESCRIPTION = PrinterColumn("Description", "spec.description")
TEMPLATE_VERSION = PrinterColumn("Version", "spec.version")

ALL = ("bubu", "ai")
ALL_RUNS = (*ALL, "runs")
ALL_CATALOG = (*ALL, "catalog")


def _kind(
    name: str, plural: str, group: str, categories: tuple[str, ...], *columns: PrinterColumn, **more: Any
) -> StoryResourceKind:
    shown = (*columns, AGE)
    return StoryResourceKind(name, plural, group, version=VERSION, categories=categories, columns=shown, **more)


RESOURCE_KINDS: dict[str, StoryResourceKind] = {
    kind.name: kind
    for kind in (
        _kind(
            "Story",
            "stories",
            CORE,
            (*ALL, "workflows"),
            PrinterColumn("Steps", "status.stepsTotal", "integer"),
            STATUS,
            USAGE,
            TRIGGERS,
            has_namespace=True,
            can_run=True,
        ),
        _kind(
            "Engram",
            "engrams",
            CORE,
            ALL,
            TEMPLATE,
            PrinterColumn("Mode", "spec.mode"),
            STATUS,
            USAGE,
            TRIGGERS,
            has_namespace=True,
        ),
        _kind(
            "Impulse",
            "impulses",
            CORE,
            ALL,
            TEMPLATE,
            OF_STORY,
            PHASE,
            PrinterColumn("Triggers", "status.triggersReceived", "integer"),
            short=("imp",),
            has_namespace=True,
        ),
        *(
            _kind(
                name,
                f"{name.lower()}s",
                CATALOG,
                ALL_CATALOG,
                DESCRIPTION,
                TEMPLATE_VERSION,
                USAGE,
                STATUS,
                short=(short,),
            )
            for name, short in (("EngramTemplate", "etpl"), ("ImpulseTemplate", "itpl"))
        ),
        _kind(
            "StoryRun",
            "storyruns",
            RUNS,
            ALL_RUNS,
            OF_STORY,
            PHASE,
            PrinterColumn("Duration", "status.duration"),
            short=("srun",),
            has_namespace=True,
            of_runs=True,
            is_request=True,
        ),
        _kind(
            "StepRun",
            "stepruns",
            RUNS,
            ALL_RUNS,
            PrinterColumn("StoryRun", "spec.storyRunRef.name"),
            PrinterColumn("Step", "spec.stepId"),
            PHASE,
            PrinterColumn("Retries", "status.retries", "integer"),
            short=("step",),
            has_namespace=True,
            of_runs=True,
        ),
        _kind(
            "StoryTrigger",
            "storytriggers",
            RUNS,
            ALL_RUNS,
            OF_STORY,
            PrinterColumn("Decision", "status.decision"),
            PrinterColumn("StoryRun", "status.storyRunRef.name"),
            short=("trig",),
            has_namespace=True,
            is_request=True,
            new_status='{"decision":"Pending"}',
        ),
        _kind(
            "EffectClaim",
            "effectclaims",
            RUNS,
            ALL_RUNS,
            PrinterColumn("StepRun", "spec.stepRunRef.name"),
            PrinterColumn("Effect", "spec.effectKey"),
            PrinterColumn("Holder", "spec.holderIdentity"),
            PHASE,
            short=("eff",),
            has_namespace=True,
            of_runs=True,
        ),
        _kind("ReferenceGrant", "referencegrants", POLICY, ALL, short=("refgrant",), has_namespace=True),
        _kind("Transport", "transports", TRANSPORT, ALL),
        _kind(
            "TransportBinding",
            "transportbindings",
            TRANSPORT,
            ("bubu", "transport"),
            PrinterColumn("Transport", "spec.transportRef"),
            PrinterColumn("Step", "spec.stepName"),
            PrinterColumn("Driver", "spec.driver"),
            PrinterColumn("Endpoint", "status.endpoint"),
            short=("tb", "tbind"),
            has_namespace=True,
            of_runs=True,
        ),
    )
}

API_VERSIONS = tuple(dict.fromkeys(kind.api_version for kind in RESOURCE_KINDS.values()))


def find_kind(name: str) -> StoryResourceKind | None:
    """The kind with a name, plural or short name, in any case; also `stories.bubustack.io`."""
    return next((kind for kind in RESOURCE_KINDS.values() if kind.is_called(name)), None)
