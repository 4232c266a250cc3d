"""What somebody asks who looks at runs and writes documents (SRV-013, SRV-083)."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.documents import read_document
from tests.dialects.story.world import engram, story, template
from tests.server.serving import Api, Server

SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
FLOW = {
    "$schema": SCHEMA,
    "parameters": {"type": "object", "properties": {"unit": {"type": "string"}}},
    "entrypoint": "double",
    "steps": {
        "double": {
            "action": "Call",
            "call": {
                "provider": "mwl:provider.call/perdure/echo/v1",
                "with": {"value": "{{ call.input + call.input }}"},
            },
            "assign": {"doubled": "{{ step.result.value }}"},
            "next": "rest",
        },
        "rest": {"action": "Sleep", "for": "PT1H", "next": "end"},
        "end": {"action": "Return", "value": "{{ vars.doubled + 1.0 }}"},
    },
}
PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "approve", "path": "approve"},
    "workload": {"rows": [1, 2, 3], "region": "north"},
    "keychain": [],
    "workflow": [
        {
            "step": "start",
            "tool": {
                "kind": "noop",
                "spec": {"policy": {"rules": [{"else": {"then": {"do": "continue", "set_ctx": {"n": 4}}}}]}},
            },
            "next": {"arcs": [{"step": "gate"}]},
        },
        {
            "step": "gate",
            "spec": {"policy": {"admit": {"rules": [{"when": "{{ ctx.approved }}", "then": {"allow": True}}]}}},
            "tool": {"kind": "noop"},
        },
    ],
}
GATE = """
steps:
- {name: ask, type: gate}
- name: greet
  ref: {name: greeter}
  needs: [ask]
  with: {text: "{{ inputs.name | upper }}"}
