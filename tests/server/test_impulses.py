"""Events over HTTP: `POST /api/v1/impulses/{namespace}/{name}` (SRV-040, SRV-041)."""

import hmac
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.server.serving import Api, Reply, Server
from tests.server.test_no_engine import until

PLACE = "/api/v1/impulses/default"
SECRET = "planted-secret-of-github"

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: review}
spec:
  steps: [{name: say, ref: {name: echo}, with: {pr: "{{ inputs.pr }}"}}]
"""

PLAYBOOK = {
    "apiVersion": "noetl.io/v10",
    "kind": "Playbook",
    "metadata": {"name": "etl", "path": "etl"},
    "workflow": [{"step": "start", "tool": {"kind": "noop"}}],
}


def impulse(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"templateRef": {"name": "webhook"}, "storyRef": {"name": "review"}, **spec}
    if "documentRef" in spec:
        del spec["storyRef"]
    return {"apiVersion": "bubustack.io/v1alpha1", "kind": "Impulse", "metadata": {"name": name}, "spec": spec}


TEMPLATE = {
    "apiVersion": "catalog.bubustack.io/v1alpha1",
    "kind": "ImpulseTemplate",
    "metadata": {"name": "webhook"},
    "spec": {"version": "1", "image": "none", "supportedModes": ["deployment"]},
}

SIGNED = {"signature": {"form": "github", "secretRef": {"name": "hub", "key": "token"}}}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with Impulses of every kind."""
    running = Server.start(tmp_path_factory.mktemp("shop"), PERDURE_SECRET_hub_token=SECRET)
    try:
        documents = [
            STORY,
            PLAYBOOK,
            TEMPLATE,
            impulse("plain", mapping={"pr": "{{ context.number }}"}),
            impulse("events", mapping={"pr": "{{ context.data.number }}"}),
            impulse("signed", mapping={"pr": "{{ context.number }}"}, deliveryPolicy=SIGNED),
            impulse("slow", throttle={"ratePerSecond": 1, "burst": 1}),
            impulse("other", documentRef={"language": "playbook", "name": "etl"}),
        ]
        applied = running.admin("POST", "/api/v1/resources:apply", {"documents": documents})
        assert applied.status == 200, applied.text
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def send(api: Api, name: str, event: Any, **headers: Any) -> Reply:
    return api("POST", f"{PLACE}/{name}", raw=json.dumps(event).encode(), **headers)


def signature(event: Any, secret: str = SECRET) -> dict[str, Any]:
    value = hmac.new(secret.encode(), json.dumps(event).encode(), sha256).hexdigest()
    return {"X_Hub_Signature_256": f"sha256={value}"}


def test_an_event_becomes_a_request_and_a_run(shop: Server) -> None:
    """SRV-040: the mapping applies; the answer is the StoryTrigger."""
    reply = send(shop.role("operator"), "plain", {"number": 7})

    assert reply.status == 202
    trigger = reply.json
    assert trigger["kind"] == "StoryTrigger" and trigger["status"]["decision"] == "Created"
    assert trigger["spec"]["inputs"] == {"pr": 7}
    run = trigger["status"]["storyRunRef"]["name"]
    ended = shop.admin("GET", f"/api/v1/runs/{run}/result?wait=30")
    assert ended.json["status"] == "succeeded"


def test_an_impulse_starts_a_document_of_another_language(shop: Server) -> None:
    """SRV-041"""
    trigger = send(shop.admin, "other", {"n": 1}).json
    assert trigger["status"]["runRef"]["language"] == "playbook"


def test_a_cloud_event_is_delivered_once(shop: Server) -> None:
    """SRV-040: source and id are the token; a batch is answered item by item."""
    event = {"specversion": "1.0", "id": "1", "source": "/hub", "type": "pr", "data": {"number": 8}}
    kind = {"Content_Type": "application/cloudevents+json"}
    first, again = send(shop.admin, "events", event, **kind), send(shop.admin, "events", event, **kind)
    assert (first.status, again.status) == (202, 200)
    assert first.json["status"]["storyRunRef"] == again.json["status"]["storyRunRef"]
    changed = send(shop.admin, "events", {**event, "data": {"number": 9}}, **kind)
    assert changed.problem == (409, "CONFLICT")
    batch = [event, {**event, "id": "2"}, {**event, "data": {"number": 9}}]
    items = send(shop.admin, "events", batch, Content_Type="application/cloudevents-batch+json").json["items"]
    assert [item["status"] for item in items] == [200, 202, 409]
    assert send(shop.admin, "events", {"id": "1"}, **kind).problem == (422, "DELIVERY-REFUSED")


