"""The graph of steps that packets flow through, with the settings of every step. Read once from a task's arguments."""

from collections.abc import Mapping
from typing import Any

import msgspec

MEBIBYTE = 1024 * 1024
MILLISECOND = 1_000
SECOND = 1_000_000

HARD_CAP = 64
"""More downstreams than this has no step (STR-051)."""

JOIN = "/join"
"""What the name of the inner step ends with that collects the answers of a parallel step's branches."""


class Lane(msgspec.Struct, frozen=True):
    kind: str
    direction: str = "bidirectional"
    messages: int = 0  # 0: no cap of its own
    bytes: int = 0


class Rule(msgspec.Struct, frozen=True):
    """A routing rule of a publisher. `when` is its place in the expressions of the step; none means always."""

    denies: bool = False
    when: bool = False
    targets: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Settings of one step. Durations are microseconds; 0 means none, except where the hub has a default."""

    driver: str = "local"  # where packets are kept: local, nats
    # As a receiver (STR-132).
    max_messages: int = 100
    max_bytes: int = 10 * MEBIBYTE
    max_age: int = 600 * SECOND
    drops_oldest: bool = False
    flow: str = "credits"  # none, credits, window
    credit_messages: int = 0  # 0: the buffer's size
    credit_bytes: int = 0
    ack_messages: int = 10
    ack_bytes: int = 0
    ack_delay: int = 250 * MILLISECOND
    pause_at: int = 90
    resume_below: int = 50
    ordering: str = "none"  # none, per_stream, per_partition
    at_least_once: bool = False
    replay: str = "none"  # none, memory, durable
    retention: int = 0
    checkpoint: int = SECOND
    join: str = "all"  # all, any, quorum
    quorum: int = 0
    join_timeout: int = 0
    max_joins: int = 1_000
    partitioning: str = "none"  # none, preserve, hash
    partition_key: str = ""
    partitions: int = 0
    sticky: bool = False
    # As a publisher.
    rules: tuple[Rule, ...] = ()
    # Both.
    lanes: tuple[Lane, ...] = ()
    watermark: str = ""  # the path of the event time; empty: none is kept
    message_timeout: int = 0  # under best effort: how long a message may wait to be handed over (STR-061)
    tracing: str = ""  # which journeys are traced: rate, random, always, never; empty: none has a trace context
    trace_rate: int = 100  # percent
    has_metrics: bool = True

    @property
    def is_durable(self) -> bool:
        return self.at_least_once and self.replay == "durable"

    @property
    def is_kept(self) -> bool:
        """Whether packets are kept outside the hub: in the run's store if they must be, in a NATS stream always."""
        return self.driver != "local" or self.is_durable

    @property
    def is_sequenced(self) -> bool:
        return self.at_least_once or self.ordering != "none"


class StreamStep(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    kind: str = "engram"
    needs: tuple[str, ...] = ()
    condition: bool = False  # whether an `if` gates its packets
    runtime: bool = False  # whether its inputs are rendered for every packet
    hooks: tuple[str, ...] = ()  # events that its `if` names, in lower case
    branches: tuple[str, ...] = ()  # of a parallel step
    allow_failure: bool = False
    settings: Settings = Settings()

    @property
    def public_name(self) -> str:
        return self.name.removesuffix(JOIN)


class Topology(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    steps: tuple[StreamStep, ...]
    mode: str = "parallel"  # serial, cancelPrevious, parallel: how journeys follow each other (STR-077)
    scope: str = "storyrun"  # or participant
    continues_on_failure: bool = False
    reads_steps: bool = True  # whether any template reads what upstream steps have published


class StreamGraph:
    """A topology with its edges. A parallel step is two: one hands a packet to the branches, one collects them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        parallel = {step.name for step in topology.steps if step.branches}
        steps: list[StreamStep] = []
        for step in topology.steps:
            needs = tuple(f"{name}{JOIN}" if name in parallel and name in step.needs else name for name in step.needs)
            steps.append(msgspec.structs.replace(step, needs=needs))
            if step.branches:
                steps.append(
                    StreamStep(f"{step.name}{JOIN}", "join", step.branches, settings=_collecting(step.settings))
                )
        branch_of = {branch: step.name for step in topology.steps for branch in step.branches}
        steps = [
            msgspec.structs.replace(step, needs=(branch_of[step.name],)) if step.name in branch_of else step
            for step in steps
        ]
        self.steps = {step.name: step for step in steps}
        self.downstreams: dict[str, tuple[str, ...]] = {
            name: tuple(step.name for step in steps if name in step.needs) for name in self.steps
        }

    def below(self, name: str) -> set[str]:
        """Everything that packets of a step may reach."""
        reached: set[str] = set()
        pending = [name]
        while pending:
            for downstream in self.downstreams[pending.pop()]:
                if downstream not in reached:
                    reached.add(downstream)
                    pending.append(downstream)
        return reached

    def is_durable_below(self, name: str) -> bool:
        """Whether a publication of the step is answered only after something was written."""
        return any(self.steps[target].settings.is_durable for target in self.downstreams[name])

    def loses_nothing(self, name: str) -> bool:
        """Whether the step, or one that it publishes to, gets every packet at least once."""
        return any(self.steps[step].settings.at_least_once for step in (name, *self.downstreams[name]))

    def is_direct(self, name: str) -> bool:
        """Whether the edges out of a step may bypass the hub (STR-049)."""
        plain = self.steps[name]
        downstreams = self.downstreams[name]
        if len(downstreams) != 1 or plain.condition or plain.runtime:
            return False
        target = self.steps[downstreams[0]]
        return not (target.condition or target.runtime) and all(self.is_direct(upstream) for upstream in plain.needs)


def fan_out_problem(graph: StreamGraph, most: Mapping[str, int]) -> str | None:
    """Why the graph cannot run: a step has more downstreams than its settings, or any hub, allow (STR-051)."""
    for name, downstreams in graph.downstreams.items():
        limit = min(most.get(name, 32), HARD_CAP)
        if len(downstreams) > limit:
            return f"step {name!r} has {len(downstreams)} downstream steps; the limit is {limit}"
    return None


def _collecting(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, join="all", quorum=0, rules=())


def read_topology(value: Any) -> Topology:
    return msgspec.convert(value, Topology)
