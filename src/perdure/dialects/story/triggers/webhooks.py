"""Events that come over HTTP (SRV-040): the signatures that prove their sender, and CloudEvents 1.0.

A signature is a HMAC-SHA256 over the body as it was sent. Three forms are known: Standard Webhooks, GitHub's and
Stripe's. `spec.deliveryPolicy.signature` of an Impulse names one of them and the secret.
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from perdure.dialects.story.resources.names import canonical
from perdure.dialects.story.resources.resource import Resource, spec_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant

OFF_AT_MOST = 300  # seconds between the time in a signature and ours
MOST_SIGNATURES = 16  # in one header, after which the rest is not looked at
BATCH_MOST = 1_000  # events in one request

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
REQUIRED = ("id", "source", "type")


class BadSignature(ValueError):
    """The request is not from whom it should be; the message is for a log, not for the sender."""


class BadEvent(ValueError):
    """The body is not an event; the message says why."""


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    form: str
    secret: str  # name and key of a secret: `github/token`

    @classmethod
    def read(cls, impulse: Resource, template: Resource | None) -> "SignaturePolicy | None":
        """Of the Impulse, else of its template; None if events are not signed."""
        for resource in (impulse, template or {}):
            policy = spec_of(resource).get("deliveryPolicy")
            signature = policy.get("signature") if isinstance(policy, dict) else None
            if isinstance(signature, dict) and isinstance(signature.get("secretRef"), dict):
                reference = signature["secretRef"]
                return cls(str(signature.get("form")), f"{reference.get('name')}/{reference.get('key')}")
        return None


def verify(form: str, secret: str, headers: Mapping[str, str], body: bytes, now: Instant) -> str | None:
    """The sender's own id of the delivery, if the form has one; raises `BadSignature`."""
    check = {"standard": _verify_standard, "github": _verify_github, "stripe": _verify_stripe}[form]
    return check(secret, headers, body, now)


def _verify_standard(secret: str, headers: Mapping[str, str], body: bytes, now: Instant) -> str | None:
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    _check_time(at, now)
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = secret.encode()
    if not key:
        raise BadSignature("the secret is empty")
    expected = base64.b64encode(_mac(key, f"{id}.{at}.".encode() + body)).decode()
    signatures = [part.partition(",") for part in headers.get("webhook-signature", "").split(" ")[:MOST_SIGNATURES]]
    _compare(expected, [value for version, _, value in signatures if version == "v1"])
    return id or None


def _verify_github(secret: str, headers: Mapping[str, str], body: bytes, now: Instant) -> str | None:
    algorithm, _, value = headers.get("x-hub-signature-256", "").partition("=")
    _compare(_mac(secret.encode(), body).hex(), [value] if algorithm == "sha256" else [])
    return headers.get("x-github-delivery") or None


def _verify_stripe(secret: str, headers: Mapping[str, str], body: bytes, now: Instant) -> str | None:
    parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")[:MOST_SIGNATURES]]
    at = next((value for name, _, value in parts if name == "t"), "")
    _check_time(at, now)
    expected = _mac(secret.encode(), f"{at}.".encode() + body).hex()
    _compare(expected, [value for name, _, value in parts if name == "v1"])
    return None


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, sha256).digest()


def _check_time(text: str, now: Instant) -> None:
    if not (text.isascii() and text.isdigit() and len(text) < 13):
        raise BadSignature("the signature has no time")
    if abs(int(text) - now // SECOND) > OFF_AT_MOST:
        raise BadSignature(f"the time of the signature is more than {OFF_AT_MOST} s off")


def _compare(expected: str, signatures: list[str]) -> None:
    """In constant time, for each that was given."""
    if not any(hmac.compare_digest(expected.encode(), value.encode("utf-8", "replace")) for value in signatures):
        raise BadSignature("no signature is right")


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    event: Any
    token: str | None = None  # of a CloudEvent, from its source and id


Read = Callable[[bytes], Any]


def read_events(headers: Mapping[str, str], body: bytes, read: Read) -> tuple[list[ReceivedEvent], bool]:
    """The events of a request, and whether they are a batch. `read` turns JSON text into a value.

    A CloudEvent is given on in its structured form, however it was sent.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == BATCH:
        events = read(body)
        if not isinstance(events, list) or len(events) > BATCH_MOST:
            raise BadEvent(f"a batch is a list of at most {BATCH_MOST} CloudEvents")
        return [_cloud_event(event) for event in events], True
    if media_type == STRUCTURED:
        return [_cloud_event(read(body))], False
    if "ce-specversion" in headers:
        return [_cloud_event(_binary_event(headers, media_type, body, read))], False
    return [ReceivedEvent(read(body) if body.strip() else {})], False


def is_json(media_type: str) -> bool:
    return media_type in ("application/json", "text/json") or media_type.endswith("+json")


def _binary_event(headers: Mapping[str, str], media_type: str, body: bytes, read: Read) -> dict[str, Any]:
    event: dict[str, Any] = {
        name.removeprefix("ce-"): unquote(value) for name, value in headers.items() if name.startswith("ce-")
    }
    if media_type:
        event["datacontenttype"] = media_type
    if not body:
        return event
    if not media_type or is_json(media_type):
        return {**event, "data": read(body)}
    try:
        if media_type.startswith("text/"):
            return {**event, "data": body.decode()}
    except UnicodeDecodeError:
        pass
    return {**event, "data_base64": base64.b64encode(body).decode()}


def _cloud_event(event: Any) -> ReceivedEvent:
    if not isinstance(event, dict):
        raise BadEvent("a CloudEvent is a JSON object")
    if event.get("specversion") != "1.0":
        raise BadEvent(f"specversion must be '1.0', not {jsontext.encode(event.get('specversion')).decode()[:40]}")
    for name in REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise BadEvent(f"a CloudEvent needs the attribute {name!r}, a text that is not empty")
    return ReceivedEvent(event, sha256(canonical([event["source"], event["id"]]).encode()).hexdigest())
