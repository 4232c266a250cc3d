"""Pipelines of Playbooks leave the server as a whole, and come back outcome by outcome (SRV-034)."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import as_url
from tests.server.serving import Api, Server
from tests.server.test_worker_processes import CODE, calls, lines, result, start_worker, wait_for_line
from tests.server.test_workers import Worker

HEAD = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: p, path: p}
executor: {spec: {pool: gpu}}
workflow:
"""
THREE = (
    HEAD
    + """
  - step: s
    tool:
      - first:
          kind: train
          args: {n: 1}
          spec:
            policy:
              rules:
                - when: "{{ outcome.status == 'ok' }}"
                  then: {do: continue, set_ctx: {seen: "{{ outcome.result }}"}}
                - {else: {then: {do: fail}}}
      - second: {kind: train, args: {n: "{{ ctx.seen }}"}}
      - third: {kind: train, args: {n: "{{ _prev }}"}}
"""
)
SEEN = {"directive": "continue", "rule": 0, "set_ctx": {"seen": 5}}


class Opener(Worker):
    """One that opens Playbooks, by hand."""

    def lease(self, count: int = 1, wait: float = 20, headers: Any = None, **more: Any) -> list[Any]:
        return super().lease(count, wait, headers, opens=["playbook"], **more)

    def report(self, task: Any, number: int, output: Any, **more: Any) -> Any:
        return self.say(task, "report", {"number": number, "output": output, **more})


def events(api: Api, run: str) -> list[str]:
    return [event["event_type"] for event in api("GET", f"/api/v1/runs/{run}/events?limit=1000").json["items"]]