output: {said: "{{ steps.greet.output.text }}"}
inputsSchema: {type: object, properties: {name: {type: string}}}
"""


def _evaluate(api: Api, run: str, step: str, expression: str, **more: Any) -> Any:
    return api("POST", f"/api/v1/runs/{run}/evaluate", {"step": step, "expression": expression, **more})


def _until(api: Api, run: str, words: str) -> None:
    """Until the run waits for something that is called so."""
    stream = api.follow(f"/api/v1/runs/{run}/events?raw=true")
    assert any(words in event["data"] for event in stream.events())
    stream.close()


def test_an_expression_has_the_value_that_a_step_of_a_flow_would_read(server: Server) -> None:
    """SRV-083: also at an earlier moment, and of a step that has ended; nothing is recorded."""
    operator = server.role("operator")
    run = server.admin.start(FLOW, input=5)
    _until(operator, run, '"StepSlept"')
    before = len(operator("GET", f"/api/v1/runs/{run}/events").json["items"])
    for expression, value in (
        ("vars.doubled + 5.0", 15),
        ("{{ {'a': frame.input} }}", {"a": 5}),
        ("execution.id", run),
        ("step.name", "rest"),
    ):
        assert _evaluate(operator, run, "rest", expression).json["value"] == value, expression
    assert _evaluate(operator, run, "double", "step.input").json["value"] == 5
    assert _evaluate(operator, run, "double", "vars", at=3).json["value"] == {}
    assert _evaluate(operator, run, "rest", "vars", at=2).problem[0] in (404, 409)
    assert _evaluate(operator, run, "rest", "vars.nothing").problem == (422, "EXPRESSION-FAILED")
    assert _evaluate(operator, run, "rest", "1 +").problem == (422, "EXPRESSION-FAILED")
    assert _evaluate(operator, run, "nobody", "1").problem == (404, "STEP-NOT-FOUND")
    assert _evaluate(operator, run, "rest", "1", at=999).problem == (404, "EVENT-NOT-FOUND")
    assert _evaluate(server.role("viewer"), run, "rest", "1").problem == (403, "ACCESS-DENIED")
    assert len(operator("GET", f"/api/v1/runs/{run}/events").json["items"]) == before
    described = operator("GET", f"/api/v1/runs/{run}/steps/double").json
    assert described["expressions"] == [{"place": "value", "expression": "{{ call.input + call.input }}", "value": 10}]


def test_an_expression_may_need_no_more_than_one_of_a_decision(server: Server) -> None:
    """SRV-083: the same budget."""
    run = server.admin.start(FLOW, input=5)
    _until(server.admin, run, '"StepSlept"')
    greedy = "[0,1,2,3,4,5,6,7,8,9]"
    for _ in range(9):
        greedy = f"[0,1,2,3,4,5,6,7,8,9].map(x, {greedy})"
    assert _evaluate(server.admin, run, "rest", greedy).problem == (422, "EXPRESSION-FAILED")
    assert _evaluate(server.admin, run, "rest", "1" * 20_000).problem == (422, "EXPRESSION-FAILED")


def test_an_expression_of_a_playbook_reads_its_scopes(server: Server) -> None:
    run = server.admin.start(PLAYBOOK, input={"region": "south"})
    _until(server.admin, run, "gate")
    assert _evaluate(server.admin, run, "gate", "workload.rows | length + ctx.n").json["value"] == 7
    assert _evaluate(server.admin, run, "gate", "{{ workload.region }}").json["value"] == "south"
    assert _evaluate(server.admin, run, "start", "{{ execution_id }}").json["value"] == run
    assert _evaluate(server.admin, run, "gate", "{{ nothing.at.all }}").problem == (422, "EXPRESSION-FAILED")


def test_no_expression_reads_a_secret(server: Server) -> None:
    """SRV-083: what a keychain reads of the workload is hidden before it is read, so nothing can be made of it."""
    entry = {"name": "api", "kind": "bearer", "token": "{{ workload.key }}"}
    document = {**PLAYBOOK, "keychain": [entry], "workload": {"key": "", "rows": []}}
    run = server.admin.start(document, input={"key": "planted-tiger-77"})
    _until(server.admin, run, "gate")
    for expression in ("workload", "workload.key", "workload.key | upper", "workload.key[:7]", "{{ keychain.api }}"):
        answer = _evaluate(server.admin, run, "gate", expression).text.lower()
        assert b"planted" not in answer and b"tiger" not in answer, expression


def test_the_command_line_evaluates_too(server: Server) -> None:
    """SRV-050: on the store and through the server."""
    run = server.admin.start(FLOW, input=5)
    _until(server.admin, run, '"StepSlept"')
    asked = ("evaluate", run, "rest", "vars.doubled", "--json")
    on_store = server.commands.here(*asked).json
    through = server.commands.here(*asked, "--server", server.url, "--access-token", str(server.admin.token)).json
    assert on_store == through == {"run": run, "step": "rest", "value": 10}
    assert (
        server.commands.here("evaluate", run, "rest", "1 +", "--json", code=7).json["error"]["code"]
        == "EXPRESSION-FAILED"
    )


def test_an_expression_of_a_story_reads_inputs_and_steps(server: Server) -> None:
    documents = [story(GATE, "asks"), engram("greeter"), template("greeter")]
    applied = server.admin("POST", "/api/v1/resources:apply", {"documents": documents})
    assert applied.status == 200, applied.text
    started = server.admin("POST", "/api/v1/runs", {"name": "asks", "input": {"name": "ada"}})
    run = started.json["id"]
    assert _evaluate(server.admin, run, "ask", "{{ inputs.name | upper }}!").json["value"] == "ADA!"
    assert _evaluate(server.admin, run, "ask", "steps").json["value"] == {}
    assert _evaluate(server.admin, run, "ask", "{{ inputs.name | nothing }}").problem == (422, "EXPRESSION-FAILED")


def test_an_entry_is_shown_as_it_was_written_with_what_is_wrong_with_it(server: Server) -> None:
    """CON-005: comments and lines are those of its author; findings have the lines of this text."""
    text = """# around and around
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: circle, path: circle}
workflow:
- step: start
  tool: {kind: noop}
  next: {arcs: [{step: start}]}
"""
    assert server.admin("POST", "/api/v1/resources:apply", {"documents": [text]}).status == 200
    viewer = server.role("viewer")
    source = viewer("GET", "/api/v1/resources/playbooks/default/circle/source").json
    assert source["text"] == text and source["valid"] and source["language"] == "playbook"
    (finding,) = source["findings"]
    assert (finding["kind"], finding["certainty"], finding["line"]) == ("endless-loop", "will", 6)
    assert finding["trace"][0]["step"] == "start" and source["graph"]["nodes"]
    assert viewer("GET", "/api/v1/resources/playbooks/default/nowhere/source").status == 404
    assert viewer("GET", "/api/v1/resources/engrams/default/greeter/source").status == 404


def test_a_story_is_shown_as_yaml_without_what_the_catalog_has_added(server: Server) -> None:
    """CON-005: the catalog keeps a Story as data; its findings have the lines of the text that is shown."""
    text = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: idle, namespace: default, annotations: {team: shop}}
spec:
  steps:
  - {name: first, type: sleep, with: {duration: 1s}}
  - {name: second, type: wait, needs: [first], with: {until: "{{ false }}"}}
"""
    assert server.admin("POST", "/api/v1/resources:apply", {"documents": [text]}).status == 200
    source = server.role("viewer")("GET", "/api/v1/resources/stories/default/idle/source").json
    assert read_document(source["text"].encode()).data == read_document(text.encode()).data
    (finding,) = source["findings"]
    assert finding["step"] == "second"
    assert "second" in "\n".join(source["text"].splitlines()[finding["line"] - 1 : finding["line"] + 3])


