"""Runs are moved through a server: by authors, with a record in the audit log, while they are live (ANA-032)."""

from typing import Any

from tests.cli.test_migrate import _story
from tests.server.serving import Api, Server


def _waiting(caller: Api, name: str) -> str:
    run = caller.start(_story("old").replace("orders", name))
    while caller("GET", f"/api/v1/runs/{run}").json["status"] != "waiting":
        pass
    return run


def _plan(caller: Api, name: str, runs: list[str]) -> dict[str, Any]:
    judged = caller("POST", "/api/v1/impact", {"document": _story("new").replace("orders", name), "runs": runs})
    assert judged.status == 200, judged.text
    assert judged.json["counts"] == {"safe": len(runs), "needs mapping": 0, "blocked": 0, "current": 0}
    plan: dict[str, Any] = judged.json["plan"]
    return plan


def test_an_author_moves_live_runs_and_undoes_it(server: Server) -> None:
    author = server.role("author")
    runs = [_waiting(author, "moving") for _ in range(2)]
    plan = _plan(author, "moving", runs)
    assert author("POST", "/api/v1/migrations", {"plan": plan, "dry_run": True}).json["counts"]["safe"] == 2
    moved = author("POST", "/api/v1/migrations", {"plan": plan}).json
    assert moved["counts"] == {"moved": 2, "recorded": 0, "current": 0, "refused": 0}, moved
    assert author("POST", "/api/v1/migrations", {"undo": runs[1:]}).json["counts"]["moved"] == 1
    for run, expected in zip(runs, ("new", "old"), strict=True):
        assert author("POST", f"/api/v1/runs/{run}/gates/gate", {"state": "Approved"}).status == 200
        assert author.result(run)["value"]["value"] == expected
    entries = server.admin("GET", "/api/v1/audit").json["items"]
    about = [entry["object"] for entry in entries if entry["verb"] == "migrate_runs"]
    assert about[0].startswith("runs:migrate undo") and f"moving to {plan['to'][:12]}" in about[1]
    events = author("GET", f"/api/v1/runs/{runs[0]}/events?raw=true&limit=1000").json["items"]
    (event,) = [event for event in events if event["event"] == "RunMigrated"]
    assert event["by"] == "the-author" and event["who"]["via"] == "token"


def test_an_operator_moves_nothing(server: Server) -> None:
    run = _waiting(server.role("author"), "kept")
    plan = _plan(server.role("author"), "kept", [run])
    operator = server.role("operator")
    assert operator("POST", "/api/v1/impact", {"document": _story("new")}).status == 403
    assert operator("POST", "/api/v1/migrations", {"plan": plan}).status == 403
    assert operator("POST", "/api/v1/migrations", {"undo": [run]}).status == 403


def test_a_request_says_what_is_wrong_with_it(server: Server) -> None:
    author = server.role("author")
    assert author("POST", "/api/v1/migrations", {}).status == 400
    assert author("POST", "/api/v1/impact", {"document": "a: ["}).status in (400, 422)
    assert author("POST", "/api/v1/migrations", {"undo": ["nobody"]}).status == 404


def test_the_command_line_moves_runs_of_a_server(server: Server) -> None:
    run = _waiting(server.role("author"), "orders")
    (server.commands.folder / "next.yaml").write_text(_story("new"))
    variables: dict[str, Any] = {"PERDURE_SERVER": server.url, "PERDURE_TOKEN": server.role("author").token or ""}
    done = server.commands("impact", "next.yaml", run, "--plan", "plan.json", **variables)
    assert "1 safe" in done.out
    assert f"{run}  moved" in server.commands("migrate", "--plan", "plan.json", **variables).out
