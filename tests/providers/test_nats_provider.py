"""The nats provider against a real server: keys, objects and streams."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.dialects.playbook.world import playbook
from tests.nats_server import NatsServer, own_server
from tests.workers.scene import failure_of, on_loop, outcome_of, value_of

import perdure
from perdure.kernel.outcomes import Outcome
from perdure.providers.policy import Policy, use_policy

LOGIN = "authorization { user: ada, password: s3cret-word }"


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    async def fill(address: str) -> None:
        client = await nats.connect(address, user="ada", password="s3cret-word")
        streams = client.jetstream()
        await streams.create_key_value(bucket="keys")
        await streams.create_object_store(bucket="objects")
        await streams.add_stream(name="orders", subjects=["orders.>"])
        await client.close()

    with own_server(LOGIN) as server:
        asyncio.run(fill(server.address))
        yield server


def login(server: NatsServer) -> dict[str, str]:
    return {"type": "nats", "nats_url": server.address, "nats_user": "ada", "nats_password": "s3cret-word"}


async def do(server: NatsServer, operation: str, **arguments: Any) -> Outcome:
    return await outcome_of("nats", {"operation": operation, "auth": login(server), **arguments})


@on_loop
async def test_keys(server: NatsServer) -> None:
    put = value_of(await do(server, "kv_put", bucket="keys", key="a.b", value={"n": [1, 2.5, None]}))
    assert put == {"status": "success", "bucket": "keys", "key": "a.b", "revision": put["revision"]}
    assert value_of(await do(server, "kv_get", bucket="keys", key="a.b")) == {**put, "value": {"n": [1, 2.5, None]}}
    await do(server, "kv_put", bucket="keys", key="plain", value="not {JSON}")
    assert value_of(await do(server, "kv_get", bucket="keys", key="plain"))["value"] == "not {JSON}"
    assert value_of(await do(server, "kv_keys", bucket="keys"))["keys"] == ["a.b", "plain"]
    assert value_of(await do(server, "kv_keys", bucket="keys", pattern="a.*"))["keys"] == ["a.b"]
    assert value_of(await do(server, "kv_delete", bucket="keys", key="a.b"))["status"] == "success"
    assert value_of(await do(server, "kv_get", bucket="keys", key="a.b")) == {
        "status": "not_found",
        "bucket": "keys",
        "key": "a.b",
        "value": None,
    }
    assert value_of(await do(server, "kv_purge", bucket="keys", key="plain"))["status"] == "success"
    assert value_of(await do(server, "kv_keys", bucket="keys"))["count"] == 0


@on_loop
async def test_objects(server: NatsServer) -> None:
    raw = base64.b64encode(b"\xff\x00" * 100_000).decode()
    stored = value_of(await do(server, "object_put", bucket="objects", name="big", data=raw, encoding="base64"))
    assert stored["size"] == 200_000
    read = value_of(await do(server, "object_get", bucket="objects", name="big", encoding="base64"))
    assert read["data"] == raw and read["encoding"] == "base64"
    assert value_of(await do(server, "object_info", bucket="objects", name="big"))["digest"] == stored["digest"]
    listed = value_of(await do(server, "object_list", bucket="objects"))
    assert [entry["name"] for entry in listed["objects"]] == ["big"] and listed["count"] == 1
    assert value_of(await do(server, "object_delete", bucket="objects", name="big"))["status"] == "success"
    assert failure_of(await do(server, "object_get", bucket="objects", name="big")) == (
        "Provider.Call.Nats.NotFound",
        False,
    )


@on_loop
async def test_a_message_of_a_task_is_published_once(server: NatsServer) -> None:
    """The task's key is the message's id: a repetition of the same task is dropped by the server."""
    first = value_of(await do(server, "js_publish", subject="orders.new", data={"id": 1}, headers={"X-N": "1"}))
    again = value_of(await do(server, "js_publish", subject="orders.new", data={"id": 1}))
    assert (first["duplicate"], again["duplicate"], again["seq"]) == (False, True, first["seq"])
    message = value_of(await do(server, "js_get_msg", stream="orders", seq=first["seq"]))
    assert (message["subject"], message["data"], message["headers"]["X-N"]) == ("orders.new", {"id": 1}, "1")
    assert value_of(await do(server, "js_get_msg", stream="orders", subject="orders.new"))["seq"] == first["seq"]
    assert value_of(await do(server, "js_stream_info", stream="orders"))["state"]["messages"] == 1


@on_loop
async def test_failures_say_what_to_do(server: NatsServer) -> None:
    prefix = "Provider.Call.Nats"
    assert failure_of(await do(server, "kv_get", bucket="none", key="a")) == (f"{prefix}.NotFound", False)
    assert failure_of(await do(server, "kv_get", bucket="keys")) == (f"{prefix}.BadArguments", False)
    assert failure_of(await do(server, "js_get_msg", stream="orders")) == (f"{prefix}.BadArguments", False)
    wrong = {**login(server), "nats_password": "wrong"}
    assert failure_of(await do(server, "kv_keys", bucket="keys", auth=wrong)) == (f"{prefix}.NotAuthorized", False)
    nobody = {"url": "nats://127.0.0.1:1"}
    assert failure_of(await do(server, "kv_keys", bucket="keys", auth=nobody)) == (f"{prefix}.Unreachable", True)
    file = {"url": "file:///etc/passwd"}
    assert failure_of(await do(server, "kv_keys", bucket="keys", auth=file)) == (f"{prefix}.BadArguments", False)
    use_policy(Policy(network="closed"))
    try:
        code, is_retryable = failure_of(await do(server, "kv_keys", bucket="keys"))
    finally:
        use_policy(None)
    assert (code, is_retryable) == (f"{prefix}.AddressRefused", False)


def test_a_playbook_uses_it_as_a_kind(server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-091: the login is a credential of the host, and stays out of the history."""
    document = playbook(f"""
keychain:
  - {{name: broker, kind: secret_manager, provider: env, map: {{word: NATS}}}}
workflow:
  - step: put
    tool:
      - put:
          kind: nats
          operation: kv_put
          bucket: keys
          key: of.a.playbook
          value: {{n: 1}}
          auth: {{nats_url: "{server.address}", nats_user: ada, nats_password: "{{{{ keychain.broker.word }}}}"}}
      - get:
          kind: nats
          operation: kv_get
          bucket: keys
          key: of.a.playbook
          auth: {{nats_url: "{server.address}", nats_user: ada, nats_password: "{{{{ keychain.broker.word }}}}"}}
""")
    monkeypatch.setenv("PERDURE_SECRET_NATS", "s3cret-word")

    async def run() -> tuple[Any, Any]:
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            handle = await engine.start(document.encode())
            await engine.wait(handle.id)
            return await handle.show(), await engine.history(handle.id)

    shown, history = asyncio.run(run())

    assert shown["status"] == "success" and shown["result"]["value"] == {"n": 1}, shown
    assert "s3cret-word" not in str(history) + str(shown)
    assert b"s3cret-word" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