def test_entries_tell_their_graph_their_schema_and_their_schedule(server: Server) -> None:
    """SRV-083: CON-005."""
    admin, viewer = server.admin, server.role("viewer")
    impulse = {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Impulse",
        "metadata": {"name": "hourly"},
        "spec": {
            "templateRef": {"name": "cron"},
            "documentRef": {"language": "playbook", "name": "shown"},
            "with": {"schedules": [{"name": "hour", "cron": "0 * * * *"}]},
        },
    }
    shown = {**PLAYBOOK, "metadata": {"name": "shown", "path": "shown"}}
    documents = [story(GATE, "drawn"), engram("greeter"), template("greeter"), shown, impulse]
    assert admin("POST", "/api/v1/resources:apply", {"documents": documents}).status == 200
    graph = viewer("GET", "/api/v1/resources/stories/default/drawn/graph").json
    assert {"ask", "greet"} <= {node["label"] for node in graph["nodes"]} and graph["edges"]
    schema = viewer("GET", "/api/v1/resources/stories/default/drawn/schema").json
    assert schema == {"input": {"type": "object", "properties": {"name": {"type": "string"}}}, "arguments": None}
    playbook = viewer("GET", "/api/v1/resources/playbooks/default/shown/schema").json
    assert playbook["input"]["properties"]["region"] == {"default": "north"}
    for path in ("impulses/default/hourly", "playbooks/default/shown"):
        (times,) = viewer("GET", f"/api/v1/resources/{path}/schedule?next=3").json["items"]
        assert len(times["next"]) == 3, path
    assert viewer("GET", "/api/v1/resources/stories/default/drawn/schedule").json == {"items": []}
    assert viewer("GET", "/api/v1/resources/engrams/default/greeter/graph").problem[0] == 404
    assert viewer("GET", "/api/v1/resources/stories/default/nobody/graph").problem[0] == 404
    assert viewer("GET", "/api/v1/resources/stories/default/drawn/schedule?next=0").problem[0] == 400


def test_runs_are_counted_by_status_and_hour(server: Server) -> None:
    """SRV-013, SRV-083."""
    admin = server.admin
    for number in range(3):
        document = {"drill": 1, "name": "counted", "steps": [{"fail": "X"} if number else {"return": 1}]}
        admin("POST", "/api/v1/runs", {"document": document, "namespace": "counts"}, Prefer="wait=60")
    stats = admin("GET", "/api/v1/stats?by=status&every=1h&namespace=counts").json
    assert stats["totals"] == {"succeeded": 1, "failed": 2} and stats["is_complete"]
    assert sum(sum(item["counts"].values()) for item in stats["items"]) == 3 and stats["every"] == 3600
    assert all(item["at"].endswith(":00:00.000000Z") for item in stats["items"])
    past = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = admin("GET", f"/api/v1/stats?namespace=counts&from=2020-01-01T00:00:00Z&to={past}&every=30d").json
    assert before["items"] == [] and before["totals"] == {}
    for query in (
        "every=1ms",
        "every=no",
        "by=colour",
        "from=no",
        "from=2020-01-01&every=1s",
        f"to={past}&from=2999-01-01",
    ):
        assert admin("GET", f"/api/v1/stats?{query}").problem == (400, "USAGE"), query


def test_a_document_is_tried_out_with_mocks_in_virtual_time(server: Server) -> None:
    """SRV-083: nothing is stored, and an hour takes no time."""
    author = server.role("author")
    before = [run["id"] for run in author("GET", "/api/v1/runs?limit=1000").json["items"]]
    tried = author("POST", "/api/v1/sandbox", {"document": FLOW, "input": 5, "mocks": {"echo": {"answer": 40}}}).json
    assert tried["result"] == {"id": tried["run"]["id"], "status": "succeeded", "value": 41}
    assert tried["seconds"] >= 3600 and not tried["is_cut"]
    (call,) = tried["calls"]
    assert (call["provider"], call["input"], call["arguments"]) == ("echo", 5, {"value": 10})
    assert tried["events"] and tried["graph"]["nodes"] and {step["name"] for step in tried["steps"]} >= {"double"}
    failing = {"echo": [{"failure": {"code": "My.Code", "message": "no", "retryable": False}}]}
    failed = author("POST", "/api/v1/sandbox", {"document": FLOW, "input": 5, "mocks": failing}).json
    assert (failed["result"]["status"], failed["result"]["error"]["code"]) == ("failed", "My.Code")
    unmocked = author("POST", "/api/v1/sandbox", {"document": FLOW, "input": 5}).json
    assert unmocked["result"]["error"]["code"] == "Sandbox.NotMocked"
    assert [run["id"] for run in author("GET", "/api/v1/runs?limit=1000").json["items"]] == before
    assert author("GET", f"/api/v1/runs/{tried['run']['id']}").problem == (404, "RUN-NOT-FOUND")


