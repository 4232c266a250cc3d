"""Watches of the Kubernetes API on several servers of one store, while they are killed (SRV-071, SRV-075)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import as_url
from tests.server.serving import Api, Server

STORIES = "/apis/bubustack.io/v1alpha1/namespaces/default/stories"
RUNS = "/apis/runs.bubustack.io/v1alpha1/namespaces/default/storyruns"
CHANGES = 12


@pytest.mark.sampled(4)
def test_each_change_is_told_once_and_in_order_while_servers_are_killed(postgres_url: str, tmp_path: Path) -> None:
    """A watcher goes on at another server, from the version that it has seen last."""
    data = ("--data", str(tmp_path / "data"))
    servers = [_start(tmp_path / name, postgres_url, *data) for name in ("one", "two")]
    token = (tmp_path / "data" / "admin-token").read_text().strip()
    writer, watcher = (Api(server.url, token) for server in servers)
    made = writer(
        "POST", STORIES, {"metadata": {"name": "watched"}, "spec": {"steps": [{"name": "a", "type": "gate"}]}}
    )
    assert made.status == 201, made.text
    version = writer("GET", STORIES).json["metadata"]["resourceVersion"]
    versions: list[str] = []
    try:
        for number in range(CHANGES):
            body = {"spec": {"version": str(number)}}
            changed = writer("PATCH", f"{STORIES}/watched", body, Content_Type="application/merge-patch+json")
            assert changed.status == 200, changed.text
            if number % 4 == 3:
                version = _follow(watcher, version, versions, until=str(number))
                servers[1].process.kill()
                servers[1] = _start(tmp_path / f"next-{number}", postgres_url, *data)
                watcher = Api(servers[1].url, token)
        assert versions == [str(number) for number in range(CHANGES)]
        other: list[str] = []
        _follow(writer, writer("GET", STORIES).json["metadata"]["resourceVersion"], other, until=None)
        assert other == []
    finally:
        for server in servers:
            server.commands.end_all()


def test_each_change_is_told_once_and_in_order_across_restarts_of_a_file(tmp_path: Path) -> None:
    """Of entries and of runs: the feed is in the file, and versions go on counting after a server was killed."""
    server = Server.start(tmp_path)
    api = server.admin
    gate = {"steps": [{"name": "a", "type": "gate"}]}
    assert api("POST", STORIES, {"metadata": {"name": "watched"}, "spec": gate}).status == 201
    run = {"metadata": {"name": "watched-1"}, "spec": {"storyRef": {"name": "watched"}}}
    assert api("POST", RUNS, run).status == 201
    places = {STORIES: "watched", RUNS: "watched-1"}
    versions = {path: api("GET", path).json["metadata"]["resourceVersion"] for path in places}
    versions_by_path: dict[str, list[str]] = {path: [] for path in places}
    try:
        for number in range(6):
            for path, name in places.items():
                body = {"metadata": {"labels": {"n": str(number)}}}
                changed = api("PATCH", f"{path}/{name}", body, Content_Type="application/merge-patch+json")
                assert changed.status == 200, changed.text
            if number % 2:
                server.process.kill()
                server = Server.start(tmp_path)
                api = server.admin
                for path in places:
                    versions[path] = _follow_labels(
                        api, path, versions[path], versions_by_path[path], until=str(number)
                    )
        assert list(versions_by_path.values()) == [[str(number) for number in range(6)]] * 2
    finally:
        server.commands.end_all()


def _follow_labels(api: Api, path: str, version: str, labels: list[str], until: str) -> str:
    connection = api.connect()
    connection.request(
        "GET", f"{path}?watch=true&resourceVersion={version}", headers={"Authorization": f"Bearer {api.token}"}
    )
    response = connection.getresponse()
    try:
        for line in response:
            event: Any = json.loads(line)
            assert event["type"] == "MODIFIED", event
            labels.append(event["object"]["metadata"]["labels"]["n"])
            version = event["object"]["metadata"]["resourceVersion"]
            if labels[-1] == until:
                break
    finally:
        response.close()
        connection.close()
    return version


def _start(folder: Path, url: str, *words: str) -> Server:
    folder.mkdir()
    return Server.start(folder, "--db", as_url(url), "--lease", "3s", *words)


def _follow(api: Api, version: str, versions: list[str], until: str | None) -> str:
    """Note the changes behind a version, until one says so; the last version that was seen."""
    connection = api.connect()
    timeout = "&timeoutSeconds=1" if until is None else ""
    path = f"{STORIES}?watch=true&resourceVersion={version}{timeout}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
    response = connection.getresponse()
    try:
        for line in response:
            event: Any = json.loads(line)
            assert event["type"] == "MODIFIED", event
            versions.append(event["object"]["spec"]["version"])
            version = event["object"]["metadata"]["resourceVersion"]
            if versions[-1] == until:
                break
    finally:
        response.close()
        connection.close()
    return version
