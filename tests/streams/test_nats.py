"""The driver `nats`: what is in the stream, what happens when the server goes, and who is let in (STR-110)."""

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import InvalidDocument
from perdure.kernel.json_values.values import RunId
from perdure.providers import nats_connection
from perdure.providers.policy import Policy, use_policy
from perdure.server.tls import CA_FILES, SERVER_FILES, OwnCertificate
from perdure.services.story.engrams.registry import shared_engrams
from perdure.services.story.streams import nats_log
from tests.nats_server import NatsServer, own_server, shared_server
from tests.streams.topologies import NATS, SEEN, Played, add_workers, apply_nats, played, states, story, transport

LINE = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 60, ids: n}}
  - {name: plus, ref: {name: add}, with: {by: 100}, needs: [source]}
  - {name: sink, ref: {name: gated}, with: {into: sink}, needs: [plus]}
"""


@pytest.fixture(autouse=True)
def workers() -> None:
    add_workers()
    SEEN.clear()
    if "engram:gated@1.0.0" in shared_engrams.streaming:
        return

    @perdure.streaming_engram("gated")
    async def gated(config: Any, messages: Any, context: Any) -> None:
        """Is done with a message once `SEEN["open"]` has at least as many entries as it has done."""
        async for message in messages:
            while len(SEEN["open"]) <= len(SEEN[config["into"]]):
                await asyncio.sleep(0.005)
            payload = len(message.binary.payload) if message.binary else message.payload["n"]
            SEEN[config["into"]].append(payload)
            message.done()


def let_through(count: int) -> None:
    SEEN["open"] += [True] * count


async def started(engine: perdure.Engine, text: bytes, address: str = "") -> Played:
    await apply_nats(engine, address)
    handle = await engine.start(text, None)
    return Played(engine, RunId(handle.id))


async def stream_info(address: str, run: str) -> Any:
    """The stream of a run with its consumers, and the ids of its messages; None if there is none."""
    client: Any = await nats.connect(address)
    try:
        api = client.jetstream()
        streams = [info for info in await api.streams_info() if run in info.config.name]
        if not streams:
            return None
        info = await api.stream_info(streams[0].config.name, subjects_filter=">")
        return info, {consumer.name: consumer for consumer in await api.consumers_info(info.config.name)}
    finally:
        await client.close()


async def test_a_topology_is_one_stream_and_every_step_a_consumer(tmp_path: Path) -> None:
    """STR-110: subjects by step and partition, explicit acks, retention by acks; nothing is left at the end."""
    address = shared_server().address
    settings = "partitioning: {mode: hash, key: payload.n, partitions: 3}, backpressure: {buffer: {maxMessages: 7}}"
    async with played(tmp_path, story(LINE, transport("nats", settings))) as run:
        async with asyncio.timeout(30):
            while (state := await stream_info(address, run.id)) is None or state[0].state.messages < 6:
                await asyncio.sleep(0.02)
        let_through(60)
        await run.end()
        after = await stream_info(address, run.id)

    info, consumers = state
    assert (info.config.retention, info.config.storage) == ("workqueue", "file")
    parts = [subject.split(".") for subject in info.state.subjects]
    assert {tuple(part[2:-1]) for part in parts if part[2] == "packets"} >= {("packets", "sink")}
    assert {part[-1] for part in parts if part[2] == "packets"} <= {"0", "1", "2"}
    assert set(consumers) == {"step-source", "step-plus", "step-sink"}
    for consumer in consumers.values():
        assert (consumer.config.ack_policy, consumer.config.max_ack_pending) == ("explicit", 14)
        assert consumer.config.durable_name and consumer.config.headers_only
    assert sorted(SEEN["sink"]) == list(range(100, 160))
    assert after is None


async def test_best_effort_is_kept_by_limits_and_survives_the_hub(tmp_path: Path) -> None:
    """STR-060 STR-110: retention by limits, in the server's memory; another owner goes on with what had waited."""
    address, store = shared_server().address, f"sqlite:///{tmp_path}/runs.db"
    first = perdure.Engine(store)
    await first.__aenter__()
    steps = LINE.replace("count: 60", "count: 5, stays: true")
    run = await started(first, story(steps, transport("nats none", "backpressure: {buffer: {maxMessages: 50}}")))
    async with asyncio.timeout(30):
        while (state := await stream_info(address, run.id)) is None or not any(
            "packets.sink" in subject and count == 5 for subject, count in (state[0].state.subjects or {}).items()
        ):
            await asyncio.sleep(0.02)
    assert (state[0].config.retention, state[0].config.storage) == ("limits", "memory")
    assert state[0].config.max_msgs_per_subject == 50
    await first.runtime.die()
    SEEN["sink"].clear()

    let_through(60)
    async with perdure.Engine(store) as second:
        run = Played(second, run.id)
        await run.until(lambda shown: len(SEEN["sink"]) >= 4)
        await second.cancel(run.id)
        await run.end()

    # The first one was in the hands of the worker that died with its process; a source that chose its ids may repeat.
    assert SEEN["sink"][:4] == [101, 102, 103, 104]


