"""Simulations and scenarios through a server: of texts that come with the request, in a process of their own
(ANA-010, ANA-012, ANA-013, SRV-015)."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.errors import InvalidDocument
from perdure.server.handlers import analysis_handlers
from perdure.server.limits import RequestLimits, SharedPlaces
from perdure.views.api_errors import TooManyRequests
from perdure.views.errors import BadRequest
from tests.cli.commandline import CommandLine
from tests.server.serving import Api, Server
from tests.server.test_no_engine import until

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: order}
spec:
  steps:
  - {name: charge, ref: {name: bank}}
  - {name: ok, type: gate, needs: [charge], with: {timeout: 1h}}
"""
SCENARIOS = """
mocks: {bank: {answer: {receipt: 7}}}
scenarios:
- {name: approved, actions: [{approve: ok}], expect: {status: succeeded, calls: {bank: 1}}}
- {name: too late, expect: {status: failed}}
"""
FILES = {"order.yaml": STORY, "order.test.yaml": SCENARIOS}
API = "/api/v1"


def test_an_author_simulates_and_tests_documents(server: Server) -> None:
    author = server.role("author")
    asked = {"files": FILES, "document": "order.yaml", "runs": 20, "faults": ["crash", "duplicate"]}
    simulated = author("POST", f"{API}/simulations", asked).json
    assert simulated["runs"] == 20 and simulated["failed"] == 0 and simulated["shrunk"] is None
    tested = author("POST", f"{API}/tests", {"files": FILES, "places": ["order.yaml"], "crash": "all"}).json
    assert [verdict["passed"] for verdict in tested["scenarios"]] == [True, True]
    assert tested["scenarios"][0]["crashes"] > 0 and tested["coverage"][0]["steps"]["covered"] == 2
    for role in ("viewer", "operator"):
        assert server.role(role)("POST", f"{API}/simulations", asked).problem == (403, "ACCESS-DENIED")
        assert server.role(role)("POST", f"{API}/tests", {"files": FILES, "places": ["order.yaml"]}).status == 403


PARENT = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: parent, path: shop/parent}
workflow:
- {step: call, tool: {kind: playbook, path: shop/child}}
"""
CHILD = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: child, path: shop/child}
workflow:
- {step: work, tool: {kind: noop, result: done}}
"""
OUTER = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: outer}
spec:
  steps: [{name: sub, type: executeStory, with: {storyRef: {name: nap}, waitForCompletion: true}}]
"""
NAP = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: nap}
spec: {steps: [{name: nap, type: sleep, with: {duration: 1s}}]}
"""
CALLER = json.dumps(
    {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "call",
        "steps": {
            "call": {
                "action": "Call",
                "call": {"provider": "mwl:provider.call/perdure/run/v1", "with": {"path": "called"}},
                "next": "end",
            },
            "end": {"action": "Return"},
        },
    }
)
CALLED = json.dumps(
    {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "end",
        "steps": {"end": {"action": "Return", "value": 7}},
    }
)


def test_documents_of_the_catalog_are_called_where_the_caller_sees_them(server: Server) -> None:
    """ANA-010, ANA-013, SRV-022: what is in a namespace of others is not there."""
    author = server.role("author")
    applied = {"documents": [CHILD, NAP, CALLED], "files": ["child.yaml", "nap.yaml", "called.json"]}
    assert author("POST", f"{API}/resources:apply", applied).status == 200
    made = server.admin("POST", f"{API}/tokens", {"name": "far", "role": "author", "namespaces": ["far"]}).json
    stranger = Api(server.url, made["token"])

    def simulate(caller: Api, text: str, **more: Any) -> Any:
        files = {"doc.json": text, **more.pop("files", {})}
        asked = {"files": files, "document": "doc.json", "runs": 2, "faults": [], **more}
        return caller("POST", f"{API}/simulations", asked).json

    for text in (PARENT, OUTER, CALLER):
        assert simulate(author, text)["ends"] == {"succeeded": 2}, text
    assert simulate(stranger, PARENT)["ends"] == {"failed (PLAYBOOK_NOT_FOUND)": 2}
    assert simulate(stranger, PARENT, files={"x.yaml": CHILD}, apply=["x.yaml"])["ends"] == {"succeeded": 2}
    files = {"doc.yaml": OUTER, "doc.test.yaml": "{expect: {status: succeeded}}"}
    assert author("POST", f"{API}/tests", {"files": files, "places": ["doc.yaml"]}).json["failed"] == 0


