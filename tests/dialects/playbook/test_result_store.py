"""Bodies of results in an S3 service (PBK-171): stored before they are known, read by other runs; moto's server."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.playbook.values.result_uploads import PROVIDER
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from perdure.providers import object_storage
from perdure.providers.failure import ProviderFailure
from perdure.services.playbook.result_store import BUCKETS, transfer
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.test_history import told
from tests.dialects.playbook.world import Answer, World, playbook
from tests.moto_server import make_bucket, moto_server

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "planted/secret+key"}
BODY = {"rows": list(range(100))}
STORED = playbook("""
workflow:
  - step: load
    tool:
      - page: {kind: work, spec: {result: {inline_max_bytes: 10, store: {kind: s3, bucket: big}, select: [{path: "$.rows[0]", as: first}]}}}
      - read: {kind: artifact, action: get, result_ref: "{{ _prev }}"}
      - count: {kind: noop, result: "{{ _prev.rows | length }}"}
""")  # noqa: E501


class Objects:
    """A store in memory that behaves like the provider."""

    def __init__(self, *, after: int = 0, is_broken: bool = False) -> None:
        self.kept: dict[str, Any] = {}
        self.calls: list[dict[str, Any]] = []
        self.after, self.is_broken = after, is_broken

    def __call__(self, arguments: dict[str, Any]) -> Any:
        self.calls.append(arguments)
        if self.is_broken:
            return Failed("storage_access", "the bucket is full", retryable=False)
        if arguments["action"] == "get":
            return Answer(BODY)
        return Answer({"object": f"s3://big/{arguments['namespace']}/{arguments['key']}"}, after=self.after)


def start(text: str, objects: Objects, **work: Any) -> World:
    return World(text, work={"work": lambda _: BODY, PROVIDER: objects, **work}, crash=True)


def test_a_large_result_is_stored_before_it_is_known() -> None:
    """PBK-170: persist before emit; the run itself reads its own copy."""
    objects = Objects(after=SECOND)
    world = start(STORED, objects)

    view = world.run()

    assert (view["status"], view["result"]) == ("success", 100)
    (call,) = objects.calls
    assert call["sha256"] == hashlib.sha256(jsontext.encode(BODY)).hexdigest()
    names = [event["event_type"] for event in told(world)]
    assert names.index("result.stored") > names.index("task.attempt.started")
    (stored,) = [event["payload"]["reference"] for event in told(world) if event["event_type"] == "result.stored"]
    assert (stored["store"], stored["object"], stored["extracted"]) == (
        "s3",
        f"s3://big/{call['namespace']}/{call['key']}",
        {"first": 0},
    )
    assert call["key"] == f"{world.execution.id}/step/load/task/page/run/r1-1/attempt/1.json"


def test_a_store_that_takes_nothing_is_an_outcome_that_rules_see() -> None:
    objects = Objects(is_broken=True)

    view = start(STORED, objects).run()

    error = view["failures"][0]["error"]
    assert (error["kind"], error["code"], error["message"]) == (
        "storage_access",
        "STORE_NOT_AVAILABLE",
        "the bucket is full",
    )


def test_a_value_that_is_put_is_an_object_however_small() -> None:
    text = playbook("""
workflow:
  - step: s
    tool: {kind: artifact, action: put, value: 1, uri: "noetl://reports/a b", spec: {result: {store: {kind: s3}}}}
""")
    objects = Objects()

    world = start(text, objects)

    assert world.run()["result"]["object"].endswith(f"/{world.execution.id}/uri/reports/a b.json")


def test_a_cancel_and_a_lost_worker_leave_the_upload_whole() -> None:
    """A lost worker costs a delivery of the upload; the tool is not called again."""
    world = start(STORED, Objects(after=SECOND * 100))
    world.pass_time(1)
    (upload,) = world.execution.state.tasks
    world.tell(i.TaskLost(upload, 1, "the process is gone"))
    assert list(world.execution.state.tasks) == [upload]
    assert sum(isinstance(event, e.TaskScheduled) for event in world.events) == 2

    world.tell(i.Cancel("enough"))

    assert world.show()["status"] == "cancelled" and world.cancelled == [upload]


def test_a_redrive_calls_the_tool_again_after_its_body_could_not_be_stored() -> None:
    objects = Objects(is_broken=True)
    world = start(STORED, objects)
    assert world.run()["status"] == "failed"
    objects.is_broken = False

    world.tell(i.Reopen())

    assert world.run()["status"] == "success"


GIVEN = """
workflow:
  - step: use
    tool:
      - read: {kind: artifact, action: get, result_ref: "{{ workload.given }}", spec: {result: {inline_max_bytes: 10}}}
      - count: {kind: noop, result: "{{ _prev.rows | length }}"}
