"""The hub: routes what steps publish, and keeps what they have not acknowledged.

    publish ─▶ rules ─▶ `if` ─▶ join ─▶ `runtime` ─▶ partition ─▶ inlet of the downstream ─▶ take ─▶ acknowledge

It decides and changes its own state at once: nothing it does can fail half way. What must survive it is collected as
rows (`rows.py`); who drives it writes them, and answers a publisher after that. Who drives it also hears which steps
have something to take (`woken`) and whether publishers that were held may go on (`released`).
"""

from collections.abc import Mapping
from functools import partial

from perdure.streams.chunks import ChunkAssembler
from perdure.streams.gates import Gates, check_lane
from perdure.streams.hub_metadata import Tracer
from perdure.streams.inlet import Inlet, Packet, bounded
from perdure.streams.joins import FanIn
from perdure.streams.journeys import Journeys
from perdure.streams.notices import Notices
from perdure.streams.stream_graph import StreamGraph, StreamStep, Topology
from perdure.streams.stream_messages import ERROR, HEARTBEAT, HOOK, NOOP, StreamMessage, hook_message
from perdure.streams.stream_rows import Changes, IdWindow, KeptRows, RowBuffer
from perdure.streams.views import Expressions, moment_of, partition_of

STORY_READY, STEP_READY = "storyrun.ready", "steprun.ready"


class StaleSession(RuntimeError):
    """A worker that was replaced still publishes or acknowledges (STR-089)."""


class Draining(RuntimeError):
    """The topology ends: nothing new enters."""


