"""The kinds of resources (section 1.1), with their plural and short names: `stories`, `srun`, `etpl`."""

from perdure.kernel import resource_kinds

CORE = "bubustack.io"
CATALOG = "catalog.bubustack.io"
RUNS = "runs.bubustack.io"
TRANSPORT = "transport.bubustack.io"
POLICY = "policy.bubustack.io"
VERSION = "v1alpha1"


class StoryResourceKind(resource_kinds.ResourceKind, frozen=True):
    @property
    def api_version(self) -> str:
        return f"{self.group}/{VERSION}"

    @property
    def is_global(self) -> bool:
        """Whether resources of this kind belong to no namespace."""
        return not self.has_namespace


RESOURCE_KINDS: dict[str, StoryResourceKind] = {
    kind.name: kind
    for kind in (
        StoryResourceKind("Story", "stories", CORE, has_namespace=True, can_run=True),
        StoryResourceKind("Engram", "engrams", CORE, has_namespace=True),
        StoryResourceKind("Impulse", "impulses", CORE, ("imp",), has_namespace=True),
        StoryResourceKind("EngramTemplate", "engramtemplates", CATALOG, ("etpl",)),
        StoryResourceKind("ImpulseTemplate", "impulsetemplates", CATALOG, ("itpl",)),
        StoryResourceKind("StoryRun", "storyruns", RUNS, ("srun",), has_namespace=True, of_runs=True, is_request=True),
        StoryResourceKind("StepRun", "stepruns", RUNS, ("step",), has_namespace=True, of_runs=True),
        StoryResourceKind(
            "StoryTrigger",
            "storytriggers",
            RUNS,
            ("trig",),
            has_namespace=True,
            is_request=True,
            new_status='{"decision":"Pending"}',
        ),
        StoryResourceKind("EffectClaim", "effectclaims", RUNS, ("eff",), has_namespace=True, of_runs=True),
        StoryResourceKind("ReferenceGrant", "referencegrants", POLICY, ("refgrant",), has_namespace=True),
        StoryResourceKind("Transport", "transports", TRANSPORT),
        StoryResourceKind(
            "TransportBinding", "transportbindings", TRANSPORT, ("tb", "tbind"), has_namespace=True, of_runs=True
        ),
    )
}

API_VERSIONS = tuple(dict.fromkeys(kind.api_version for kind in RESOURCE_KINDS.values()))


def find_kind(name: str) -> StoryResourceKind | None:
    """The kind with a name, plural or short name, in any case; also `stories.bubustack.io`."""
    return next((kind for kind in RESOURCE_KINDS.values() if kind.is_called(name)), None)