@pytest.mark.parametrize("fate", ["returns", "forgets"])
async def test_a_server_that_is_lost_and_returns_loses_nothing(tmp_path: Path, fate: str) -> None:
    """STR-110: publishers wait while it is away; what it has forgotten it gets again; the history tells both."""
    with own_server() as server:
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            run = await started(engine, story(LINE, transport("nats")), server.address)
            let_through(5)
            await run.until(lambda shown: len(SEEN["sink"]) == 5)
            server.kill()
            let_through(10)
            if fate == "forgets":
                shutil.rmtree(server.data)
            async with asyncio.timeout(30):
                while "TransportLost" not in str(await run.history()):
                    await asyncio.sleep(0.05)
            server.start()
            let_through(60)
            shown = await run.end(90)
            history = await run.history()

    assert SEEN["sink"] == list(range(100, 160))
    assert shown["status"]["phase"] == "Succeeded"
    kinds = [event["event_type"] for event in history if "Transport" in event["event_type"]]
    assert kinds[0] == "TransportLost" and "TransportReturned" in kinds and len(kinds) <= 6


async def test_a_run_can_be_cancelled_while_the_server_is_away(tmp_path: Path) -> None:
    """STR-034 STR-110: what it cannot keep any more does not hold it back; its finally runs."""
    steps = LINE.replace("count: 60", "count: 60, stays: true")
    extra = transport("nats", "lifecycle: {drainTimeoutSeconds: 1}") + "\n  finally: [{name: tidy, ref: {name: echo}}]"
    with own_server() as server:
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            run = await started(engine, story(steps, extra), server.address)
            let_through(5)
            await run.until(lambda shown: len(SEEN["sink"]) == 5)
            server.kill()
            await engine.cancel(run.id)
            shown = await run.end(60)

    assert (shown["status"]["phase"], states(shown)["tidy"]) == ("Finished", "Succeeded")


async def test_a_former_owner_writes_nothing_any_more(tmp_path: Path) -> None:
    """STR-026 STR-089 STR-110: the stream takes nothing from it once another owner has begun."""
    store = f"sqlite:///{tmp_path}/runs.db"
    async with perdure.Engine(store) as engine:
        run = await started(engine, story(LINE, transport("nats")))
        let_through(3)
        await run.until(lambda shown: len(SEEN["sink"]) == 3)
        from perdure.services.story.streams.live_topology import TOPOLOGIES

        client: Any = await nats.connect(shared_server().address)
        stream = f"perdure-{run.id}-{TOPOLOGIES[run.id].task['life']}"
        head = await client.jetstream().get_last_msg(stream, f"perdure.{stream.removeprefix('perdure-')}.head")
        from perdure.streams.log_messages import take_over

        _, message = take_over(head.data, head.seq)
        await client.jetstream().publish(head.subject, message.body, headers={"Nats-Rollup": "sub"})
        before = (await client.jetstream().stream_info(stream)).state.last_seq
        let_through(60)
        shown = await run.end()
        after = (await client.jetstream().stream_info(stream)).state.last_seq
        await client.jetstream().delete_stream(stream)
        await client.close()

    assert shown["status"]["phase"] == "Failed"
    assert "another process writes to the NATS stream" in shown["status"]["stepStates"]["sink"]["message"]
    assert before == after, "nor is the stream of the other one removed"


