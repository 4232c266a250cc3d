"""The kinds of resources, and every word one may be asked for by: `story`, `stories`, `srun`, `etpl` (section 1.1)."""

from dataclasses import dataclass

CORE = "bubustack.io"
CATALOG = "catalog.bubustack.io"
RUNS = "runs.bubustack.io"
TRANSPORT = "transport.bubustack.io"
POLICY = "policy.bubustack.io"
VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    group: str
    plural: str
    short: tuple[str, ...] = ()
    is_global: bool = False  # belongs to no namespace

    @property
    def api_version(self) -> str:
        return f"{self.group}/{VERSION}"

    @property
    def words(self) -> tuple[str, ...]:
        """What a person may call it, in small letters."""
        return (self.name.lower(), self.plural, *self.short)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("Story", CORE, "stories"),
        Kind("Engram", CORE, "engrams"),
        Kind("Impulse", CORE, "impulses", ("imp",)),
        Kind("EngramTemplate", CATALOG, "engramtemplates", ("etpl",), is_global=True),
        Kind("ImpulseTemplate", CATALOG, "impulsetemplates", ("itpl",), is_global=True),
        Kind("StoryRun", RUNS, "storyruns", ("srun",)),
        Kind("StepRun", RUNS, "stepruns", ("step",)),
        Kind("StoryTrigger", RUNS, "storytriggers", ("trig",)),
        Kind("EffectClaim", RUNS, "effectclaims", ("eff",)),
        Kind("ReferenceGrant", POLICY, "referencegrants", ("refgrant",)),
        Kind("Transport", TRANSPORT, "transports", is_global=True),
        Kind("TransportBinding", TRANSPORT, "transportbindings", ("tb", "tbind")),
    )
}

API_VERSIONS = tuple(dict.fromkeys(kind.api_version for kind in KINDS.values()))

_BY_WORD = {word: kind for kind in KINDS.values() for word in kind.words}


def find_kind(word: str) -> Kind | None:
    """The kind meant by a word of the command line, in any case; also `stories.bubustack.io`."""
    name, _, group = word.lower().partition(".")
    kind = _BY_WORD.get(name)
    return kind if kind is not None and group in ("", kind.group) else None