def test_documents_of_the_catalog_are_called_in_the_namespace_of_the_request(server: Server) -> None:
    """ANA-010, ANA-013: in the one that it names, or in the only one that its token sees."""
    author = server.role("author")
    applied = {"documents": [CHILD, NAP, CALLED], "files": ["child.yaml", "nap.yaml", "called.json"]}
    assert author("POST", f"{API}/resources:apply", {**applied, "namespace": "shop"}).status == 200
    made = server.admin("POST", f"{API}/tokens", {"name": "clerk", "role": "author", "namespaces": ["shop"]}).json
    clerk = Api(server.url, made["token"])
    scenarios = "{expect: {status: succeeded}}"

    def play(caller: Api, text: str, **more: Any) -> tuple[Any, int]:
        files = {"doc.yaml": text, "doc.test.yaml": scenarios}
        asked = {"files": files, "document": "doc.yaml", "runs": 2, "faults": [], **more}
        tested = caller("POST", f"{API}/tests", {"files": files, "places": ["doc.yaml"], **more}).json
        return caller("POST", f"{API}/simulations", asked).json.get("ends"), tested["failed"]

    for text in (PARENT, OUTER, CALLER):
        assert play(author, text, namespace="shop") == play(clerk, text) == ({"succeeded": 2}, 0), text
    assert play(author, PARENT, namespace="elsewhere") == ({"failed (PLAYBOOK_NOT_FOUND)": 2}, 1)
    body = {"files": {"doc.yaml": PARENT}, "document": "doc.yaml", "runs": 2, "namespace": "default"}
    assert clerk("POST", f"{API}/simulations", body).problem == (404, "NAMESPACE-NOT-FOUND")


def test_a_failing_run_comes_back_as_a_schedule_that_can_be_sent_again(server: Server) -> None:
    author = server.role("author")
    waiting = {"order.yaml": STORY.replace(", with: {timeout: 1h}", "")}
    asked = {"files": waiting, "document": "order.yaml", "runs": 2, "faults": []}
    shrunk = author("POST", f"{API}/simulations", asked).json["shrunk"]
    assert shrunk["violation"]["invariant"] == "ends"
    again = {**waiting, "failing.json": json.dumps(shrunk["schedule"])}
    replayed = author("POST", f"{API}/simulations", {**asked, "files": again, "trace": "failing.json"}).json
    assert replayed["violation"] == shrunk["violation"]


@pytest.mark.parametrize(
    ("files", "place", "expected"),
    [
        ({**FILES, "../x.yaml": ""}, "order.yaml", (400, "USAGE")),
        ({**FILES, "/etc/x.yaml": ""}, "order.yaml", (400, "USAGE")),
        ({**FILES, "perdure.toml": ""}, "order.yaml", (400, "USAGE")),
        ({**FILES, "perdure.py": ""}, "order.yaml", (400, "USAGE")),
        (FILES, "other.yaml", (400, "USAGE")),
        ({"order.yaml": STORY}, "order.yaml", (422, "NO-SCENARIOS")),
        ({**FILES, "order.test.yaml": "load: [os]\n" + SCENARIOS}, "order.yaml", (422, "BAD-SCENARIO")),
        ({**FILES, "order.test.yaml": "use: [python]\n" + SCENARIOS}, "order.yaml", (422, "BAD-SCENARIO")),
        ({**FILES, "order.test.yaml": "apply: [/etc/hostname]\n" + SCENARIOS}, "order.yaml", (422, "BAD-SCENARIO")),
        (
            {**FILES, "order.test.yaml": "recorded: ../../../etc/hostname\n" + SCENARIOS},
            "order.yaml",
            (422, "BAD-SCENARIO"),
        ),
        ({**FILES, "order.test.yaml": "document: /etc/hostname\n" + SCENARIOS}, "order.yaml", (422, "BAD-SCENARIO")),
        ({**FILES, "order.yaml": "kind: Story"}, "order.yaml", (200, "")),
    ],
)
def test_files_of_others_load_nothing_and_lead_nowhere(
    server: Server, files: dict[str, str], place: str, expected: tuple[int, str]
) -> None:
    answer = server.role("author")("POST", f"{API}/tests", {"files": files, "places": [place]})
    assert answer.status == expected[0], answer.text
    if expected[1]:
        assert answer.problem[1] == expected[1]
    else:
        assert answer.json["failed"] == 2  # the document is told to be wrong, by each scenario