"""


def test_the_object_of_another_run_is_fetched_by_a_worker() -> None:
    """For the tasks that follow it is the value itself, at any size."""
    reference = {
        "kind": "result_ref",
        "ref": "noetl://execution/other/x",
        "store": "s3",
        "object": "s3://big/default/o/x.json",
    }
    objects = Objects()
    world = World(
        playbook(GIVEN), {"given": {**reference, "meta": {"sha256": "ab"}}}, work={PROVIDER: objects}, crash=True
    )

    assert world.run()["result"] == 100
    assert [call["object"] for call in objects.calls] == ["s3://big/default/o/x.json"]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def bucket(service: str, monkeypatch: pytest.MonkeyPatch) -> str:
    make_bucket(f"{service}/big")
    monkeypatch.setenv(BUCKETS, f"{service}/big")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return service


DIGEST = hashlib.sha256(jsontext.encode(BODY)).hexdigest()


@pytest.mark.sampled(4)
def test_objects_are_what_the_digest_says_and_stay_in_their_namespace(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = transfer("put", "team", DIGEST, BODY, key="r1/a.json")["object"]

    assert place == "s3://big/team/r1/a.json" and transfer("get", "team", DIGEST, None, object=place) == BODY
    for arguments, message in (
        ({"namespace": "others", "sha256": DIGEST, "object": place}, "does not belong to the namespace 'others'"),
        ({"namespace": "team", "sha256": "00", "object": place}, "its digest differs"),
        ({"namespace": "team", "sha256": DIGEST, "object": "s3://big/team/../x.json"}, "cannot be the name"),
        ({"namespace": "team", "sha256": DIGEST, "object": "s3://mine/team/x.json"}, "no bucket 'mine'"),
    ):
        with pytest.raises(ProviderFailure, match=message) as refused:
            transfer("get", input=None, **arguments)
        assert refused.value.code == "storage_access"
    with pytest.raises(ProviderFailure, match="NoSuchKey") as missing:
        transfer("get", "team", DIGEST, None, object="s3://big/team/none.json")
    assert (missing.value.code, missing.value.retryable) == ("missing_reference", True)
    monkeypatch.setenv(BUCKETS, f"{bucket}/big {bucket}/other")
    with pytest.raises(ProviderFailure, match="names several buckets"):
        transfer("put", "team", DIGEST, BODY, key="r1/a.json")
    monkeypatch.delenv(BUCKETS)
    with pytest.raises(ProviderFailure, match="the variable is not set"):
        transfer("put", "team", DIGEST, BODY, key="r1/a.json")


FILE = """\
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: stored, path: tests/stored}
workflow:
  - step: load
    tool:
      kind: python
      code: "result = {'rows': list(range(50000))}"
      spec: {result: {store: {kind: s3, scope: permanent}}}
    next: {arcs: [{step: use, args: {rows: "{{ event.result }}"}}]}
  - step: use
    tool: {kind: noop, result: "{{ args.rows }}"}
"""


@pytest.mark.sampled(4)
def test_a_run_stores_an_object_that_another_run_reads(bucket: str, tmp_path: Path) -> None:
    """Neither tells the operator's keys."""
    (tmp_path / "load.yaml").write_text(FILE)
    (tmp_path / "use.yaml").write_text(playbook(GIVEN))
    perdure = CommandLine(tmp_path)
    variables = {**KEYS, BUCKETS: f"{bucket}/big"}

    first = perdure("run", "load.yaml", "--json", code=0, **variables)
    reference = first.json["result"]

    assert reference["object"].startswith("s3://big/default/")
    assert json.loads(object_storage.read_object(BUCKETS, reference["object"]))["rows"][-1] == 49999
    (tmp_path / "input.json").write_text(json.dumps({"given": reference}))
    second = perdure("run", "use.yaml", "--json", "--input", "@input.json", code=0, **variables)
    assert second.json["result"] == 50000
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in first.out + second.out
