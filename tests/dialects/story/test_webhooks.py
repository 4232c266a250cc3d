"""Signatures of webhooks, and CloudEvents in their three forms (SRV-040), without a server."""

import base64
import hmac
import json
from hashlib import sha256
from typing import Any

import pytest

from perdure.dialects.story.triggers.webhooks import BadEvent, BadSignature, read_events, verify
from perdure.kernel.json_values.values import SECOND

BODY = b'{"action": "opened"}'
AT = 1_794_000_000
NOW = AT * SECOND


def mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, sha256).digest()


def standard(secret: bytes, body: bytes = BODY, at: int = AT) -> dict[str, str]:
    signature = base64.b64encode(mac(secret, f"msg_1.{at}.".encode() + body)).decode()
    signed = f"v1a,ignored v1,AAAA v1,{signature}"
    return {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": signed}


def github(secret: bytes, body: bytes = BODY) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={mac(secret, body).hex()}", "x-github-delivery": "d-1"}


def stripe(secret: bytes, body: bytes = BODY, at: int = AT) -> dict[str, str]:
    return {"stripe-signature": f"t={at},v0=00,v1={mac(secret, f'{at}.'.encode() + body).hex()}"}


WHSEC = "whsec_" + base64.b64encode(b"twenty-four bytes secret").decode()

RIGHT = [
    ("standard", WHSEC, standard(b"twenty-four bytes secret"), "msg_1"),
    ("github", "s3cret", github(b"s3cret"), "d-1"),
    ("stripe", "whsec_x", stripe(b"whsec_x"), None),
]


@pytest.mark.parametrize(("form", "secret", "headers", "delivery"), RIGHT)
def test_a_right_signature_gives_the_senders_id(
    form: str, secret: str, headers: dict[str, str], delivery: str | None
) -> None:
    assert verify(form, secret, headers, BODY, NOW) == delivery
    assert verify(form, secret, headers, BODY, NOW + 299 * SECOND) == delivery


@pytest.mark.parametrize(("form", "secret", "headers", "delivery"), RIGHT)
def test_another_body_secret_or_header_is_refused(
    form: str, secret: str, headers: dict[str, str], delivery: str | None
) -> None:
    with pytest.raises(BadSignature):
        verify(form, secret, headers, BODY + b" ", NOW)
    with pytest.raises(BadSignature):
        verify(form, secret[:-3] + "AAA", headers, BODY, NOW)
    for name in headers.keys() - {"x-github-delivery"}:
        with pytest.raises(BadSignature):
            verify(form, secret, {**headers, name: "v1,\xff"}, BODY, NOW)
        with pytest.raises(BadSignature):
            verify(form, secret, {key: value for key, value in headers.items() if key != name}, BODY, NOW)


@pytest.mark.parametrize(("form", "headers"), [("standard", standard(b"k")), ("stripe", stripe(b"k"))])
def test_a_time_that_is_far_off_is_refused(form: str, headers: dict[str, str]) -> None:
    for moment in (NOW + 301 * SECOND, NOW - 301 * SECOND):
        with pytest.raises(BadSignature, match="off"):
            verify(form, "k", headers, BODY, moment)


EVENT = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid", "data": {"n": 1}}


def test_a_cloud_event_is_the_same_however_it_is_sent() -> None:
    structured = {"content-type": "application/cloudevents+json; charset=utf-8"}
    attributes = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "%2Fshop", "ce-type": "order.paid"}
    binary = {"content-type": "application/json", **attributes}
    (first,), is_batch = read_events(structured, json.dumps(EVENT).encode(), json.loads)
    (other,), _ = read_events(binary, b'{"n": 1}', json.loads)
    batch = {"content-type": "application/cloudevents-batch+json"}
    many, is_many = read_events(batch, json.dumps([EVENT, {**EVENT, "id": "8"}]).encode(), json.loads)

    assert (first.event, is_batch, is_many) == (EVENT, False, True)
    assert other.event == {**EVENT, "datacontenttype": "application/json"}
    assert first.token == other.token == many[0].token != many[1].token
    (raw,), _ = read_events({**attributes, "content-type": "image/png"}, b"\x00\xff", json.loads)
    assert raw.event["data_base64"] == base64.b64encode(b"\x00\xff").decode()
    (text,), _ = read_events({**attributes, "content-type": "text/plain"}, b"hi", json.loads)
    assert text.event["data"] == "hi"


def test_source_and_id_do_not_run_into_each_other() -> None:
    headers = {"content-type": "application/cloudevents+json"}
    events = [{**EVENT, "source": "a", "id": "b c"}, {**EVENT, "source": "a b", "id": "c"}]
    tokens = {read_events(headers, json.dumps(event).encode(), json.loads)[0][0].token for event in events}
    assert len(tokens) == 2


@pytest.mark.parametrize(
    "event", [[], "x", {}, {**EVENT, "specversion": "0.3"}, {**EVENT, "id": ""}, {**EVENT, "source": 3}]
)
def test_what_is_no_cloud_event_is_refused(event: Any) -> None:
    with pytest.raises(BadEvent):
        read_events({"content-type": "application/cloudevents+json"}, json.dumps(event).encode(), json.loads)


def test_plain_json_is_the_event_itself_and_has_no_token() -> None:
    (plain,), is_batch = read_events({"content-type": "application/json"}, BODY, json.loads)
    assert (plain.event, plain.token, is_batch) == ({"action": "opened"}, None, False)
    assert read_events({}, b" ", json.loads)[0][0].event == {}