def test_a_signature_is_a_credential(shop: Server) -> None:
    """SRV-040: without a token only a right signature counts; nothing is told about what exists."""
    stranger = Api(shop.url)
    event = {"number": 10}
    signed = send(stranger, "signed", event, X_GitHub_Delivery="d-1", **signature(event))
    again = send(stranger, "signed", event, X_GitHub_Delivery="d-1", **signature(event))
    assert (signed.status, again.status) == (202, 200)
    assert signed.json["metadata"]["name"] == again.json["metadata"]["name"]

    refusals = [
        send(stranger, "signed", event, **signature(event, "wrong")),
        send(stranger, "signed", event),
        send(stranger, "plain", event, **signature(event)),
        send(stranger, "missing", event, **signature(event)),
        send(shop.admin, "signed", event),
    ]
    assert {reply.problem for reply in refusals} == {(401, "NOT-AUTHENTICATED")}
    assert len({reply.json["detail"] for reply in refusals}) == 1
    assert all("www-authenticate" in reply.headers for reply in refusals)
    both = send(shop.role("operator"), "signed", {"number": 11}, **signature({"number": 11}))
    assert both.status == 202
    assert send(shop.role("viewer"), "plain", event).problem == (403, "ACCESS-DENIED")
    assert send(shop.admin, "missing", event).problem == (404, "RESOURCE-NOT-FOUND")
    audited = shop.admin("GET", "/api/v1/audit?limit=100").json["items"]
    assert any(row["who"]["name"] == "impulse:default/signed" for row in audited), audited[:3]
    assert SECRET not in json.dumps(audited)


def test_a_browser_sends_an_event_with_its_session(shop: Server) -> None:
    """SRV-020, SRV-040: a session is made from a token; without its CSRF value it changes nothing."""
    logged_in = shop.nobody("POST", "/session", {"token": shop.admin.token})
    cookie = logged_in.headers["set-cookie"].partition(";")[0]
    sent = shop.nobody("POST", f"{PLACE}/plain", {"number": 71}, Cookie=cookie, X_CSRF_Token=logged_in.json["csrf"])
    assert sent.status == 202, sent.text
    assert shop.nobody("POST", f"{PLACE}/plain", {"number": 72}, Cookie=cookie).problem == (403, "ACCESS-DENIED")
    event = {"number": 73}
    assert shop.nobody("POST", f"{PLACE}/signed", event, Cookie="other=x", **signature(event)).status == 202


@pytest.mark.parametrize(("role", "status"), [("operator", 202), ("viewer", 401)])
def test_anonymous_operators_send_events_on_this_machine(tmp_path: Path, role: str, status: int) -> None:
    """SRV-021, SRV-040; an event that is signed needs nobody else."""
    server = Server.start(tmp_path, "--anonymous", role, PERDURE_SECRET_hub_token=SECRET)
    documents = [STORY, TEMPLATE, impulse("plain"), impulse("signed", deliveryPolicy=SIGNED)]
    assert server.admin("POST", "/api/v1/resources:apply", {"documents": documents}).status == 200
    event = {"number": 1}
    assert server.nobody("POST", f"{PLACE}/plain", event).status == status
    assert server.nobody("POST", f"{PLACE}/plain", event, Via="1.1 proxy").status == 401
    assert server.nobody("POST", f"{PLACE}/signed", event, **signature(event)).status == 202
    assert server.nobody("POST", f"{PLACE}/signed", event, **signature(event, "wrong")).status == 401
    server.stop()


def test_an_idempotency_key_proves_nothing(shop: Server) -> None:
    """The answer that is kept under a key is told to nobody who has not proved who it is, nor for another body."""
    stranger, event, key = Api(shop.url), {"number": 20}, {"Idempotency_Key": "guessed"}
    assert send(stranger, "signed", event, **key, **signature(event)).status == 202
    assert send(stranger, "signed", event, **key).problem == (401, "NOT-AUTHENTICATED")
    assert send(shop.admin, "plain", {"number": 21}, **key).status == 202
    assert send(shop.admin, "plain", {"number": 22}, **key).problem == (409, "CONFLICT")


def test_what_a_stranger_sends_is_read_up_to_a_small_limit(shop: Server) -> None:
    large = json.dumps({"number": "x" * (5 << 20)}).encode()
    assert Api(shop.url)("POST", f"{PLACE}/signed", raw=large).problem == (413, "BODY-TOO-LARGE")


def test_a_throttled_event_is_stored_first_and_decided_later(shop: Server) -> None:
    """SRV-040: nothing that was answered 202 is lost, and nobody waits longer than some seconds."""
    replies = [send(shop.admin, "slow", {"n": number}, timeout=60) for number in range(3)]
    assert [reply.status for reply in replies] == [202, 202, 202]
    names = {reply.json["metadata"]["name"] for reply in replies}
    assert len(names) == 3
    for name in names:
        trigger = f"/api/v1/resources/storytriggers/default/{name}"
        until = time.monotonic() + 60
        while shop.admin("GET", trigger).json["status"].get("decision") != "Created":
            assert time.monotonic() < until, "the request was never decided"
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        (b"{", "application/json", (400, "USAGE")),
        (b"a=b", "application/x-www-form-urlencoded", (415, "MEDIA-TYPE")),
        (b"[1]", "application/json", (422, "DELIVERY-REFUSED")),
        (b'{"a": 1, "a": 2}', "application/json", (400, "USAGE")),
    ],
)
def test_what_is_no_event_changes_nothing(shop: Server, body: bytes, kind: str, problem: tuple[int, str]) -> None:
    assert shop.admin("POST", f"{PLACE}/slow", raw=body, Content_Type=kind).problem == problem