async def test_packets_that_are_larger_than_a_message_go_in_parts(tmp_path: Path) -> None:
    """STR-042 STR-110: a frame of 3 MiB where a message of the server has 1 MiB, also for the next owner."""
    store = f"sqlite:///{tmp_path}/runs.db"
    steps = """
  steps:
  - {name: sink, ref: {name: gated}, with: {into: sink}}
"""
    first = perdure.Engine(store)
    await first.__aenter__()
    run = await started(first, story(steps, transport("nats")))
    await run.until(lambda shown: states(shown).get("sink") == "Running")
    await first.publish(run.id, "sink", binary={"payload": bytes(3 << 20), "mimeType": "application/octet-stream"})
    await first.runtime.die()

    let_through(1)
    async with perdure.Engine(store) as second:
        run = Played(second, run.id)
        await run.until(lambda shown: len(SEEN["sink"]) >= 1)
        await second.cancel(run.id)
        await run.end()
    assert SEEN["sink"][-1] == 3 << 20


# Who is let in, and what is said if not.


@pytest.fixture
def guarded() -> Iterator[NatsServer]:
    with own_server("authorization { user: ada, password: quite-secret-word }") as server:
        yield server


def with_secret(address: str) -> str:
    return NATS.replace("ADDRESS", address).replace('"]}', '"], secretRef: {name: nats-login}}')


async def ended(folder: Path, transport_text: str, monkeypatch: pytest.MonkeyPatch, timeout: float = 30.0) -> Any:
    monkeypatch.setattr(nats_log, "CONNECT_TIMEOUT", timeout)
    let_through(60)
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        await engine.apply([AppliedDocument("nats.yaml", transport_text)])
        handle = await engine.start(story(LINE, transport("nats")), None)
        run = Played(engine, RunId(handle.id))
        shown = await run.end()
        text = str(await run.history()) + str(await engine.history(run.id, raw=True)) + str(shown)
    assert "quite-secret-word" not in text
    return shown["status"]


@pytest.mark.parametrize("password", ["quite-secret-word", "wrong"])
async def test_the_login_is_a_secret(
    tmp_path: Path, guarded: NatsServer, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STR-110: user and password come from the secret that the Transport names; a wrong one is said at once."""
    monkeypatch.setenv("PERDURE_SECRET_nats_login_username", "ada")
    monkeypatch.setenv("PERDURE_SECRET_nats_login_password", password)

    status = await ended(tmp_path, with_secret(guarded.address), monkeypatch)

    if password == "wrong":
        assert status["phase"] == "Failed" and "does not accept the login" in status["stepStates"]["sink"]["message"]
    else:
        assert status["phase"] == "Succeeded" and len(SEEN["sink"]) == 60


async def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-110: a run that has just begun does not wait for ever."""
    text = NATS.replace("ADDRESS", "nats://127.0.0.1:9")

    status = await ended(tmp_path, text, monkeypatch, timeout=0.2)

    message = status["stepStates"]["sink"]["message"]
    assert status["phase"] == "Failed" and "no connection to the NATS server 127.0.0.1:9" in message


async def test_the_policy_decides_which_servers_are_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-110, SRV-024."""
    use_policy(Policy(network="closed"))
    try:
        status = await ended(tmp_path, NATS.replace("ADDRESS", shared_server().address), monkeypatch)
    finally:
        use_policy(None)

    assert status["phase"] == "Failed"
    assert "policy does not allow connections to 127.0.0.1" in status["stepStates"]["sink"]["message"]


async def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-110."""
    text = NATS.replace("ADDRESS", shared_server().address)
    monkeypatch.setitem(sys.modules, "nats", None)

    status = await ended(tmp_path, text, monkeypatch)

    assert status["phase"] == "Failed" and "pip install 'perdure[nats]'" in status["stepStates"]["sink"]["message"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{}", "needs defaultSettings.nats.servers"),
        ("{nats: {servers: ['http://x']}}", "is not the address of a NATS server"),
        ("{nats: {servers: ['nats://ada:word@x:4222']}}", "has no user and no password"),
        ("{nats: {servers: ['nats://x'], password: word}}", "has no member 'password'"),
        ("{nats: {servers: ['nats://x'], secretRef: login}}", "secretRef is {name: NAME}"),
        ("{nats: {servers: ['nats://x'], replicas: 9}}", "a number from 1 to 5"),
    ],
)
async def test_settings_of_the_transport_are_checked(tmp_path: Path, settings: str, message: str) -> None:
    """STR-004 STR-110."""
    text = NATS.replace('{nats: {servers: ["ADDRESS"]}}', settings)
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        with pytest.raises(InvalidDocument, match=message):
            await engine.apply([AppliedDocument("nats.yaml", text)])


