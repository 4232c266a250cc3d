"""The program of a Story: the bundle that a run is pinned to, ready to run. Immutable; shared by all its runs.

A bundle is one JSON object: the Story, every Engram, template and Story it refers to as of the run's start, the
grants between namespaces, and the operator's settings (STY-255). Templates are compiled when a step starts, because
a step's input is merged with its Engram's.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story.plan.offload_policy import injects, reads_in_process
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.resource import ResourceIndex
from perdure.dialects.story.values.references import may_refer, named_secrets
from perdure.dialects.story.values.template_roots import BATCH, OUTPUT, under
from perdure.expressions.gotemplate import Environment, References, Structure
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant

Data = Mapping[str, Any]


class Step(msgspec.Struct, frozen=True, gc=False):
    """A step of any block, a branch of a parallel step (its `parent`), or a helper (with a `purpose`)."""

    name: str
    block: str
    kind: str
    data: Data
    parent: str = ""
    branches: tuple["Step", ...] = ()
    purpose: str = ""  # of a helper: what it evaluates for the step `helps` (empty: for the run's output)
    helps: str = ""

    @property
    def with_block(self) -> dict[str, Any]:
        """The step's `with`."""
        value = self.data.get("with")
        return value if isinstance(value, dict) else {}

    @property
    def condition(self) -> str:
        value = self.data.get("if")
        return value if isinstance(value, str) else ""

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
    """The graph as folding needs it: dependencies and positions of steps. Static, so not part of a snapshot."""

    __slots__ = (
        "allowed_to_fail",
        "block_of",
        "blocks",
        "branches",
        "dependents",
        "helped",
        "is_hybrid",
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
        *,
        is_hybrid: bool = False,
    ) -> None:
        self.blocks = blocks
        self.is_hybrid = is_hybrid  # the one step of a packet (STR-067)
        self.waits = waits
        self.branches = branches
        self.allowed_to_fail = allowed
        self.helped = helped or {}  # helper: the step it helps, or "" for the run's output
        self.block_of = {name: block for block, names in blocks.items() for name in names}
        self.parents = {branch: parent for parent, names in branches.items() for branch in names}
        self.block_of.update({branch: self.block_of[parent] for branch, parent in self.parents.items()})
        ordered = [name for names in blocks.values() for step in names for name in (step, *branches.get(step, ()))]
        self.order = {name: position for position, name in enumerate([*ordered, *self.helped])}
        self.dependents: dict[str, list[str]] = {}
        for name, needed in waits.items():
            for dependency in needed:
                self.dependents.setdefault(dependency, []).append(name)

    def helpers(self, name: str) -> list[str]:
        return [helper for helper, helped in self.helped.items() if helped == name]

    def downstream(self, name: str) -> set[str]:
        """The step and everything in its block that waits for it, directly or indirectly (STY-184)."""
        steps = {name}
        pending = [name]
        while pending:
            for dependent in self.dependents.get(pending.pop(), ()):
                if dependent not in steps and self.block_of[dependent] == self.block_of[name]:
                    steps.add(dependent)
                    pending.append(dependent)
        return steps


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
        story: Data = self.bundle["story"]
        return story

    @cached_property
    def spec(self) -> Data:
        return object_at(self.story, "spec")

    @cached_property
    def policy(self) -> Data:
        return object_at(self.spec, "policy")

    @cached_property
    def is_batch(self) -> bool:
        return bool(self.spec.get("pattern", "batch") == "batch")

    def streams(self, block: str) -> bool:
        """Whether the steps of a block are workers of a topology; cleanup blocks always run as batch (STR-031)."""
        return block == "steps" and not self.is_batch

    @property
    def continues_on_failure(self) -> bool:
        return object_at(self.policy, "retries").get("continueOnStepFailure") is True

    @cached_property
    def secret_names(self) -> tuple[str, ...]:
        """Secrets that the documents name, as workers request them: `name/key`."""
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
        """The environment for templates whose value is a key: absent data is an error."""
        return msgspec.structs.replace(self.environment, refuses_absent=True)

    @cached_property
    def output_environment(self) -> Environment:
        return under(OUTPUT, self.settings)

    @cached_property
    def output_structure(self) -> Structure:
        """The compiled `output` of the Story. Raises `TemplateError`."""
        return Structure(self.spec.get("output"), self.output_environment)

    @cached_property
    def reads_in_process(self) -> bool:
        """Whether templates read offloaded data in this process (STY-207)."""
        return reads_in_process(self.story, self.settings)

    @cached_property
    def injects(self) -> bool:
        """Whether helper steps evaluate templates that read offloaded data."""
        return injects(self.story, self.settings)

    @cached_property
    def engrams(self) -> dict[str, Any]:
        """Cache of `engram_lookup`: results by step."""
        return {}

    @cached_property
    def child_bundles(self) -> dict[str, bytes]:
        """Cache of `child_runs`: bundles for child runs, by Story."""
        return {}

    @cached_property
    def pairs(self) -> dict[Any, Any]:
        """Cache of `engram_lookup`: results by reference."""
        return {}

    def read(self, references: References) -> tuple[Iterable[str], bool]:
        """The steps that a template may read, and whether it reads the inputs."""
        reads = self._read.get(references)
        if reads is None:
            steps = self.steps if references.reads_any_step else references.steps_among(self.steps)[0]
            reads = self._read[references] = steps, "inputs" in references.roots
        return reads

    @cached_property
    def _read(self) -> dict[References, tuple[Iterable[str], bool]]:
        return {}

    @cached_property
    def resources(self) -> ResourceIndex:
        """All resources of the bundle."""
        return open_bundle(self.bundle)

    def step(self, name: str) -> Step:
        """A step of the Story, or a helper."""
        step = self.steps.get(name)
        return self.helpers[name] if step is None else step

    @cached_property
    def siblings(self) -> dict[str, frozenset[str]]:
        """The names of the branches of each parallel step."""
        return {name: frozenset(branches) for name, branches in self.plan.branches.items()}

    # Scopes of the limits over many runs (STY-071, 072, 076).

    @cached_property
    def has_limits(self) -> bool:
        """Whether any concurrency limit applies."""
        queues = self.settings.queues.values()
        return max(self.concurrency, self.settings.global_concurrency, *(queue.concurrency for queue in queues)) > 0

    @cached_property
    def queue(self) -> str | None:
        queue = self.policy.get("queue")
        return queue.lower() if isinstance(queue, str) and queue else None

    @cached_property
    def priority(self) -> int | None:
        priority = self.policy.get("priority")
        return priority if isinstance(priority, int) and not isinstance(priority, bool) else None

    @cached_property
    def concurrency(self) -> int:
        concurrency = self.policy.get("concurrency")
        return concurrency if isinstance(concurrency, int) and not isinstance(concurrency, bool) else 0


def object_at(data: Any, *names: str) -> dict[str, Any]:
    """The object at a path; empty if there is none."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def open_bundle(contents: Mapping[str, Any]) -> ResourceIndex:
    """Index the resources of a bundle, its Story included, by kind and name."""
    index = ResourceIndex([contents["story"], *contents["grants"]])
    for part in ("engrams", "templates", "stories", "transports"):
        for resource in contents.get(part, {}).values():
            index.put(resource)
    return index
