"""The worker protocol against a real server: leases, answers, effects, values, access (SRV-030 to SRV-034)."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Api, Reply, Server
from tests.server.test_no_engine import until

CALL = {
    "drill": 1,
    "name": "trains",
    "steps": [{"call": "train", "with": {"size": 3}, "input": [1], "pool": "gpu", "save": "x"}, {"return": "$x"}],
}
HEARS = {
    "drill": 1,
    "name": "hears",
    "steps": [
        {"call": "train", "pool": "gpu", "save": "x"},
        {"signal": "epoch", "save": "y"},
        {"return": "$y"},
    ],
}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "go",
    "steps": {
        "go": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/train/v1", "with": {"size": "{{ call.input }}"}},
            "next": "done",
        },
        "done": {"action": "Return"},
    },
}


class Worker:
    """One who speaks the protocol by hand."""

    def __init__(self, api: Api, name: str = "w1", pool: str = "gpu") -> None:
        self.api, self.name, self.pool = api, name, pool

    def lease(self, count: int = 1, wait: float = 20, headers: Any = None, **more: Any) -> list[Any]:
        body = {"worker": self.name, "pools": [self.pool], "providers": ["train"], "max": count, "wait": wait, **more}
        extra: Any = headers or {}
        reply = self.api("POST", "/api/v1/worker/lease", body, timeout=90, **extra)
        assert reply.status == 200, reply.text
        tasks: list[Any] = reply.json["tasks"]
        return tasks

    def say(self, task: Any, path: str, body: Any = None, **headers: Any) -> Any:
        lease = task if isinstance(task, str) else task["lease"]
        return self.api("POST", f"/api/v1/worker/tasks/{lease}/{path}", {} if body is None else body, **headers)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server.start(tmp_path_factory.mktemp("server"), "--route", "train=gpu")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


@pytest.fixture
def worker(server: Server) -> Worker:
    return Worker(server.role("worker"))


def test_a_task_that_nobody_takes_is_one_thing_that_its_run_waits_for(server: Server) -> None:
    """SRV-033: it was told twice, as two things, and the list said "and for 1 more"."""
    run = server.admin.start({**CALL, "steps": [{"call": "train", "pool": "deserted"}]})
    try:
        (wait,) = server.admin("GET", f"/api/v1/runs/{run}").json["waits_for"]
        assert wait == "a worker: no worker of pool deserted offers train; none was seen in the last day"
    finally:
        server.admin("POST", f"/api/v1/runs/{run}/cancel", {})


def test_a_task_is_leased_and_answered_once(server: Server, worker: Worker) -> None:
    """SRV-032, SRV-033: the members of the table; the first answer counts."""
    run = server.admin.start(CALL)
    (task,) = worker.lease()
    assert task["run"] == run and task["provider"] == "train" and task["kind"] == "task"
    assert (task["attempt"], task["delivery"], task["arguments"], task["input"]) == (1, 1, {"size": 3}, [1])
    assert {"lease", "task", "idempotency_key", "deadline", "lease_until", "lease_for", "beat_every"} <= task.keys()
    output = {"output": {"big": 2**53 + 1}}
    assert [worker.say(task, "complete", output).status for _ in range(2)] == [200, 200]
    assert worker.say(task, "complete", {"output": 2}).problem == (409, "LEASE-ANSWERED")
    assert worker.say(task, "fail", {"code": "No"}).problem == (409, "LEASE-ANSWERED")
    assert worker.say(task, "release").problem == (410, "LEASE-GONE")
    assert server.admin.result(run)["value"] == {"big": 2**53 + 1}
    assert worker.say("f" * 32, "complete", output).problem == (410, "LEASE-GONE")


def test_a_failure_has_code_message_and_details(server: Server, worker: Worker) -> None:
    run = server.admin.start(FLOW, input=3)
    (task,) = worker.lease()
    assert task["language"] == "flow" and task["arguments"] == {"size": 3}, "the route declares the provider (SRV-030)"
    failure = {"code": "Train.Diverged", "message": "no", "details": {"loss": 9}, "retryable": False}
    assert worker.say(task, "fail", failure).status == 200
    assert server.admin.result(run)["error"]["code"] == "Train.Diverged"


@pytest.mark.parametrize("claimed", [-1, 10**30, "x", None])
def test_a_large_output_has_the_size_that_it_has(server: Server, worker: Worker, claimed: Any) -> None:
    """What a worker says about it counts nowhere: by its size a value is read aside, or within a limit."""
    text = json.dumps("a" * 100_000).encode()
    name = hashlib.sha256(text).hexdigest()
    run = server.admin.start(CALL)
    (task,) = worker.lease()
    put = worker.api("PUT", f"/api/v1/worker/tasks/{task['lease']}/values/{name}", raw=text)
    assert put.status == 201
    assert worker.say(task, "complete", {"output": {"$large": name, "bytes": claimed}}).status == 200
    raw_events = server.admin("GET", f"/api/v1/runs/{run}/events?raw=true").text.decode()
    assert f'"bytes":{len(text)}' in raw_events.replace(" ", "") and server.admin.result(run)["value"] == "a" * 100_000


def test_a_large_output_has_no_more_values_than_a_result(server: Server, worker: Worker) -> None:
    """60 MB of empty lists took two gigabytes."""
    server.admin.start(CALL)
    (task,) = worker.lease()
    text = b"[" + b"1," * 2_000_000 + b"1]"
    name = hashlib.sha256(text).hexdigest()
    put = worker.api("PUT", f"/api/v1/worker/tasks/{task['lease']}/values/{name}", raw=text)
    assert put.problem == (400, "USAGE") and b"2,000,000 values" in put.text
    assert worker.say(task, "complete", {"output": 1}).status == 200


def test_fields_of_a_line_are_few(server: Server, worker: Worker) -> None:
    server.admin.start(CALL)
    (task,) = worker.lease()
    assert worker.say(task, "log", {"message": "m", "fields": {"a": [1] * 5_000}}).problem == (400, "USAGE")
    offers = {"worker": "w", "pools": ["gpu"], "providers": ["p" * 199] * 900}
    assert worker.api("POST", "/api/v1/worker/lease", offers).problem == (400, "USAGE")
    assert worker.say(task, "complete", {"output": 1}).status == 200


def test_effects_signals_logs_and_reports_reach_the_run(server: Server, worker: Worker) -> None:
    run = server.admin.start(HEARS)
    (task,) = worker.lease()
    assert worker.say(task, "effects/a%2Fb/claim").json == {"state": "claimed"}
    assert worker.say(task, "effects/a%2Fb/claim").json == {"state": "claimed"}, "a lost answer is not doubt"
    assert worker.say(task, "release").problem[0] == 409
    assert worker.say(task, "effects/a%2Fb/complete", {"result": {"paid": 5}}).json == {"state": "completed"}
    assert worker.say(task, "effects/a%2Fb/claim").json == {"state": "completed", "result": {"paid": 5}}
    assert worker.say(task, "effects/mail/claim").json == {"state": "claimed"}
    assert worker.say(task, "effects/mail/release").json == {"state": "released"}
    assert worker.say(task, "effects/other/complete", {"result": 1}).problem[0] == 409
    for _ in range(2):
        assert worker.say(task, "signals/epoch", {"value": 7}, Idempotency_Key="epoch-7").status == 200
    assert worker.say(task, "log", {"message": "half way", "level": "warning", "fields": {"loss": 0.5}}).status == 200
    assert worker.say(task, "log", {"lines": [{"message": "more"}]}).status == 200
    assert worker.say(task, "report", {"body": {"epoch": 1}}).status == 200
    assert worker.say(task, "complete", {"output": None}).status == 200
    assert server.admin.result(run)["value"] == 7
    effects = {
        effect["name"]: effect["state"] for effect in server.admin("GET", f"/api/v1/runs/{run}/effects").json["items"]
    }
    assert effects == {"a/b": "completed", "mail": "released"}


def test_pages_of_attempts_and_log_lines_show_each_once_whatever_happens_meanwhile(
    server: Server, worker: Worker
) -> None:
    """SRV-013, SRV-078: attempts of a step are listed failures first, and one that fails meanwhile is not missed."""
    call = {"provider": "mwl:provider.call/perdure/train/v1", "with": {"n": "{{ call.input }}"}}
    gather = {"action": "Gather", "over": "{{ step.input }}", "call": call, "next": "end"}
    steps = {"all": gather, "end": {"action": "Return"}}
    run = server.admin.start({**FLOW, "entrypoint": "all", "steps": steps}, input=[1, 2, 3, 4, 5])
    tasks = worker.lease(5)
    path = f"/api/v1/runs/{run}"
    for number, task in enumerate(tasks):
        messages = [{"message": f"{number}.{line}"} for line in range(2)]
        assert worker.say(task, "log", {"lines": messages}).status == 200
    assert worker.say(tasks[2], "fail", {"code": "Train.Diverged", "message": "no"}).status == 200

    def attempts(cursor: str = "") -> tuple[list[int], str]:
        page = server.admin("GET", f"{path}/steps/all?limit=2{cursor and f'&cursor={cursor}'}").json
        return [attempt["task"] for attempt in page["attempts"]], page.get("next", "")

    shown, cursor = attempts()
    assert shown[0] == tasks[2]["task"]
    assert server.admin("GET", f"{path}/logs?cursor={cursor}").problem == (400, "USAGE")
    assert worker.say(tasks[4], "fail", {"code": "Train.Diverged", "message": "no"}).status == 200
    while cursor:
        more, cursor = attempts(cursor)
        shown += more
    assert sorted(shown) == sorted(task["task"] for task in tasks)

    def lines(cursor: str = "") -> tuple[list[str], str]:
        page = server.admin("GET", f"{path}/logs?limit=3{cursor and f'&cursor={cursor}'}").json
        return [line["text"] for line in page["items"]], page.get("next", "")

    until(lambda: len(server.admin("GET", f"{path}/logs").json["items"]) == 10)  # they are written in batches
    texts, cursor = lines()
    assert server.admin("GET", f"{path}/logs?step=all&cursor={cursor}").problem == (400, "USAGE")
    while cursor:
        further, cursor = lines(cursor)
        texts += further
    assert sorted(texts) == [f"{number}.{line}" for number in range(5) for line in range(2)]
    for task in tasks:
        worker.say(task, "complete", {"output": 1})


def test_a_heartbeat_tells_what_was_recalled_and_lost(server: Server, worker: Worker) -> None:
    run = server.admin.start(CALL)
    (task,) = worker.lease()
    assert server.admin("POST", f"/api/v1/runs/{run}/cancel").status in (200, 202)
    leases = [{"lease": task["lease"], "progress": 0.5}, {"lease": "0" * 32}]
    answer = server.role("worker")("POST", "/api/v1/worker/heartbeat", {"worker": "w1", "leases": leases}).json
    assert (answer["recalled"], answer["lost"]) == ([task["lease"]], ["0" * 32]) and answer["lease_until"]
    assert worker.say(task, "fail", {"code": "Cancelled", "message": "stopped"}).status == 200
    assert server.admin.result(run)["status"] == "cancelled"


def test_a_lost_answer_of_a_lease_request_costs_nothing(server: Server, worker: Worker) -> None:
    """SRV-033: the same key, the same tasks; a release costs no delivery."""
    server.admin.start(CALL)
    first, again = (worker.lease(headers={"Idempotency-Key": "one"})[0] for _ in range(2))
    assert first["lease"] == again["lease"]
    assert worker.say(first, "release").status == 200
    (other,) = worker.lease(headers={"Idempotency-Key": "two"})
    assert (other["delivery"], other["lease"] != first["lease"]) == (1, True)
    assert worker.say(other, "complete", {"output": 1}).status == 200


def test_another_lease_request_under_one_key_is_a_conflict(server: Server, worker: Worker) -> None:
    """SRV-012, SRV-033: other body, 409; the key belongs to the access token, whatever the worker is called."""
    runs = [server.admin.start(CALL) for _ in range(2)]
    asked: dict[str, Any] = {"worker": "w1", "pools": ["gpu"], "providers": None, "max": 1, "wait": 5, "opens": []}

    def lease(**more: Any) -> Reply:
        return worker.api("POST", "/api/v1/worker/lease", {**asked, **more}, Idempotency_Key="keyed")

    (task,) = lease().json["tasks"]
    for more in ({"max": 2}, {"worker": "w2"}, {"wait": 0}, {"providers": ["other"]}, {"slots": 3}):
        assert lease(**more).problem == (409, "CONFLICT"), more
    assert [again["lease"] for again in lease().json["tasks"]] == [task["lease"]]
    (other,) = worker.lease()
    assert worker.say(task, "complete", {"output": 1}).status == 200
    assert worker.say(other, "complete", {"output": 1}).status == 200
    assert lease(wait=0).json == {"tasks": []}, "no lease of it lasts"
    assert {task["run"], other["run"]} == set(runs)


def test_many_are_answered_at_once(server: Server, worker: Worker) -> None:
    runs = [server.admin.start(CALL) for _ in range(3)]
    tasks = worker.lease(10)
    answers: list[Any] = [{"lease": task["lease"], "output": task["run"]} for task in tasks]
    answers.append({"lease": "e" * 32, "output": 1})
    reply = worker.api("POST", "/api/v1/worker/answers", {"answers": answers})
    assert [result["status"] for result in reply.json["results"]] == [200, 200, 200, 410], reply.text
    assert [server.admin.result(run)["value"] for run in runs] == runs


def test_a_token_is_for_its_pools_and_for_nothing_else(server: Server, worker: Worker) -> None:
    """SRV-022, SRV-033: a lease opens its task only together with a token for its pool."""
    api = worker.api
    body = {"worker": "w", "pools": ["gpu", "cpu"]}
    assert api("POST", "/api/v1/worker/lease", body).problem == (403, "ACCESS-DENIED")
    assert api("GET", "/api/v1/runs").problem == (403, "ACCESS-DENIED")
    assert api("GET", "/api/v1/whoami").json["pools"] == ["gpu"]
    assert server.role("author")("POST", "/api/v1/worker/lease", body).problem == (403, "ACCESS-DENIED")
    assert server.nobody("POST", "/api/v1/worker/lease", body).problem == (401, "NOT-AUTHENTICATED")
    assert server.admin("POST", "/api/v1/worker/lease", {"worker": "w", "pools": ["system"]}).problem[0] == 403
    made = server.admin("POST", "/api/v1/tokens", {"name": "cpu", "role": "worker", "pools": ["cpu"]})
    stranger = Worker(Api(server.url, made.json["token"]), pool="cpu")
    run = server.admin.start(CALL)
    (task,) = worker.lease()
    for path, sent in (
        ("complete", {"output": 1}),
        ("release", {}),
        ("effects/a/claim", {}),
        ("log", {"message": "x"}),
    ):
        assert stranger.say(task, path, sent).problem == (410, "LEASE-GONE")
    answer = stranger.api("POST", "/api/v1/worker/heartbeat", {"worker": "w1", "leases": [{"lease": task["lease"]}]})
    assert answer.json["lost"] == [task["lease"]]
    assert worker.say(task, "complete", {"output": 1}).status == 200
    assert server.admin.result(run)["value"] == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("lease", {"worker": "w"}, 400),
        ("lease", {"worker": "w", "pools": []}, 400),
        ("lease", {"worker": "w", "pools": ["gpu"], "max": 0}, 400),
        ("lease", {"worker": "w", "pools": ["gpu"], "wait": -1}, 400),
        ("lease", {"worker": "w", "pools": ["gpu"], "queue": 1}, 400),
        ("heartbeat", {"worker": "w", "leases": [{"lease": "short"}]}, 400),
        ("tasks/nonsense/complete", {"output": 1}, 410),
        ("tasks/%00/complete", {"output": 1}, 400),
        ("tasks/../complete", {"output": 1}, 400),
        ("answers", {"answers": []}, 400),
        ("tasks/ffffffffffffffffffffffffffffffff/values/xyz", {}, 405),
    ],
)
def test_garbage_is_refused(worker: Worker, path: str, body: Any, status: int) -> None:
    assert worker.api("POST", f"/api/v1/worker/{path}", body).status == status


def test_large_values_are_fetched_and_put_by_their_digest(server: Server, worker: Worker) -> None:
    """SRV-078: an answer has at most 16 MiB; an output is put first; only values of that run are answered."""
    big = "x" * (9 << 20)
    author = server.role("author")
    for _ in range(2):
        run = author.start(
            {
                "drill": 1,
                "name": "big",
                "steps": [{"call": "train", "input": "$input", "pool": "gpu", "save": "x"}, {"return": "$x"}],
            },
            input=big,
        )
    tasks = worker.lease(2)
    assert len(tasks) == 2
    inline, by_name = sorted(tasks, key=lambda task: len(task["large"]))
    assert inline["input"] == big and by_name["large"] == ["input"]
    reference = by_name["input"]
    path = f"/api/v1/worker/tasks/{by_name['lease']}/values/"
    assert worker.api("GET", path + reference["$large"]).json == big
    assert worker.api("GET", path + "0" * 64).problem == (404, "VALUE-NOT-FOUND")
    text = json.dumps("y" * (17 << 20)).encode()
    name = hashlib.sha256(text).hexdigest()
    assert worker.api("PUT", path + "0" * 64, raw=text, timeout=60).problem[0] == 400
    put = worker.api("PUT", path + name, raw=text, timeout=60)
    assert put.status == 201, put.text
    assert (
        worker.api("POST", f"/api/v1/worker/tasks/{by_name['lease']}/complete", raw=text, timeout=60).problem[0] == 413
    )
    assert worker.say(by_name, "complete", {"output": put.json}).status == 200
    assert len(server.admin.result(by_name["run"])["value"]) == 17 << 20
    assert worker.say(inline, "complete", {"output": {"$large": "0" * 64, "bytes": 1}}).status == 200, "data stay data"
    assert server.admin.result(inline["run"])["value"] == {"$large": "0" * 64, "bytes": 1}
    assert run in {task["run"] for task in tasks}


def test_whoever_hangs_up_takes_no_task(server: Server, worker: Worker) -> None:
    """A long poll that nobody waits for any more leaves the task to others, at its first delivery."""
    connection = worker.api.connect(60)
    body = json.dumps({"worker": "gone", "pools": ["gpu"], "wait": 60})
    headers = {"Authorization": f"Bearer {worker.api.token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/worker/lease", body, headers)
    connection.close()
    server.admin.start(CALL)
    (task,) = worker.lease(wait=50)
    assert task["delivery"] == 1
    assert worker.say(task, "complete", {"output": 1}).status == 200


def test_a_long_poll_is_woken_by_an_offer(server: Server, worker: Worker) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(worker.lease, wait=50)
        run = server.admin.start(CALL)
        (task,) = waiting.result()
    assert task["run"] == run
    assert worker.say(task, "complete", {"output": 1}).status == 200


def test_pools_and_workers_are_listed_and_a_pool_without_a_worker_shows(server: Server, worker: Worker) -> None:
    """SRV-030, SRV-033: in `show`, in `/pools`, and 404 for a pool that nobody names."""
    document = {"drill": 1, "name": "far", "steps": [{"call": "train", "pool": "far"}]}
    run = server.admin.start(document)
    shown = server.commands.here("show", run).out
    assert "no worker of pool far offers train; none was seen in the last day" in shown
    (pool,) = [row for row in server.admin("GET", "/api/v1/pools").json["items"] if row["name"] == "far"]
    assert (pool["ready"], pool["workers"], len(pool["waits"])) == (1, 0, 1)
    assert server.admin("GET", "/api/v1/pools/far").json["name"] == "far"
    assert server.admin("GET", "/api/v1/pools/nowhere").problem == (404, "POOL-NOT-FOUND")
    assert server.admin("GET", "/api/v1/pools/gpu").json["routes"] == ["train"]
    worker.lease(wait=0, slots=3)
    left = worker.api("POST", "/api/v1/worker/leave", {"worker": worker.name, "pools": ["gpu"]})
    assert left.status == 200


def test_a_task_that_workers_give_back_again_and_again_says_so(server: Server, worker: Worker) -> None:
    """SRV-033: ten releases without a begin show in `why`; none of them costs a delivery."""
    run = server.admin.start(CALL)
    for _ in range(10):
        (task,) = worker.lease()
        assert (task["run"], task["delivery"]) == (run, 1)
        assert worker.say(task, "release").status == 200

    def why() -> str:
        return str(server.admin("GET", f"/api/v1/runs/{run}/why").json["chain"][0]["text"])

    until(lambda: "offers train" not in why())  # a worker is written down within some seconds
    assert "gave train back 10 times without beginning it" in why()
    (task,) = worker.lease()
    assert worker.say(task, "complete", {"output": 1}).status == 200
    assert server.admin.result(run)["value"] == 1


def test_a_revoked_token_ends_its_leases(server: Server, worker: Worker) -> None:
    """SRV-022: what it had is handed on at once, not after the lease."""
    made = server.admin("POST", "/api/v1/tokens", {"name": "brief", "role": "worker", "pools": ["gpu"]})
    brief = Worker(Api(server.url, made.json["token"]), "brief")
    run = server.admin.start(CALL)
    (task,) = brief.lease()
    assert server.admin("DELETE", "/api/v1/tokens/brief").status == 200
    assert brief.say(task, "complete", {"output": "late"}).problem[0] == 401
    (again,) = worker.lease(wait=50)
    assert (again["run"], again["delivery"]) == (run, 2)
    assert worker.say(again, "complete", {"output": "done"}).status == 200
    assert server.admin.result(run)["value"] == "done"


def test_the_examples_of_the_page_run(server: Server, tmp_path: Path) -> None:
    """Each block of the page as one script; an answer that is a refusal fails it."""
    page = Path(__file__).parents[2] / "docs" / "guide" / "workers.md"
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    made = server.admin("POST", "/api/v1/tokens", {"name": "page", "role": "worker", "pools": ["shop"]})
    document = {"drill": 1, "name": "shop", "steps": [{"call": "greet", "pool": "shop", "save": "x"}, {"return": "$x"}]}
    run = server.admin.start(document)
    env = {**os.environ, "URL": server.url, "TOKEN": made.json["token"]}
    for block in blocks:
        script = block.replace("curl -s ", "curl -s --fail-with-body --max-time 60 ")
        command = ["sh", "-e", "-c", script]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert server.admin.result(run)["value"] == "Hello!"


def test_a_lease_that_ends_goes_to_the_next_worker(tmp_path: Path) -> None:
    """SRV-033: with a short lease, on a server of its own; what stays is the second worker's answer."""
    (tmp_path / "settings.toml").write_text("[workers]\nlease = 1.0\n")
    server = Server.start(tmp_path, "--config", "settings.toml")
    try:
        run = server.admin.start(CALL)
        slow, quick = (Worker(server.role("worker"), name) for name in ("slow", "quick"))
        (first,) = slow.lease()
        (second,) = quick.lease(wait=50)
        assert (first["delivery"], second["delivery"]) == (1, 2)
        assert slow.say(first, "complete", {"output": "late"}).problem == (410, "LEASE-GONE")
        while quick.say(second, "complete", {"output": "in time"}).status == 410:  # a slow machine
            (second,) = quick.lease(wait=50)
        assert server.admin.result(run)["value"] == "in time"
        history = server.admin("GET", f"/api/v1/runs/{run}/events?raw=true").text
        assert b"the lease of worker slow ended without a result" in history
        server.stop()
    finally:
        server.commands.end_all()


