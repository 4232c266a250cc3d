"""The program of a Story: the bundle a run is pinned to, ready to be run. Immutable; shared by every run of it.

A bundle is one JSON object: the Story itself, every Engram, template and Story it refers to as they were when the
run was started, the grants between namespaces, and the operator's settings (STY-255).
Templates are compiled when a step starts: a step's input is known only together with its Engram's.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story.plan.bundle import open_bundle
from perdure.dialects.story.plan.offload_policy import injects, reads_in_process
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.resource import ResourceIndex
from perdure.dialects.story.values.references import may_refer, named_secrets
from perdure.dialects.story.values.template_roots import BATCH, OUTPUT, under
from perdure.expressions.gotemplate import Environment, References, Structure
from perdure.kernel import jsontext
from perdure.kernel.values import Instant

Data = Mapping[str, Any]


class Step(msgspec.Struct, frozen=True, gc=False):
    """One step of any block, one branch of a parallel step, which then is its `parent`, or a helper (`purpose`)."""

    name: str
    block: str
    kind: str
    data: Data
    parent: str = ""
    branches: tuple["Step", ...] = ()
    purpose: str = ""  # of a helper: what it evaluates for the step it `helps`; that is empty for the run's output
    helps: str = ""

    @property
    def given(self) -> dict[str, Any]:
        """What is written under `with`."""
        found = self.data.get("with")
        return found if isinstance(found, dict) else {}

    @property
    def condition(self) -> str:
        found = self.data.get("if")
        return found if isinstance(found, str) else ""

    @property
    def allows_failure(self) -> bool:
        return self.data.get("allowFailure") is True

    @property
    def has_side_effects(self) -> bool:
        return self.data.get("sideEffects") is True

    @property
    def execution(self) -> Data:
        return object_at(self.data, "execution")


class StepPlan:
    """The graph as folding needs it: who waits for whom, who stands where. Static, so no part of a snapshot."""

    __slots__ = (
        "allowed_to_fail",
        "block_of",
        "blocks",
        "branches",
        "dependents",
        "helped",
        "order",
        "parents",
        "waits",
    )

    def __init__(
        self,
        blocks: Mapping[str, tuple[str, ...]],
        waits: Mapping[str, tuple[str, ...]],
        branches: Mapping[str, tuple[str, ...]],
        allowed: frozenset[str],
        helped: Mapping[str, str] | None = None,
    ) -> None:
        self.blocks = blocks
        self.waits = waits
        self.branches = branches
        self.allowed_to_fail = allowed
        self.helped = helped or {}  # helper: the step it helps, or "" for the run's output
        self.block_of = {name: block for block, names in blocks.items() for name in names}
        self.parents = {branch: parent for parent, names in branches.items() for branch in names}
        self.block_of.update({branch: self.block_of[parent] for branch, parent in self.parents.items()})
        ordered = [name for names in blocks.values() for step in names for name in (step, *branches.get(step, ()))]
        self.order = {name: at for at, name in enumerate([*ordered, *self.helped])}
        self.dependents: dict[str, list[str]] = {}
        for name, needed in waits.items():
            for one in needed:
                self.dependents.setdefault(one, []).append(name)

    def helpers(self, name: str) -> list[str]:
        return [helper for helper, helped in self.helped.items() if helped == name]

    def downstream(self, name: str) -> set[str]:
        """The step and everything in its block that waits for it, at any distance (STY-184)."""
        found = {name}
        pending = [name]
        while pending:
            for one in self.dependents.get(pending.pop(), ()):
                if one not in found and self.block_of[one] == self.block_of[name]:
                    found.add(one)
                    pending.append(one)
        return found


NO_PLAN: StepPlan = StepPlan({}, {}, {}, frozenset())


class Program(msgspec.Struct, frozen=True, dict=True):
    bundle: Data
    namespace: str
    name: str
    steps: Mapping[str, Step]  # of all blocks in story order, branches behind their parents
    plan: StepPlan
    settings: Settings
    refusal: str | None = None  # why its graph cannot run (STY-055)
    bounds: Mapping[str, Instant | None] = msgspec.field(default_factory=dict)  # `policy.timeouts` that make sense
    helpers: Mapping[str, Step] = msgspec.field(default_factory=dict)  # steps that the engine may add (STY-207)

    @property
    def story(self) -> Data:
        found: Data = self.bundle["story"]
        return found

    @cached_property
    def spec(self) -> Data:
        return object_at(self.story, "spec")

    @cached_property
    def policy(self) -> Data:
        return object_at(self.spec, "policy")

    @property
    def is_batch(self) -> bool:
        return bool(self.spec.get("pattern", "batch") == "batch")

    @property
    def continues_on_failure(self) -> bool:
        return object_at(self.policy, "retries").get("continueOnStepFailure") is True

    @cached_property
    def secret_names(self) -> tuple[str, ...]:
        """Secrets that the documents name, as workers ask for them: `name/key`."""
        text = jsontext.encode(self.bundle)
        if not may_refer(text) and b'"secrets"' not in text:
            return ()
        return tuple(dict.fromkeys(named_secrets(self.bundle)))

    @cached_property
    def environment(self) -> Environment:
        """What the templates of steps may use."""
        return under(BATCH, self.settings)

    @cached_property
    def key_environment(self) -> Environment:
        """The same, where what they give tells one thing from another."""
        return msgspec.structs.replace(self.environment, refuses_absent=True)

    @cached_property
    def output_environment(self) -> Environment:
        return under(OUTPUT, self.settings)

    @cached_property
    def output_structure(self) -> Structure:
        """What is written under `output`, compiled. Raises `TemplateError`."""
        return Structure(self.spec.get("output"), self.output_environment)

    @cached_property
    def reads_in_process(self) -> bool:
        """Whether templates read offloaded data as if they were small (STY-207)."""
        return reads_in_process(self.story, self.settings)

    @cached_property
    def injects(self) -> bool:
        """Whether what looks into offloaded data is evaluated by a helper step."""
        return injects(self.story, self.settings)

    @cached_property
    def engrams(self) -> dict[str, Any]:
        """By step, what `engram_lookup` found in the bundle."""
        return {}

    @cached_property
    def child_bundles(self) -> dict[str, bytes]:
        """By Story in the bundle, what its children are pinned to (see `child_runs`)."""
        return {}

    @cached_property
    def pairs(self) -> dict[Any, Any]:
        """By reference, what `engram_lookup` found in the bundle."""
        return {}

    def read(self, references: References) -> tuple[Iterable[str], bool]:
        """The steps that a template may read, and whether it reads the inputs."""
        found = self._read.get(references)
        if found is None:
            steps = self.steps if references.reads_any_step else references.steps_among(self.steps)[0]
            found = self._read[references] = steps, "inputs" in references.roots
        return found

    @cached_property
    def _read(self) -> dict[References, tuple[Iterable[str], bool]]:
        return {}

    @cached_property
    def resources(self) -> ResourceIndex:
        """Everything the bundle holds."""
        return open_bundle(self.bundle)

    def step(self, name: str) -> Step:
        """A step of the Story, or a helper."""
        found = self.steps.get(name)
        return self.helpers[name] if found is None else found

    @cached_property
    def siblings(self) -> dict[str, frozenset[str]]:
        """By parallel step, the names of its branches."""
        return {name: frozenset(branches) for name, branches in self.plan.branches.items()}

    # Where limits over many runs are counted (STY-071, 072, 076).

    @cached_property
    def has_limits(self) -> bool:
        """Whether any of them could ever hold a step back."""
        queues = self.settings.queues.values()
        return max(self.concurrency, self.settings.global_concurrency, *(one.concurrency for one in queues)) > 0

    @cached_property
    def queue(self) -> str | None:
        found = self.policy.get("queue")
        return found.lower() if isinstance(found, str) and found else None

    @cached_property
    def priority(self) -> int | None:
        found = self.policy.get("priority")
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @cached_property
    def concurrency(self) -> int:
        found = self.policy.get("concurrency")
        return found if isinstance(found, int) and not isinstance(found, bool) else 0


def object_at(data: Any, *names: str) -> dict[str, Any]:
    """An object inside an object; empty when it is not there."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}