def facts(api: Api, run: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api("GET", f"/api/v1/runs/{run}/events?raw=true&limit=1000").json["items"]
    return items


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server.start(tmp_path_factory.mktemp("server"), "--route", "train=gpu")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def go_through(api: Api, worker: Opener) -> str:
    """One pipeline of three tasks; each report is sent twice, and other content is refused."""
    run = api.start(THREE)
    (task,) = worker.lease()
    assert (task["kind"], task["needs"], task["number"], task["arguments"]) == ("pipeline", ["train"], 1, {"n": 1})
    assert worker.report(task, 2, 5).problem == (409, "CONFLICT")
    answers = [worker.report(task, 1, 5, judged=SEEN).json for _ in range(2)]
    assert answers[0]["goes_on"] and answers[0]["ctx"] == {"seen": 5}
    assert answers[0]["next"]["lease"] == task["lease"] and answers[0]["next"]["arguments"] == {"n": 5}
    assert [answer["next"]["task"] for answer in answers] == [answers[0]["next"]["task"]] * 2
    assert worker.report(task, 1, 6, judged=SEEN).problem == (409, "LEASE-ANSWERED")
    assert worker.report(task, 3, 6).problem == (409, "CONFLICT")
    assert worker.lease(wait=0) == [], "what follows is not offered to others"
    assert worker.say(task, "release").status == 409
    second = worker.report(task, 2, 7).json
    assert second["goes_on"] and second["next"]["arguments"] == {"n": 7} and second["next"]["number"] == 3
    ended = [worker.report(task, 3, 9).json for _ in range(2)]
    assert ended == [{"ctx": None, "goes_on": False, "next": None}] * 2
    assert worker.report(task, 3, 8).problem == (409, "LEASE-ANSWERED")
    assert api.result(run)["status"] == "succeeded"
    return run


def test_a_pipeline_goes_on_under_one_lease(server: Server) -> None:
    """SRV-034: numbers, repetitions, gaps; the history is that of tasks that were leased one by one."""
    worker = Opener(server.role("worker"))
    run = go_through(server.admin, worker)
    alone = server.admin.start(THREE)
    for output in (5, 7, 9):
        (task,) = Worker(server.role("worker")).lease()
        assert task["kind"] == "task" and task["pipeline"] is None
        assert worker.say(task, "complete", {"output": output}).status == 200
    assert server.admin.result(alone)["status"] == "succeeded"
    assert events(server.admin, run) == events(server.admin, alone)
    kernel = [[event["event"] for event in facts(server.admin, run_id)] for run_id in (run, alone)]
    assert kernel[0] == kernel[1]


def test_what_the_document_does_not_say_is_not_taken_from_a_worker(server: Server) -> None:
    """A rule that is not there, another directive, other keys: the server applies the rules itself."""
    worker = Opener(server.role("worker"))
    for judged in (
        {"directive": "continue", "rule": 7},
        {"directive": "break", "rule": 0, "set_ctx": {"seen": 1}},
        {"directive": "continue", "rule": 0, "set_ctx": {"seen": 1, "admin": True}},
        {"directive": "fail", "rule": 0},
    ):
        run = server.admin.start(THREE)
        (task,) = worker.lease()
        answer = worker.report(task, 1, 5, judged=judged).json
        assert answer["ctx"] == {"seen": 5}
        server.admin("POST", f"/api/v1/runs/{run}/cancel", {})
        assert worker.report(task, 2, 7).json["recalled"]
        assert server.admin.result(run)["status"] == "cancelled"
    run = server.admin.start(THREE)
    (task,) = worker.lease()
    assert worker.report(task, 1, 5, judged={"directive": "wander"}).status == 400
    assert worker.say(task, "report", {"number": 1}).status == 400
    failed = worker.say(task, "report", {"number": 1, "failure": {"code": "No", "message": "no"}})
    assert failed.json["goes_on"] is False
    assert server.admin.result(run)["status"] == "failed"


def test_whoever_lacks_a_part_gets_single_tasks(server: Server) -> None:
    """SRV-034: a pipeline goes to a worker that offers all that it needs; others get its tasks as before."""
    text = THREE.replace("third: {kind: train", "third: {kind: echo")
    server.admin.start(text)
    worker = Opener(server.role("worker"))
    (task,) = worker.lease()
    assert task["kind"] == "task" and task["needs"] == []
    assert worker.say(task, "complete", {"output": 5}).status == 200
    (task,) = worker.lease(providers=["train", "echo"])
    assert task["kind"] == "pipeline" and task["needs"] == ["echo", "train"]
    answer = worker.report(task, 1, 7).json
    assert answer["next"]["provider"] == "echo" and answer["next"]["arguments"] == {"n": 7}
    assert worker.report(task, 2, 9).json["goes_on"] is False


def test_a_cancelled_pipeline_is_recalled_with_the_next_heartbeat_or_report(server: Server) -> None:
    """SRV-034, PBK-191: the execution is cancelled at once; its worker hears of it, and has a grace to stop."""
    api, worker = server.admin, Opener(server.role("worker"))
    runs = [api.start(THREE) for _ in range(2)]
    tasks = [worker.lease()[0] for _ in runs]
    for run in runs:
        assert api("POST", f"/api/v1/runs/{run}/cancel").status == 200
        assert api.result(run)["status"] == "cancelled"
    leases = [{"lease": task["lease"]} for task in tasks]
    answer = worker.api("POST", "/api/v1/worker/heartbeat", {"worker": "w1", "leases": leases}).json

    assert sorted(answer["recalled"]) == sorted(task["lease"] for task in tasks) and answer["lost"] == []
    assert worker.say(tasks[0], "log", {"message": "stopping"}).status == 200
    assert worker.report(tasks[0], 1, 5).json == {"ctx": None, "goes_on": False, "next": None, "recalled": True}
    cancelled = {"code": "Cancelled", "message": "stopped"}
    assert [worker.say(tasks[1], "fail", cancelled).status for _ in range(2)] == [200, 200]
    assert worker.say(tasks[1], "complete", {"output": 1}).status == 409
    for run in runs:
        assert "task.completed" not in events(api, run) and api.result(run)["status"] == "cancelled"


def test_after_the_grace_every_call_under_the_lease_is_410(tmp_path: Path) -> None:
    """SRV-034: the run goes on without a worker that does not stop, in every language."""
    (tmp_path / "settings.toml").write_text("[workers]\ncancel_grace_s = 0.0\n")
    server = Server.start(tmp_path, "--config", "settings.toml", "--route", "train=gpu")
    try:
        api, worker = server.admin, Opener(server.role("worker"))
        for document in (THREE, calls("train")):
            run = api.start(document)
            (task,) = worker.lease()
            api("POST", f"/api/v1/runs/{run}/cancel")
            assert api.result(run)["status"] == "cancelled", "although its worker says nothing"
            paths = {"log": {"message": "x"}, "complete": {"output": 1}, "fail": {"code": "C"}, "report": {"body": 1}}
            paths |= {"report": {"number": 1, "output": 1}, "release": {}, "effects/e/claim": {}, "signals/s": {}}
            assert {worker.say(task, path, body).status for path, body in paths.items()} == {410}
            answer = worker.api(
                "POST", "/api/v1/worker/heartbeat", {"worker": "w1", "leases": [{"lease": task["lease"]}]}
            )
            assert answer.json["lost"] == [task["lease"]]
    finally:
        server.commands.end_all()


def test_a_wait_between_attempts_ends_the_lease(server: Server) -> None:
    """Nobody holds a place meanwhile; the next attempt is a new lease, with the numbers from 1."""
    rule = "{do: retry, attempts: 2, delay: 0.2}"
    run = server.admin.start(THREE.replace("{do: fail}", rule))
    worker = Opener(server.role("worker"))
    (task,) = worker.lease()
    failed = {"number": 1, "failure": {"code": "No"}, "judged": {"directive": "retry", "rule": "else"}}
    assert worker.say(task, "report", failed).json["goes_on"] is False
    (again,) = worker.lease()
    assert again["lease"] != task["lease"] and (again["number"], again["attempt"]) == (1, 2)
    assert worker.report(again, 1, 5, judged=SEEN).json["goes_on"]
    assert worker.report(again, 2, 5).json["goes_on"]
    assert not worker.report(again, 3, 5).json["goes_on"]
    assert server.admin.result(run)["status"] == "succeeded"


def test_a_report_reaches_the_owner_of_the_run_through_any_server(tmp_path: Path, postgres_url: str) -> None:
    """SRV-034, SRV-072: the server that is asked is not the one that decides."""
    words = ("--db", as_url(postgres_url), "--route", "train=gpu", "--data", str(tmp_path / "state"))
    first_server = Server.start(tmp_path, *words)
    second_server = Server.start(tmp_path, *words)
    try:
        token = (tmp_path / "state" / "admin-token").read_text().strip()
        first, second = (Api(server.url, token) for server in (first_server, second_server))
        for api, other in ((first, second), (second, first), (first, first)):
            run = go_through(api, Opener(other))
            assert other.result(run)["status"] == "succeeded"
        first_server.stop()
        second_server.stop()
    finally:
        first_server.commands.end_all()
        second_server.commands.end_all()


LONG = (
    HEAD
    + """
  - step: s
    loop: {in: [a, b], iterator: x}
    tool:
      - one:
          kind: mark
          args: {name: "{{ iter.x }}-one"}
          spec:
            policy:
              rules:
                - else:
                    then:
                      do: continue
                      set_ctx: {last: "{{ outcome.result }}"}
                      set_iter: {k: "{{ iter.x }}{{ iter.x }}"}
      - two: {kind: hold, args: {name: "{{ ctx.last }}/{{ iter.k }}"}}
      - three: {kind: mark, args: {name: "{{ iter.x }}-three"}}
"""
)


def serve(tmp_path: Path, url: str | None, *more: str) -> tuple[Server, Api]:
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "settings.toml").write_text("[workers]\nlease = 3.0\n")
    routes = [word for name in ("mark", "hold", *more) for word in ("--route", f"{name}=gpu")]
    store = () if url is None else ("--db", url)
    server = Server.start(tmp_path, "--config", "settings.toml", "--data", "state", *store, *routes)
    admin = Api(server.url, (tmp_path / "state" / "admin-token").read_text().strip())
    made = admin("POST", "/api/v1/tokens", {"name": "w", "role": "worker", "pools": ["gpu"]})
    server.roles["worker"] = Api(server.url, made.json["token"])
    return server, admin