@pytest.mark.parametrize("version", [18])
def test_calls_under_a_lease_go_on_at_any_other_server(tmp_path: Path, postgres_url: str, version: int) -> None:
    """SRV-001, SRV-072: each call at the other server than the one before; then the server that gave the lease dies."""
    from tests.postgres import as_url

    url = as_url(postgres_url)
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    first_server = Server.start(tmp_path, "--db", url, "--lease", "3s", **env)
    second_server = Server.start(tmp_path, "--db", url, "--lease", "3s", **env)
    try:
        (file,) = (tmp_path / "state" / "perdure").glob("*/admin-token")
        admins = [Api(server.url, file.read_text().strip()) for server in (first_server, second_server)]
        made = admins[0]("POST", "/api/v1/tokens", {"name": "w", "role": "worker", "pools": ["gpu"]}).json["token"]
        first, second = (Worker(Api(server.url, made)) for server in (first_server, second_server))
        runs = [admins[number % 2].start(HEARS) for number in range(4)]
        tasks = [first.lease()[0] for _ in range(2)] + [second.lease()[0] for _ in range(2)]
        assert sorted(task["run"] for task in tasks) == sorted(runs)
        for task in tasks:
            for worker in (first, second):
                assert worker.say(task, "effects/pay/claim").json == {"state": "claimed"}
            assert second.say(task, "effects/pay/complete", {"result": 5}).status == 200
            assert first.say(task, "effects/pay/claim").json == {"state": "completed", "result": 5}
            assert second.say(task, "signals/epoch", {"value": task["run"]}, Idempotency_Key="e").status == 200
            assert first.say(task, "signals/epoch", {"value": task["run"]}, Idempotency_Key="e").status == 200
        late = tasks.pop()
        for task in tasks:
            for worker in (second, first, second):
                assert worker.say(task, "complete", {"output": 1}).status == 200
            assert first.say(task, "complete", {"output": 2}).problem == (409, "LEASE-ANSWERED")
        first_server.process.kill()
        assert second.say(late, "complete", {"output": 1}).status == 200
        for run in runs:
            while (reply := admins[1]("GET", f"/api/v1/runs/{run}/result?wait=20", timeout=60)).status == 202:
                pass
            assert reply.json["value"] == run
            names = [event["event"] for event in admins[1]("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]]
            assert (names.count("TaskEnded"), names.count("SignalReceived")) == (1, 1)
        second_server.stop()
    finally:
        first_server.commands.end_all()
        second_server.commands.end_all()
