"""The catalog through the API, checks of documents, TLS, and the examples of the page (SRV-011, SRV-028)."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.dialects.story.world import engram, story, template
from tests.server.serving import RETURNS, Server

STORY = story("steps: [{name: say, ref: {name: echo}, with: {n: 1}}]", "kept")
PLACE = "/api/v1/resources/stories/default/kept"
DOCS = Path(__file__).parents[2] / "docs"


def test_an_entry_is_written_read_and_removed_under_its_version(server: Server) -> None:
    """Section 3: `ETag` and `If-Match`; who has an old version changes nothing."""
    admin = server.admin
    assert admin("POST", "/api/v1/resources:apply", {"documents": [engram("echo"), template("echo")]}).status == 200
    import yaml

    body = yaml.safe_load(STORY) if isinstance(STORY, str) else STORY
    created = admin("PUT", PLACE, body, If_None_Match="*")
    assert created.status == 201, created.text
    first = created.headers["etag"]
    assert admin("PUT", PLACE, body, If_None_Match="*").status == 412
    changed = {**body, "metadata": {**body["metadata"], "labels": {"a": "b"}}}
    second = admin("PUT", PLACE, changed, If_Match=first)
    assert second.status == 200 and second.headers["etag"] != first
    assert admin("PUT", PLACE, body, If_Match=first).status == 412
    assert admin("DELETE", PLACE, If_Match=first).status == 412
    assert admin("GET", PLACE).headers["etag"] == second.headers["etag"]
    listed = admin("GET", "/api/v1/resources/stories").json["items"]
    assert "kept" in [resource["metadata"]["name"] for resource in listed]
    for tags, status in ((f'"x", {second.headers["etag"]}', 200), ('"x", "y"', 412), ("*", 200), ("", 412)):
        assert admin("PUT", PLACE, changed, If_Match=tags).status == status, tags
    assert admin("DELETE", PLACE, If_Match=second.headers["etag"]).status == 200
    assert admin("GET", PLACE).problem == (404, "RESOURCE-NOT-FOUND")
    assert admin("PUT", PLACE, body, If_Match="*").status == 412, "there is none that could be replaced"
    assert admin("GET", "/api/v1/resources/nonsense").problem == (404, "KIND-UNKNOWN")
    other = admin("PUT", "/api/v1/resources/stories/default/other", body)
    assert other.problem == (400, "USAGE")


def test_a_flow_is_called_like_its_place_or_its_file(server: Server) -> None:
    """A Flow has no name of its own."""
    admin = server.admin
    flow = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "done",
        "steps": {"done": {"action": "Return", "value": 17}},
    }
    assert admin("PUT", "/api/v1/resources/flow/default/put", flow).status == 201
    applied = admin("POST", "/api/v1/resources:apply", {"documents": [flow], "files": ["flows/filed.json"]})
    assert applied.status == 200, applied.text
    for name in ("put", "filed"):
        done = admin("POST", "/api/v1/runs", {"name": name}, Prefer="wait=60")
        assert (done.status, done.json["value"]) == (200, 17), done.text


def pages(server: Server, path: str, meanwhile: Sequence[str] = ()) -> list[str]:
    """The names on all pages of two; after each page an entry is removed."""
    names: list[str] = []
    page = server.admin("GET", f"{path}?limit=2").json
    removed = iter(meanwhile)
    while True:
        names += [item["metadata"]["name"] for item in page["items"]]
        if "next" not in page:
            return names
        if (name := next(removed, None)) is not None:
            assert server.admin("DELETE", f"/api/v1/resources/engrams/default/{name}").status == 200
        page = server.admin("GET", f"{path}?limit=2&cursor={page['next']}").json


def test_pages_of_entries_and_of_runs_show_each_once_whatever_is_removed_meanwhile(server: Server) -> None:
    """SRV-013: a cursor holds its filter and its place, not a count."""
    admin = server.admin
    names = [f"paged-{number}" for number in range(7)]
    applied = admin("POST", "/api/v1/resources:apply", {"documents": [*map(template, names), *map(engram, names)]})
    assert applied.status == 200, applied.text
    listed = pages(server, "/api/v1/resources/engrams/default", ["paged-0", "paged-1"])
    assert [name for name in listed if name in names] == names
    steps = ", ".join(f"{{name: {name}, ref: {{name: echo}}, with: {{n: 1}}}}" for name in "abc")
    documents = [engram("echo"), template("echo"), story(f"steps: [{steps}]", "paged")]
    assert admin("POST", "/api/v1/resources:apply", {"documents": documents}).status == 200
    runs = [admin("POST", "/api/v1/runs", {"name": "paged"}, Prefer="wait=60").json["id"] for _ in range(3)]
    for kind in ("storyruns", "stepruns"):
        everything = admin("GET", f"/api/v1/resources/{kind}/default?limit=1000").json["items"]
        shown = pages(server, f"/api/v1/resources/{kind}/default")
        assert shown == [item["metadata"]["name"] for item in everything] and len(shown) >= len(runs)
    cursor = admin("GET", "/api/v1/resources/engrams/default?limit=2").json["next"]
    for wrong in (f"stories?cursor={cursor}", "engrams?cursor=nonsense", "engrams?cursor=WzFd", "engrams?cursor=2"):
        assert admin("GET", f"/api/v1/resources/{wrong}").problem == (400, "USAGE"), wrong


def test_documents_are_applied_all_or_none(server: Server) -> None:
    admin = server.admin
    bad = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": "bad"}, "spec": {"steps": 1}}
    fresh = engram("fresh")
    refused = admin("POST", "/api/v1/resources:apply", {"documents": [fresh, bad]})
    assert refused.problem == (422, "DOC-INVALID") and refused.json["problems"]
    assert admin("GET", "/api/v1/resources/engrams/default/fresh").status == 404
    dry = admin("POST", "/api/v1/resources:apply", {"documents": [template("dry"), engram("dry")], "dry_run": True})
    assert dry.status == 200, dry.text
    assert admin("GET", "/api/v1/resources/engrams/default/dry").status == 404


def test_a_check_is_200_problems_or_not_and_stores_nothing(server: Server) -> None:
    """SRV-011."""
    good = server.admin("POST", "/api/v1/check", {"document": RETURNS})
    assert (good.status, good.json["valid"], good.json["problems"]) == (200, True, [])
    bad = server.admin("POST", "/api/v1/check", {"document": "kind: nonsense"})
    assert (bad.status, bad.json["valid"], bad.json["language"]) == (200, False, None)


def test_providers_and_servers_are_listed(server: Server) -> None:
    assert "http" in [provider["name"] for provider in server.admin("GET", "/api/v1/providers").json["items"]]
    assert server.admin("GET", "/api/v1/servers").status == 200


def test_the_examples_of_the_page_run(server: Server, tmp_path: Path) -> None:
    """Each block of the page as one script; an answer that is a refusal fails it."""
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    env = {**os.environ, "URL": server.url, "TOKEN": str(server.admin.token)}
    for block in blocks:
        script = block.replace("curl -s ", "curl -s --fail-with-body --max-time 30 ")
        done = subprocess.run(["sh", "-e", "-c", script], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert '"code":"UNEXPECTED"' not in done.stdout