def test_wrong_signatures_do_not_keep_out_right_ones_of_the_same_address(shop: Server) -> None:
    """All senders behind a proxy have its address."""
    stranger, event = Api(shop.url), {"number": 30}
    refused = [send(stranger, "signed", event).status for _ in range(30)]
    assert set(refused) == {401, 429} and refused[-1] == 429
    assert send(stranger, "signed", event, X_GitHub_Delivery="d-30", **signature(event)).status == 202


def test_one_address_takes_half_of_the_places_of_senders_without_a_token(tmp_path: Path) -> None:
    """SRV-041: whoever begins to send and does not go on keeps out others of its address, and nobody else."""
    (tmp_path / "settings.toml").write_text("[limits]\nsigned = 4\n")
    server = Server.start(tmp_path, "--config", "settings.toml", PERDURE_SECRET_hub_token=SECRET)
    try:
        documents = [STORY, TEMPLATE, impulse("signed", deliveryPolicy=SIGNED)]
        assert server.admin("POST", "/api/v1/resources:apply", {"documents": documents}).status == 200
        parts = urlsplit(server.url)
        event = {"number": 1}
        head = f"POST {PLACE}/signed HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 9\r\n\r\n".encode()
        for _ in range(50):
            with ExitStack() as slow:
                for _ in range(2):
                    idle = slow.enter_context(socket.create_connection((parts.hostname, parts.port), 60))
                    idle.sendall(head)
                same = send(server.nobody, "signed", event, **signature(event))
                if same.status == 429:  # else the slow ones were not there yet, or not any more
                    break
                assert same.status in (200, 202)
        else:
            raise AssertionError("one address has more than half of the places")
        with ExitStack() as slow:
            for _ in range(4):
                slow.enter_context(socket.create_connection((parts.hostname, parts.port), 60)).sendall(head)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, 60, ("127.0.0.2", 0))
            sent = {"Content-Type": "application/json"}
            sent |= {name.replace("_", "-"): value for name, value in signature(event).items()}
            connection.request("POST", f"{PLACE}/signed", json.dumps(event).encode(), sent)
            other = connection.getresponse()
            assert other.status in (200, 202), other.read()
            connection.close()
    finally:
        server.commands.end_all()


def test_schedules_start_documents_of_every_language_once_for_each_time(shop: Server) -> None:
    """SRV-042: backfilled over HTTP, with a time zone; the same interval again starts nothing."""
    operator, author = shop.role("operator"), shop.admin
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": {"a": {"action": "Return"}}}
    assert author("PUT", "/api/v1/resources/flow/default/tick", flow).status == 201
    when = {"timezone": "Europe/Oslo", "schedules": [{"name": "night", "cron": "0 3 * * *"}]}
    meant: dict[str, dict[str, Any]] = {
        "nightly-flow": {"documentRef": {"language": "flow", "name": "tick"}},
        "nightly-playbook": {"documentRef": {"language": "playbook", "name": "etl"}},
        "nightly-story": {"storyRef": {"name": "review"}, "mapping": {"pr": 1}},
    }
    cron: dict[str, Any] = {"templateRef": {"name": "cron"}, "with": when}
    impulses = [impulse(name, **cron, **spec) for name, spec in meant.items()]
    applied = author("POST", "/api/v1/resources:apply", {"documents": impulses})
    assert applied.status == 200, applied.text
    for name in meant:
        asked = {"name": name, "from": "2026-05-01", "to": "2026-05-03", "overlap": "allow"}
        first, again = (operator("POST", "/api/v1/schedules:backfill", asked) for _ in range(2))
        assert first.status == 200, first.text
        assert first.json["times"] == [f"2026-05-0{day}T01:00:00.000000Z" for day in (1, 2, 3)], "03:00 in Oslo"
        assert again.json["times"] == []

    def times_started(name: str) -> list[str]:
        runs = operator("GET", f"/api/v1/runs?label=perdure.dev%2Fimpulse%3Ddefault%2F{name}").json["items"]
        return sorted(run["labels"]["perdure.dev/scheduled-at"] for run in runs)

    until(lambda: all(len(times_started(name)) >= 3 for name in meant))
    for name in meant:
        assert times_started(name) == [f"2026-05-0{day}T01:00:00Z" for day in (1, 2, 3)]