class Hub:
    def __init__(self, topology: Topology, expressions: Expressions, identity: Mapping[str, str]) -> None:
        """`identity` names the run: it is part of hooks."""
        self.graph = StreamGraph(topology)
        self._topology = topology
        self._identity = identity
        self.inlets = {name: Inlet(bounded(plan, len(self.graph.steps))) for name, plan in self.graph.steps.items()}
        for name, inlet in self.inlets.items():
            inlet.open_upstreams = len(self.graph.steps[name].needs)
        self._public = {name: plan.public_name for name, plan in self.graph.steps.items()}
        self._chunks: dict[str, ChunkAssembler] = {}
        self._ids = {
            name: IdWindow(
                plan.settings.is_durable or self.graph.is_durable_below(name), self.graph.loses_nothing(name)
            )
            for name, plan in self.graph.steps.items()
        }
        self._targets = {
            name: tuple((target, self.graph.steps[target], self.inlets[target]) for target in downstreams)
            for name, downstreams in self.graph.downstreams.items()
        }
        self._held: dict[str, int] = dict.fromkeys(self.graph.steps, 0)  # downstreams that make it wait
        self._hooked = [plan for plan in self.graph.steps.values() if plan.hooks]
        self.journeys = Journeys(topology)
        self.notices = Notices()
        self.rows = RowBuffer()
        publish_error = partial(self._publish, is_explicit=False, begins=False)
        self.gates = Gates(expressions, self.inlets, self.notices, identity, publish_error)
        self._tracer = Tracer(identity)
        self.fan_in = FanIn(self.graph, self.rows, self._ids, self.journeys, self.notices)
        self.outputs: dict[str, bytes] = {}  # the last payload of each step
        self.closed: set[str] = set()
        self.is_draining = False
        self.woken: set[str] = set()
        self.released = False

    # Publishing.

    def may_publish(self, step: str, message: StreamMessage | None = None) -> bool:
        """Whether a publication is taken now. Otherwise its publisher waits (STR-073, 077, 126)."""
        if self._held[step]:
            return False
        if message is None or not self.journeys.is_counted or self.graph.steps[step].needs:
            return True
        return self.journeys.admits(message)

    def publish(
        self, step: str, message: StreamMessage, now: int, *, is_explicit: bool = False, begins: bool = True
    ) -> bool:
        """Route a message of a step. False: the step has published the same id before, and nothing happened.

        `begins`: it is the start of a journey, not an answer. Raises `BadMessage` for a lane that forbids it.
        """
        self.gates.refill()
        return self._publish(step, message, now, is_explicit=is_explicit, begins=begins)

    def _publish(self, step: str, message: StreamMessage, now: int, *, is_explicit: bool, begins: bool) -> bool:
        kind = message.kind
        if kind in (HEARTBEAT, NOOP):
            return True
        if begins and self.is_draining and not self.graph.steps[step].needs:
            raise Draining("the topology ends: no new packet enters")
        plan = self.graph.steps[step]
        if plan.settings.lanes:
            check_lane(plan, message, "publish")
        if message.chunk is not None:  # all chunks of a frame may have one id
            if is_explicit and message.id in self._ids[step]:
                return False
            whole = self._chunks.setdefault(step, ChunkAssembler()).add(message, now)
            if whole is None:
                return True
            message = whole
        if is_explicit and not self._ids[step].add(message.id):
            return False
        inlet = self.inlets[step]
        inlet.state.counters.published += 1
        if kind == ERROR:
            inlet.state.counters.errors += 1
        if begins:
            message.root = message.id
        if plan.settings.tracing or message.trace:
            message.trace = self._tracer.trace(plan, message, begins=begins)
        if message.payload is not None:
            self.outputs[step] = message.payload
            if self._topology.reads_steps:
                view = b"{}" if plan.kind == "condition" else message.payload
                message.steps = {**message.steps, self._public[step]: view}
        if self.journeys.is_counted:
            if begins:
                self._begin_journey(message, now)
            elif self.journeys.is_cancelled(message.root):
                return True
        if inlet.is_kept or self._ids[step].is_durable:
            self.rows.touch(step)
        self._route(step, plan, message, now)
        if self.journeys.is_counted:
            self.journeys.settle(message.root)
            self._look_at_journeys()
        return True

    def _route(self, step: str, plan: StreamStep, message: StreamMessage, now: int) -> None:
        rules = plan.settings.rules
        for target, target_plan, inlet in self._targets[step]:
            if rules and not self.gates.allow(plan, target, message, now):
                continue
            self._address(step, target_plan, inlet, message, now)

    def _address(self, upstream: str, plan: StreamStep, inlet: Inlet, message: StreamMessage, now: int) -> None:
        """Give a message to one step, if its `if` lets it pass."""
        if plan.name in self.closed:
            return
        if plan.condition and not self.gates.passes(plan, message, now):
            return
        is_part = plan.name in self.fan_in and message.kind != HOOK
        passed = self.gates.with_inputs(plan, message, now) if plan.runtime and not is_part else message
        if passed is None:
            return
        inlet.state.counters.arrive(self._public.get(upstream, ""))
        if plan.settings.lanes:
            check_lane(plan, passed, "subscribe")
        if is_part:
            passed = self.fan_in.add(upstream, plan, inlet, message, now)
            if plan.runtime and passed is not None:
                passed = self.gates.with_inputs(plan, passed, now)  # of the whole: it reads all upstreams (STR-054)
            if passed is None:
                return
        self._enqueue(plan, inlet, passed, now)

    def _enqueue(self, plan: StreamStep, inlet: Inlet, message: StreamMessage, now: int) -> None:
        settings = plan.settings
        partition = partition_of(message, settings) if settings.partitioning != "none" else ""
        if settings.watermark:
            counters = inlet.state.counters
            counters.watermark = max(counters.watermark, moment_of(message, settings.watermark))
        packet, evicted = inlet.offer(message, partition, message.size, now)
        for old in evicted:
            self._forget(plan, old)
        if evicted or packet is None:
            reason = next(reversed(inlet.state.counters.dropped))
            self.notices.add(plan.name, "PacketDropped", reason, f"a packet was dropped: {reason}", now)
        if packet is None:
            return
        if self.journeys.is_counted:
            self.journeys.enter(message.root)
        if inlet.is_kept:
            self.rows.put(plan.name, packet)
        self._look_at_pressure(plan, inlet, now)
        if len(inlet.waiting) == 1:  # whoever takes packets goes on while there are any
            self.woken.add(plan.name)

    # From outside, and hooks.

    def receive(self, step: str, message: StreamMessage, now: int, *, is_explicit: bool = False) -> bool:
        """A message from outside is an inbound message of the step, under its `if` and `runtime` (STR-121)."""
        if self.is_draining:
            raise Draining("the topology ends: no new packet enters")
        if is_explicit and not self._ids[step].add(f"\0{message.id}"):
            return False
        if message.kind in (HEARTBEAT, NOOP):
            return True
        message.root = message.id
        if self.journeys.is_counted:
            self._begin_journey(message, now)
        self.gates.refill()
        plan = self.graph.steps[step]
        self._tracer.adopt(plan, message)
        if plan.settings.is_kept:
            self.rows.touch(step)
        self._address("", plan, self.inlets[step], message, now)
        return True

    def may_receive(self, step: str, message: StreamMessage) -> bool:
        inlet = self.inlets[step]
        if inlet.settings.at_least_once and inlet.is_paused:
            return False
        return not self.journeys.is_counted or self.journeys.admits(message)

    def fire_hook(self, event: str, step: str, now: int) -> list[str]:
        """Send a hook to every step whose `if` names the event and holds; which steps those are (STR-079, 081)."""
        self.gates.refill()
        targets = [plan for plan in self._hooked if event in plan.hooks]
        for plan in targets:
            message = hook_message(event, step, self._identity, now // 1_000)
            self._address("", plan, self.inlets[plan.name], message, now)
        return [plan.name for plan in targets]

    # Sessions.

    def connect(self, step: str, now: int) -> int:
        """A worker has come: its generation, which it names with everything it does."""
        inlet = self.inlets[step]
        generation = inlet.begin_session()
        if inlet.waiting:
            self.woken.add(step)
        return generation

    def lose(self, step: str, now: int) -> None:
        """The worker is gone; what it did not acknowledge comes again if it is kept."""
        inlet = self.inlets[step]
        for packet in inlet.end_session():
            self._forget(self.graph.steps[step], packet)

    def must_be_current(self, step: str, generation: int) -> None:
        if self.inlets[step].generation != generation:
            raise StaleSession(f"another session has replaced that of step {step!r}")

    def take(self, step: str, now: int) -> Packet | None:
        inlet = self.inlets[step]
        packet = inlet.take(now)
        if packet is not None and inlet.is_paused:
            self._look_at_pressure(self.graph.steps[step], inlet, now)
        return packet

    def acknowledge(self, step: str, position: int, now: int) -> bool:
        """The step is done with a packet. False: it was before."""
        inlet = self.inlets[step]
        was_held = not inlet.may_take
        packet = inlet.acknowledge(position, now)
        if packet is None:
            return False
        if inlet.is_kept or self.journeys.is_counted:
            self._forget(self.graph.steps[step], packet)
        if was_held and inlet.waiting:
            self.woken.add(step)
        return True

    def has_ended(self, step: str) -> bool:
        """Whether no packet will come for the step any more."""
        inlet = self.inlets[step]
        return not inlet.open_upstreams and bool(self.graph.steps[step].needs) and not inlet.waiting

    def close(self, step: str, now: int) -> None:
        """The step publishes nothing more. Steps below it whose upstreams are all closed get end-of-input."""
        if step in self.closed:
            return
        self.closed.add(step)
        inlet = self.inlets[step]
        for packet in [*inlet.drop(lambda packet: True, "cancelled"), *inlet.abandon()]:
            self._forget(self.graph.steps[step], packet)
        self._look_at_pressure(self.graph.steps[step], inlet, now)
        for target, plan, below in self._targets[step]:
            below.open_upstreams -= 1
            if target in self.fan_in:
                if plan.kind == "join" and self.graph.steps[step].allow_failure:
                    for message in self.fan_in.lack(plan, below.open_upstreams):
                        self._enqueue(plan, below, message, now)
                if not below.open_upstreams:
                    self.fan_in.close(plan, below, now)
            self.woken.add(target)

    def _forget(self, plan: StreamStep, packet: Packet) -> None:
        """A packet has left: it is not kept any more, and its journey is shorter."""
        if self.inlets[plan.name].is_kept:
            self.rows.remove(plan.name, packet.position)
            self.rows.touch(plan.name)
        if self.journeys.is_counted:
            self.journeys.leave(packet.message.root)
            self._look_at_journeys()

    # Pressure, journeys, time.

    def _look_at_pressure(self, plan: StreamStep, inlet: Inlet, now: int) -> None:
        change = inlet.look_at_pressure()
        if not change:
            return
        is_held = 1 if change == "pause" else -1
        for upstream in plan.needs:
            if inlet.settings.at_least_once:
                self._held[upstream] += is_held
            kind = "StreamPaused" if change == "pause" else "StreamResumed"
            verb = "is asked to pause" if change == "pause" else "may go on"
            self.notices.add(upstream, kind, plan.name, f"{upstream!r} {verb}: buffer of {plan.name!r}", now)
        if change == "resume":
            self.released = True

    def _begin_journey(self, message: StreamMessage, now: int) -> None:
        cancelled = self.journeys.begin(message)
        if not cancelled:
            return
        for name, inlet in self.inlets.items():
            plan = self.graph.steps[name]
            for packet in inlet.drop(lambda packet: packet.message.root == cancelled, "cancelled"):
                self._forget(plan, packet)
            for packet in inlet.pending.values():
                packet.is_cancelled = packet.is_cancelled or packet.message.root == cancelled
        self._look_at_journeys()

    def _look_at_journeys(self) -> None:
        if self.journeys.has_ended:
            self.journeys.has_ended = False
            self.released = True

    def tick(self, now: int) -> None:
        """Whatever time brings: packets and joins that are too old, credits that are due, chunks that never came."""
        for name, inlet in self.inlets.items():
            plan = self.graph.steps[name]
            expired, reason = inlet.expire(now)
            for packet in expired:
                self._forget(plan, packet)
                self.notices.add(name, "PacketDropped", reason, f"a packet was dropped: {reason}", now)
            if name in self.fan_in:
                self.fan_in.expire(plan, inlet, now)
            due = inlet.grant_due
            if due is not None and due <= now:
                inlet.grant(now)
                self.woken.add(name)
            self._look_at_pressure(plan, inlet, now)
        for step, assembler in self._chunks.items():
            if count := assembler.expire(now):
                self.notices.add(step, "PacketDropped", "chunks", f"{count} incomplete frames were dropped", now)

    # What survives.

    def take_changes(self) -> Changes:
        """Everything that has changed since it was last asked, as one consistent set."""
        for inlet in self.inlets.values():
            inlet.note_pressure()
        return self.rows.take({name: inlet.state for name, inlet in self.inlets.items()}, self._ids)

    def take_everything(self) -> Changes:
        """All that is kept, for a place that has lost it."""
        packets = [
            (name, packet)
            for name, inlet in self.inlets.items()
            if inlet.is_kept
            for packet in sorted([*inlet.pending.values(), *inlet.waiting, *self.fan_in.kept(name)], key=_position)
        ]
        changes = self.rows.take_all(packets, {name: inlet.state for name, inlet in self.inlets.items()})
        changes.ids_added = {name: numbers for name, window in self._ids.items() if (numbers := window.numbered())}
        return changes

    def restore(self, kept: KeptRows, now: int) -> None:
        """Go on from what an earlier hub of the same topology has left."""
        self.rows.note_kept(kept)
        for name, state in kept.states.items():
            if name in self.inlets:
                self.inlets[name].state = state
        for name, numbered in kept.ids.items():
            if name in self._ids:
                self._ids[name].restore(numbered)
        for name, inlet in self.inlets.items():
            packets = kept.packets.get(name, ())
            counters = inlet.state.counters
            whole = [packet for packet in packets if not packet.upstream]
            untaken = counters.received - counters.delivered - sum(counters.dropped.values())
            if (lost := untaken - len(whole)) > 0:
                counters.drop("hub_lost", lost)
                untaken -= lost
            for place, packet in enumerate(whole):
                packet.taken = int(place < len(whole) - untaken)
                if packet.taken and not inlet.settings.at_least_once:  # it went with the worker that had it
                    inlet.pass_over(packet)
                    self.rows.remove(name, packet.position)
                    continue
                inlet.restore(packet)
                if self.journeys.is_counted:
                    self.journeys.enter(packet.message.root)
            for packet in packets:
                if packet.upstream and name in self.fan_in:
                    self.fan_in.restore(self.graph.steps[name], packet)
            self._look_at_pressure(self.graph.steps[name], inlet, now)


def _position(packet: Packet) -> int:
    return packet.position