def test_the_command_line_asks_the_server(server: Server, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    there = ("--server", server.url, "--access-token", str(server.role("author").token))
    for words in (("test", "order.yaml", "--crash=all"), ("sim", "order.yaml", "--runs", "5", "--faults", "crash")):
        assert _timeless(line.here(*words, *there).out) == _timeless(line.here(*words).out)
    (tmp_path / "order.test.yaml").write_text("load: [os]\n" + SCENARIOS)
    assert "no code is loaded" in line.here("test", "order.yaml", *there, code=7).err


def _timeless(text: str) -> str:
    return "".join(part.partition(" s")[2] if part[:1].isdecimal() else part for part in text.split("("))


async def test_a_process_has_limits_and_nothing_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up, and variables of the server are not there."""
    monkeypatch.setattr(analysis_handlers, "LONGEST", 0.05)
    (tmp_path / "order.yaml").write_text(STORY)
    with pytest.raises(BadRequest, match="longer than"):
        await analysis_handlers._run(tmp_path, ["sim", "order.yaml", "--runs", "10000", "--json"])
    kept: list[Any] = []

    async def start(*words: str, **more: Any) -> Any:
        kept.append(more["env"])
        raise InvalidDocument("enough")

    monkeypatch.setenv("PERDURE_SECRETS_KEY", "planted")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    with pytest.raises(InvalidDocument):
        await analysis_handlers._run(tmp_path, ["sim"])
    assert "planted" not in str(kept)


async def test_one_token_does_not_take_all_places() -> None:
    places = SharedPlaces(2, "simulations and tests")
    async with places.turn("ada", 0):
        with pytest.raises(TooManyRequests):
            async with places.turn("ada", 0.01):
                pass
        async with places.turn("bob", 0):
            with pytest.raises(TooManyRequests):
                async with places.turn("eve", 0.01):
                    pass
    async with places.turn("eve", 0):
        pass
    assert RequestLimits().divided(4).plays == 1


async def test_a_process_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its stores are in the folder that the server removes, not in memory that nobody frees."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    playing = asyncio.ensure_future(
        analysis_handlers._run(tmp_path, ["test", "order.yaml", "--crash=all", "--confined", "--json"])
    )
    while not (stores := list(tmp_path.glob("perdure-scenario-*"))) and not playing.done():
        await asyncio.sleep(0.002)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert stores


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"input": {"text": "x" * 200_000}}, 200),  # it is not among the words of a process
        ({"scenario": "x" * 200_000}, 400),
        ({"scenario": "app\0roved"}, 400),
        ({"faults": ["cra\0sh"]}, 400),
        ({"faults": ["x" * 200_000]}, 400),
        ({"files": {**FILES, "order.yaml/a.yaml": ""}}, 400),
    ],
)
def test_odd_requests_are_no_faults_of_the_server(server: Server, more: dict[str, Any], status: int) -> None:
    asked = {"files": FILES, "document": "order.yaml", "runs": 1, **more}
    answer = server.role("author")("POST", f"{API}/simulations", asked)
    assert answer.status == status, answer.text


@pytest.mark.parametrize("place", ["/etc/passwd", "/etc/there-is-no-such-file", "../order.yaml", "x\0y"])
def test_a_scenario_does_not_learn_which_files_the_server_has(server: Server, place: str) -> None:
    files = {**FILES, "order.test.yaml": json.dumps({"document": place, "scenarios": [{"name": "a"}]})}
    answer = server.role("author")("POST", f"{API}/tests", {"files": files, "places": ["order.yaml"]})
    assert answer.problem == (422, "BAD-SCENARIO") and "is outside of this folder" in answer.json["detail"]


def _long_play() -> dict[str, Any]:
    """A test that takes longer than a server gives it."""
    steps = "".join(f"  - {{name: s{n}, ref: {{name: bank}}, needs: [s{n - 1}]}}\n" for n in range(1, 90))
    story = f"{STORY.partition('  - ')[0]}  - {{name: s0, ref: {{name: bank}}}}\n{steps}"
    files = {"order.yaml": story, "order.test.yaml": "mocks: {bank: {answer: 1}}\nscenarios: [{name: a}]\n"}
    return {"files": files, "places": ["order.yaml"], "crash": "all"}


def test_a_place_is_free_again_when_its_caller_has_hung_up(server: Server) -> None:
    author = server.role("author")
    connection = author.connect()
    headers = {"Authorization": f"Bearer {author.token}", "Content-Type": "application/json"}
    connection.request("POST", f"{API}/tests", json.dumps(_long_play()).encode(), headers)
    asked = {"files": FILES, "document": "order.yaml", "runs": 1}
    assert author("POST", f"{API}/simulations", asked).status == 429, "it plays"
    connection.close()
    assert author("POST", f"{API}/simulations", asked).status == 200


def test_a_request_that_is_cut_off_by_a_stop_is_told_so(tmp_path: Path) -> None:
    """SRV-001, SRV-011: half the grace is over; it is 503, not a fault with a traceback."""
    server = Server.start(tmp_path, "--grace", "2s")
    admin = server.admin
    with ThreadPoolExecutor(1) as executor:
        playing = executor.submit(admin, "POST", f"{API}/tests", _long_play())
        asked = {"files": FILES, "document": "order.yaml", "runs": 1}
        until(lambda: playing.done() or admin("POST", f"{API}/simulations", asked).status == 429)
        server.stop()
        assert playing.result().problem == (503, "NOT-READY") and "retry-after" in playing.result().headers
