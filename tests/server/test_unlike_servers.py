"""Servers of one store that were set up differently say so (SRV-030)."""

import time
from pathlib import Path

import pytest

from tests.postgres import as_url
from tests.server.serving import Api, Server

WARNING = "are set up differently"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_unlike_policy_and_routes_are_shown_and_warned_of(tmp_path: Path, store: str, postgres_url: str) -> None:
    url = as_url(postgres_url) if store == "postgres" else f"sqlite:///{tmp_path}/runs.db"
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "settings.toml").write_text('[policy]\ncode = "allow"\n')
    same = ("--db", url, "--data", str(tmp_path / "data"), "--route", "train=gpu")
    servers = [Server.start(folders[0], *same)]
    api = Api(servers[0].url, (tmp_path / "data" / "admin-token").read_text().strip())
    try:
        servers.append(Server.start(folders[2], *same))
        answer = wait_for(api, 2)
        assert answer["warnings"] == [] and [setting["unlike"] for setting in answer["settings"]] == [[], []]
        servers.append(Server.start(folders[1], *same, "--config", "settings.toml", "--route", "test=cpu"))
        last = servers[2].process
        assert any(WARNING in line for line in last.heard) or last.hear(WARNING)
        answer = wait_for(api, 3)
        unlike = ["policy.code_of_api_documents", "route.test"]
        assert {tuple(setting["unlike"]) for setting in answer["settings"]} == {tuple(unlike)}
        assert all(", ".join(unlike) in warning for warning in answer["warnings"]) and answer["warnings"]
        assert api("GET", "/api/v1/workers").json["items"] == [], "servers are not workers"
        servers.pop().stop()
        assert wait_for(api, 2)["warnings"] == [], "whoever left does not count"
    finally:
        for server in servers:
            server.commands.end_all()


def wait_for(api: Api, count: int) -> dict[str, list[dict[str, list[str]]]]:
    """The answer once so many servers have noted what they work with."""
    deadline = time.monotonic() + 60
    while True:
        answer = api("GET", "/api/v1/servers").json
        if len(answer["settings"]) == count:
            return dict(answer)
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
