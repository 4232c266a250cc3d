"""A token for several namespaces sees nothing of `default` unless that is one of them (SRV-080)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Api, Server

PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "report", "path": "report"},
    "workflow": [{"step": "start", "tool": [{"rest": {"kind": "noop"}}]}],
}
IMPULSE = {
    "apiVersion": "bubustack.io/v1alpha1",
    "kind": "Impulse",
    "metadata": {"name": "payday"},
    "spec": {
        "templateRef": {"name": "cron"},
        "documentRef": {"language": "playbook", "name": "report"},
        "with": {"schedules": [{"name": "night", "cron": "0 3 * * *"}]},
    },
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server.start(tmp_path)
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


@pytest.mark.parametrize("more", ["", "&all_namespaces=true"])
def test_a_schedule_of_another_namespace_is_not_there_by_its_name(server: Server, more: str) -> None:
    """The list over all namespaces was filtered; the same request with the name of one schedule was not."""
    assert server.admin("POST", "/api/v1/resources:apply", {"documents": [PLAYBOOK, IMPULSE]}).status == 200
    asked = f"/api/v1/schedules?name=night{more}"
    assert [item["name"] for item in server.admin("GET", asked).json] == ["payday/night"]
    body = {"name": "both", "role": "viewer", "namespaces": ["red", "green"]}
    both = Api(server.url, server.admin("POST", "/api/v1/tokens", body).json["token"])
    for place in ("", "&namespace=default"):
        refused = both("GET", asked + place)
        assert refused.status == 404 and b"payday" not in refused.text, refused.text