WHERE = """
@perdure.provider("where")
def where(context) -> int:
    import os
    return os.getpid()
"""
MANY = (
    HEAD
    + """
  - step: s
    loop: {in: [1, 2, 3, 4, 5, 6], iterator: x, spec: {mode: parallel}}
    tool:
      - a: {kind: where}
      - b: {kind: where}
      - c: {kind: mark, args: {name: "{{ 'same' if results.a == results.b else 'other' }}"}}
"""
)


def test_a_pipeline_stays_with_its_worker_while_others_are_idle(tmp_path: Path) -> None:
    """SRV-034: as a whole, by `perdure worker`; what follows in it is offered to nobody else."""
    server, admin = serve(tmp_path, None, "where")
    try:
        (tmp_path / "code.py").write_text(CODE + WHERE)
        workers = [start_worker(server, "--slots", "2", "--name", name) for name in ("one", "two")]
        assert result(admin, admin.start(MANY))["status"] == "succeeded"
        assert lines(server, "marks") == ["same"] * 6
        for worker in workers:
            worker.send(signal.SIGTERM)
            assert worker.end().code == 0
        server.stop()
    finally:
        server.commands.end_all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_killed_worker_s_pipeline_goes_on_at_the_task_that_was_open(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """SRV-034: no task whose outcome was reported is done again; the server may be killed meanwhile too."""
    url = as_url(request.getfixturevalue("postgres_url")) if store == "postgres" else None
    server, admin = serve(tmp_path, url)
    try:
        killed = start_worker(server, "--slots", "1", "--name", "killed")
        run = admin.start(LONG)
        wait_for_line(server, "held")
        assert (lines(server, "marks"), lines(server, "held")) == (["a-one"], ["a-one/aa"])
        killed.kill()
        heir = start_worker(server, "--slots", "1", "--name", "heir")
        wait_for_line(server, "held", 2)
        server.process.kill()
        (tmp_path / "let-go").touch()
        wait_for_line(server, "marks", 2)
        port = server.url.rpartition(":")[2]
        words = ("serve", "--listen", f"127.0.0.1:{port}", "--config", "settings.toml", "--data", "state")
        store_words = () if url is None else ("--db", url)
        again = server.commands.start(*words, *store_words, "--route", "mark=gpu", "--route", "hold=gpu")
        again.hear("listening on ")
        assert result(admin, run)["status"] == "succeeded"
        assert lines(server, "marks") == ["a-one", "a-one/aa", "a-three", "b-one", "b-one/bb", "b-three"]
        assert lines(server, "held") == ["a-one/aa", "a-one/aa", "b-one/bb"]
        events = facts(admin, run)
        assert [event["event"] for event in events].count("TaskRedelivered") == 1
        heir.send(signal.SIGTERM)
        assert heir.end().code == 0
        again.send(signal.SIGTERM)
        assert again.end().code == 0
    finally:
        server.commands.end_all()