@pytest.mark.parametrize(
    ("transports", "message"),
    [
        (
            "[{name: t, transportRef: nats, settings: {nats: {servers: ['nats://x']}}}]",
            "servers belong to the Transport",
        ),
        ("[{name: t, transportRef: nats}, {name: u, transportRef: local, streaming: {DURABLE}}]", "choose one of them"),
        ("[{name: t, transportRef: nats}, {name: u, transportRef: other}]", "a topology has one NATS stream"),
    ],
)
async def test_a_topology_has_one_place_for_its_packets(tmp_path: Path, transports: str, message: str) -> None:
    """STR-110 STR-122."""
    transports = transports.replace("DURABLE", "delivery: {replay: {mode: durable}}")
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, transport: t}
  - {name: sink, ref: {name: gated}, needs: [source], transport: u}
"""
    if "name: u" not in transports:
        steps = steps.replace("transport: u", "transport: t")
    other = NATS.replace("ADDRESS", "nats://127.0.0.1:9").replace("name: nats", "name: other")
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        await engine.apply([AppliedDocument("other.yaml", other)])
        run = await started(engine, story(steps, f"  transports: {transports}"))
        shown = await run.end()

    assert shown["status"]["phase"] == "Failed" and message in shown["status"]["message"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_secure_server_is_checked_by_its_authority(
    tmp_path: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STR-110: `tls://`, with the authority of the secret; another one is not trusted."""
    folder = tmp_path / "tls"
    folder.mkdir(mode=0o700)
    OwnCertificate(folder, ["localhost", "127.0.0.1"])
    files = f'cert_file: "{folder / SERVER_FILES[0]}", key_file: "{folder / SERVER_FILES[1]}"'
    with own_server(f"tls {{ {files} }}\nauthorization {{ token: quite-secret-word }}") as server:
        monkeypatch.setenv("PERDURE_SECRET_nats_login_token", "quite-secret-word")
        if is_known:
            monkeypatch.setenv("PERDURE_SECRET_nats_login_ca_crt", (folder / CA_FILES[0]).read_text())

        status = await ended(tmp_path, with_secret(server.address.replace("nats:", "tls:")), monkeypatch)

    message = status["stepStates"]["sink"]["message"]
    assert status["phase"] == ("Succeeded" if is_known else "Failed"), message
    assert is_known or "no secure connection to 127.0.0.1" in message


async def test_a_cancellation_reaches_whoever_waits_for_the_library() -> None:
    """The library would swallow it: a task that is cancelled while it writes would go on for ever."""
    client = nats_connection._client(nats_connection.nats_library(), must_encrypt=False)
    await client.connect(shared_server().address)
    await client.flush()  # whoever empties the queue waits at this one
    queue, client._flush_queue = client._flush_queue, asyncio.Queue(1)
    client._flush_queue.put_nowait(None)
    writing = asyncio.ensure_future(client._flush_pending())
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    client._flush_queue = queue
    await client.close()