def test_a_sandbox_knows_the_catalog_and_calls_nothing(server: Server) -> None:
    """SRV-083: providers only as mocks, also those that the policy forbids, and those that nobody has."""
    author = server.role("author")
    documents = [engram("greeter"), template("greeter")]
    assert server.admin("POST", "/api/v1/resources:apply", {"documents": documents}).status == 200
    body: dict[str, Any] = {"document": story(GATE, "tried"), "input": {"name": "ada"}}
    body["mocks"] = {"greeter": {"answer": {"text": "hi"}}}
    waiting = author("POST", "/api/v1/sandbox", body).json
    assert waiting["result"] is None and waiting["run"]["waits_for"]
    done = author("POST", "/api/v1/sandbox", {**body, "gates": {"ask": "Approved"}}).json
    assert done["result"]["status"] == "succeeded" and done["result"]["value"] == {"said": "hi"}
    uri = "mwl:provider.call/perdure/{}/v1"
    steps: dict[str, Any] = {"end": {"action": "Return", "value": "{{ frame.input }}"}}
    for name in ("nobody-has-this", "http"):
        call = {"provider": uri.format(name), "with": {"url": "http://127.0.0.1:1/"}}
        steps["go"] = {"action": "Call", "call": call, "output": "{{ step.result.value }}", "next": "end"}
        flow = {"$schema": SCHEMA, "entrypoint": "go", "steps": steps}
        tried = author("POST", "/api/v1/sandbox", {"document": flow, "mocks": {name: {"answer": 1}}})
        assert tried.json["result"]["status"] == "succeeded", tried.text
    assert author("POST", "/api/v1/sandbox", {"document": flow, "mocks": {"http": 1}}).problem == (422, "INPUT-UNFIT")
    assert author("POST", "/api/v1/sandbox", {"document": {"kind": "x"}}).problem[0] == 422
    assert author("POST", "/api/v1/sandbox", {**body, "gates": {"ask": "perhaps"}}).problem[0] == 422
    assert server.role("operator")("POST", "/api/v1/sandbox", body).problem == (403, "ACCESS-DENIED")


def test_a_document_that_moves_for_ever_ends_in_the_sandbox_too(server: Server) -> None:
    steps = {"again": {"action": "Pass", "next": "again"}}
    flow = {"$schema": SCHEMA, "entrypoint": "again", "steps": steps}
    tried = server.role("author")("POST", "/api/v1/sandbox", {"document": flow}).json
    assert tried["result"]["status"] == "cancelled" and len(tried["events"]) == 1_000


@pytest.mark.parametrize("width", [40, 1_200])
def test_a_wide_run_is_folded(server: Server, width: int) -> None:
    """SRV-083: a node has counts; what is under it comes on request, failures first, at most 500 at once."""
    call = {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"value": 1}}
    gather = {
        "action": "Gather",
        "over": "{{ frame.input }}",
        "call": {"flow": "one"},
        "next": "end",
    }
    flow_document = {
        "entrypoint": "work",
        "steps": {"work": {"action": "Call", "call": call, "next": "done"}, "done": {"action": "Return"}},
    }
    flow = {
        "$schema": SCHEMA,
        "entrypoint": "all",
        "flows": {"one": flow_document},
        "steps": {"all": gather, "end": {"action": "Return", "value": 1}},
    }
    run = server.admin.start(flow, input=list(range(width)))
    assert server.admin.result(run)["status"] == "succeeded"
    graph = server.admin("GET", f"/api/v1/runs/{run}/graph").json
    work = next(node for node in graph["nodes"] if node["id"].endswith("/work"))
    assert work["count"] == {"done": width, "failed": 0, "open": 0} and len(graph["nodes"]) < 20
    under = server.admin("GET", f"/api/v1/runs/{run}/graph?under={work['id'].replace('/', '%2F')}").json
    assert len(under["nodes"]) == min(width, 500) and ("next" in under) == (width > 500)
    assert {node["parent"] for node in under["nodes"]} == {work["id"]}
    assert server.admin("GET", f"/api/v1/runs/{run}/graph?under=nobody").problem == (404, "STEP-NOT-FOUND")
    assert json.dumps(graph)


def test_an_admin_reads_the_rules_of_retention_and_nobody_else(server: Server) -> None:
    """CON-007; this server has none."""
    assert server.admin("GET", "/api/v1/retention").json == {"items": []}
    assert server.role("author")("GET", "/api/v1/retention").status == 403
