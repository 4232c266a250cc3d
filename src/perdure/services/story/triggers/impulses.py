"""Deliveries of Impulses (STY-013, 154 to 158, 273): an event becomes a request, as the Impulse and its template
define.

event ─mapping─▶ inputs ─policy─▶ token ─throttle─▶ request, retried on transient errors
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.names import run_name
from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of, read_reference, spec_of
from perdure.dialects.story.resources.timestamps import moment
from perdure.dialects.story.triggers import impulse_counts
from perdure.dialects.story.triggers.decisions import TriggerAnswer, answer_of
from perdure.dialects.story.triggers.delivery import (
    RECHECK_AFTER,
    RENEW_EVERY,
    BadDelivery,
    DeliveryPolicy,
    ImpulseThrottle,
    map_event,
    renew,
    token_for,
)
from perdure.dialects.story.triggers.requests import Delivery, compose_trigger, target_of
from perdure.dialects.story.triggers.webhooks import (
    BadEvent,
    BadSignature,
    Read,
    ReceivedEvent,
    SignaturePolicy,
    is_json,
    read_events,
    verify,
)
from perdure.engine.client import Client
from perdure.engine.decision_threads import done_aside
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.expressions.gotemplate import Ambient
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, InvalidDocument
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.services.entry_status import change_status
from perdure.services.story.triggers.impulse_throttle import TRANSIENT, ThrottledDelivery, leave, with_throttle
from perdure.services.story.triggers.requests import Requests

if TYPE_CHECKING:
    from perdure.engine.secrets.kept_secrets import KeptSecrets

ANSWERED_WITHIN: Instant = 5 * SECOND
"""A request over HTTP that is not decided by then is answered as it is: it is stored, and decided later."""


class DeliveryRefused(InvalidDocument):
    """An event cannot be delivered under the rules of its Impulse: no request was made, and it is not retried."""

    code = "DELIVERY-REFUSED"
    hint = (
        "Compare the event with the Impulse: `perdure get impulse NAME -o yaml`, spec.mapping and spec.deliveryPolicy."
    )


class Impulses:
    def __init__(self, client: Client, chance: Callable[[], float] = random.random) -> None:
        self._client = client
        self._requests = Requests(client)
        self._chance = chance

    async def deliver(
        self,
        name: str,
        event: Any,
        *,
        token: str | None = None,
        namespace: str = "default",
        numbered: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> Resource:
        """Request the run for an event; returns the decided StoryTrigger, which has these `annotations`.

        The member of a Story's inputs called `numbered` gets a `runID`, which does not identify the delivery.
        """
        resource, policy, throttle, key = await self._compose(name, event, token, namespace, numbered, annotations)
        if not throttle.in_flight:
            await self._enter(key, throttle, "")
            return await self._try(resource, policy, key)
        holder = secrets.token_hex(8)
        is_over = asyncio.Event()
        renewing = asyncio.get_running_loop().create_task(self._renew(key, holder, is_over))
        try:
            await self._enter(key, throttle, holder)
            return await self._try(resource, policy, key)
        finally:
            is_over.set()  # in addition to the cancel, which does not reach a write in progress
            renewing.cancel()
            await leave(self._client, key, holder)

    async def _compose(
        self,
        name: str,
        event: Any,
        token: str | None,
        namespace: str,
        numbered: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> tuple[Resource, DeliveryPolicy, ImpulseThrottle, ResourceKey]:
        """The request for an event, and the rules under which it is made."""
        impulse, template = await self.find(name, namespace)
        key = ResourceKey("Impulse", namespace, name)
        policy, throttle = DeliveryPolicy.read(impulse, template), ImpulseThrottle.read(impulse)
        try:
            ambient = Ambient(moment(self._client.clock.now()), self._chance)
            inputs = map_event(impulse, event, ambient)
            token = token_for(policy, impulse, inputs, token)
            mode = "none" if token is None else "key" if policy.mode == "key" else "token"
            resource = self._request(impulse, inputs, mode, token, numbered)
            if annotations:
                resource["metadata"].setdefault("annotations", {}).update(annotations)
        except BadDelivery as refusal:
            await self._count_refusal(key)
            raise DeliveryRefused(f"{RESOURCE_KINDS['Impulse'].title(name)}: {refusal}") from None
        return resource, policy, throttle, key

    async def receive(
        self, name: str, event: Any, *, token: str | None = None, namespace: str = "default"
    ) -> tuple[Resource, bool]:
        """Like `deliver`, for a sender that does not wait long: the request is stored before it waits for anything.

        Answers the StoryTrigger, perhaps not decided yet, and whether the event is a new one.
        """
        impulse, template = await self.find(name, namespace)
        if DeliveryPolicy.read(impulse, template).mode == "key":
            token = None  # what the sender calls the event does not count
        resource, _, throttle, key = await self._compose(name, event, token, namespace)
        if not throttle.is_off:
            resource["metadata"].setdefault("annotations", {})[labels.THROTTLED] = "true"
        request, is_new = await self._requests.admit(resource)
        clock = self._client.clock
        until = clock.now() + ANSWERED_WITHIN
        decided = await self._requests.settle(request)
        if is_new and answer_of(decided) is TriggerAnswer.PENDING and not throttle.is_off:
            now = clock.now()
            await change_status(self._client, key, lambda status: impulse_counts.count_throttled(status, now))
        while answer_of(decided) is TriggerAnswer.PENDING and clock.now() < until:
            await pause(self._client, RECHECK_AFTER)
            decided = await self._requests.settle(request)
        return decided, is_new

    async def find(self, name: str, namespace: str) -> tuple[Resource, Resource | None]:
        catalog = self._client.catalog
        impulse = await catalog.get(RESOURCE_KINDS["Impulse"], name, namespace)
        target = read_reference(spec_of(impulse).get("templateRef"), "")
        try:
            return impulse, None if target is None else await catalog.get(
                RESOURCE_KINDS["ImpulseTemplate"], target.name
            )
        except ResourceNotFound:
            return impulse, None

    def _request(
        self, impulse: Resource, inputs: dict[str, Any], mode: str, token: str | None, numbered: str
    ) -> Resource:
        namespace = namespace_of(impulse)
        target = target_of(spec_of(impulse))
        reference = {"name": name_of(impulse)}
        submission = secrets.token_hex(16)
        resource = compose_trigger(
            Delivery(
                target.get("storyRef"), inputs, submission, mode, token or "", reference, target.get("documentRef")
            ),
            namespace,
        )
        story = read_reference(target.get("storyRef"), namespace)
        if story is not None and isinstance(inputs.get(numbered), dict):
            run = run_name(story.namespace, story.name, token or submission)
            beside = {numbered: {**inputs[numbered], "runID": run}}
            resource["metadata"]["annotations"] = {labels.BESIDE: jsontext.encode(beside).decode()}
        return resource

    async def _try(self, resource: Resource, policy: DeliveryPolicy, key: ResourceKey) -> Resource:
        """Submit the request; only transient errors are retried, with the same request."""
        for attempt in range(1, policy.attempts + 1):
            if attempt > 1:
                await pause(self._client, policy.wait_before(attempt, self._chance()))
            try:
                decided = await self._requests.submit(resource)
                if answer_of(decided) is not TriggerAnswer.PENDING or attempt == policy.attempts:
                    return decided
            except TRANSIENT:
                if attempt == policy.attempts:
                    raise
            except (InvalidDocument, Conflict):
                await self._count_refusal(key)
                raise
        raise AssertionError("the last attempt answers or raises")

    async def _count_refusal(self, key: ResourceKey) -> None:
        now = self._client.clock.now()
        await change_status(self._client, key, lambda status: impulse_counts.count_refusal(status, now))

    async def _renew(self, key: ResourceKey, holder: str, is_over: asyncio.Event) -> None:
        """Renew the lease of a delivery in progress; if the store is busy, the next renewal tries again."""
        while not is_over.is_set():
            await pause(self._client, RENEW_EVERY)
            change = partial(with_throttle, change=renew, holder=holder, now=self._client.clock.now())
            with suppress(*TRANSIENT, Conflict):
                await change_status(self._client, key, change)

    async def _enter(self, key: ResourceKey, throttle: ImpulseThrottle, holder: str) -> None:
        """Wait for a place and a token of the bucket; nothing is dropped (STY-157)."""
        if throttle.is_off:
            return
        delivery = ThrottledDelivery(throttle, holder)
        while (
            await change_status(self._client, key, partial(delivery.attempt, self._client.clock.now()))
            and delivery.wait
        ):
            await pause(self._client, delivery.wait)


@dataclass(frozen=True, slots=True)
class CheckedSignature:
    is_given: bool = False  # the Impulse asks for a signature, and it is right
    is_wrong: bool = False
    delivery_id: str | None = None  # as the sender calls the delivery


class ImpulseEvents:
    def __init__(
        self, client: Client, secret: Callable[[str], str | None], kept: "Callable[[], KeptSecrets] | None" = None
    ) -> None:
        """`secret`: a secret of this machine; those that the store keeps count before it."""
        self._client = client
        self._impulses = Impulses(client)
        self._host_secret = secret
        self._kept = kept

    async def _secret(self, name: str, namespace: str) -> str | None:
        value = None
        if self._kept is not None:
            value = (await self._kept().see(namespace, [name])).secret(name)
        return self._host_secret(name) if value is None else value

    async def check_signature(
        self, impulse: str, namespace: str, headers: Mapping[str, str], body: bytes
    ) -> CheckedSignature:
        """Whether a request is signed as the policy of the Impulse says. Raises `ResourceNotFound`."""
        policy = SignaturePolicy.read(*await self._impulses.find(impulse, namespace))
        if policy is None:
            return CheckedSignature()
        secret = await self._secret(policy.secret, namespace)
        if not secret:
            return CheckedSignature(is_wrong=True)  # nobody can prove anything with a secret that is not there
        try:
            check = partial(verify, policy.form, secret, headers, body, self._client.clock.wall())
            delivery_id = await done_aside(len(body), check)
        except BadSignature:
            return CheckedSignature(is_wrong=True)
        return CheckedSignature(is_given=True, delivery_id=delivery_id)

    def read(self, headers: Mapping[str, str], body: bytes, read: Read) -> tuple[list[ReceivedEvent], bool]:
        """The events of a request, and whether they are a batch. Raises `DeliveryRefused`."""
        try:
            return read_events(headers, body, read)
        except BadEvent as error:
            raise DeliveryRefused(f"the event cannot be read: {error}") from None

    def is_readable(self, media_type: str) -> bool:
        return is_json(media_type)

    async def receive(self, impulse: str, event: Any, token: str | None, namespace: str) -> tuple[Resource, bool]:
        """The StoryTrigger of an event, perhaps not decided yet, and whether the event is a new one."""
        trigger, is_new = await self._impulses.receive(impulse, event, token=token, namespace=namespace)
        if answer_of(trigger) is TriggerAnswer.REJECTED:
            status = trigger["status"]
            refusal = Conflict if str(status["reason"]).endswith("RunConflict") else DeliveryRefused
            raise refusal(f"{trigger['metadata']['name']}: {status['reason']}: {status.get('message', '')}")
        return trigger, is_new


async def pause(client: Client, duration: Instant) -> None:
    """Sleep by the engine's clock, which may be a test's."""
    if duration <= 0:
        return
    is_due = asyncio.Event()
    alarm = client.clock.call_at(client.clock.now() + duration, is_due.set)
    try:
        await is_due.wait()
    finally:
        alarm.cancel()
