"""Values that Engrams share as objects of an S3 service (STY-007): moto's server. Signatures beside botocore's."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine
from tests.moto_server import PYTHON, install_moto, make_bucket, moto_server

from perdure import EngramError
from perdure.providers import object_storage
from perdure.providers.external_texts import Script, TextSource, read_text
from perdure.providers.failure import ProviderFailure
from perdure.services.story.engrams import storage

ROWS = {"rows": [1, 2]}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "planted/secret+key"}
STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: stored}
spec:
  policy: {storage: {s3: {bucket: large-values, region: eu-central-1}}}
  steps:
  - {name: a, ref: puts, with: {n: 4}}
  - {name: looks, ref: echo, needs: [a], with: {all: "{{ steps.a.output.rows }}"}}
  output: {all: "{{ steps.looks.output.all }}"}
"""
ENGRAMS = """\
import perdure

@perdure.engram("puts")
def puts(inputs, context):
    return {"rows": context.store("rows", list(range(inputs["n"])))}
"""


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def bucket(service: str, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"{service}/large-values"
    make_bucket(url)
    monkeypatch.setenv("PERDURE_STORAGE_S3", f"{service}/others {url}")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return url


@pytest.mark.sampled(4)
def test_a_value_is_an_object_of_the_bucket(bucket: str, service: str) -> None:
    settings = {"s3": {"bucket": "large-values", "endpoint": service}}
    kept = storage.put(settings, "default", "r1", "hello-a", "rows", ROWS)
    assert kept["$bubuStorageRef"] == "s3://large-values/default/r1/hello-a/rows.json"
    text = object_storage.read_object("PERDURE_STORAGE_S3", kept["$bubuStorageRef"])
    assert json.loads(text) == {"contentType": "json", "data": ROWS}
    assert storage.get(kept, frozenset({"r1"})) == ROWS
    assert storage.get({**kept, "$bubuStoragePath": "rows[1]"}, frozenset({"r1"})) == 2
    with pytest.raises(EngramError, match="values of other runs"):
        storage.get(kept, frozenset({"r2"}))
    spaces = storage.put(settings, "default", "r1", "hello-a", "a b+c", "text")
    assert storage.get(spaces, frozenset({"r1"})) == "text"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("s3://large-values/default/r1/hello-a/nothing.json", r"cannot be read: 404 \(NoSuchKey\)"),
        ("s3://others/default/r1/hello-a/rows.json", r"cannot be read: 404 \(NoSuchBucket\)"),
        ("s3://strange/default/r1/hello-a/rows.json", "no bucket 'strange' for this worker"),
        ("s3://large-values/../r1/hello-a/rows.json", "leads out of the storage"),
        ("s3://large-values//r1/hello-a/rows.json", "leads out of the storage"),
    ],
)
def test_a_reference_that_leads_nowhere_says_so(bucket: str, reference: str, message: str) -> None:
    with pytest.raises(EngramError, match=message):
        storage.get({"$bubuStorageRef": reference}, frozenset({"r1"}))


def test_no_document_sends_a_signature_elsewhere(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator names the buckets; a service that is down may be tried again."""
    elsewhere = {"s3": {"bucket": "large-values", "endpoint": "https://elsewhere.example"}}
    with pytest.raises(EngramError, match="is not that of the bucket"):
        storage.put(elsewhere, "default", "r1", "a", "k", 1)
    with pytest.raises(EngramError, match=r"names others, large-values"):
        storage.put({"s3": {"bucket": "mine"}}, "default", "r1", "a", "k", 1)
    monkeypatch.setenv("PERDURE_STORAGE_S3", "http://127.0.0.1:1/large-values")
    with pytest.raises(EngramError, match="does not answer") as down:
        storage.put({"s3": {"bucket": "large-values"}}, "default", "r1", "a", "k", 1)
    assert down.value.details == {"type": "storage_error", "exitClass": "retry"}
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(EngramError, match="AWS_SECRET_ACCESS_KEY"):
        storage.put({"s3": {"bucket": "large-values"}}, "default", "r1", "a", "k", 1)


SIGN = """
import datetime, json, sys
import botocore.auth, botocore.awsrequest, botocore.compat, botocore.credentials
given = json.load(sys.stdin)
moment = datetime.datetime(2026, 5, 17, 12, 30, 1, tzinfo=datetime.timezone.utc)
class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None): return moment
    @classmethod
    def utcnow(cls): return moment.replace(tzinfo=None)
class Module:
    datetime, timezone, timedelta = Fixed, datetime.timezone, datetime.timedelta
botocore.auth.datetime = Module if hasattr(botocore.auth.datetime, "timedelta") else Fixed
if hasattr(botocore.auth, "get_current_datetime"):
    botocore.auth.get_current_datetime = lambda remove_tzinfo=True: moment.replace(tzinfo=None)
keys = botocore.credentials.Credentials(given["access"], given["secret"], given["token"])
request = botocore.awsrequest.AWSRequest(given["method"], given["url"], data=given["body"].encode())
request.context["payload_signing_enabled"] = True
botocore.auth.S3SigV4Auth(keys, "s3", given["region"]).add_auth(request)
print(request.headers["Authorization"])
"""


@pytest.mark.parametrize(("method", "body", "token"), [("PUT", "some text", None), ("GET", "", "a-session")])
def test_requests_are_signed_as_botocore_signs_them(
    monkeypatch: pytest.MonkeyPatch, method: str, body: str, token: str | None
) -> None:
    install_moto()
    for name, value in {**KEYS, "AWS_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(name, value)
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    url = "https://s3.example:9000/large-values/default/r1/a%20b/%2Bk.json"
    at = datetime(2026, 5, 17, 12, 30, 1, tzinfo=UTC)
    keys = object_storage._keys_of_process()
    own = object_storage._signed(method, url, body.encode(), at, keys)["authorization"]
    access, secret = KEYS.values()
    request = {"method": method, "url": url, "body": body, "token": token, "region": "eu-central-1"}
    done = subprocess.run(
        [str(PYTHON), "-c", SIGN],
        input=json.dumps({**request, "access": access, "secret": secret}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == own, done.stderr


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    commands = CommandLine(tmp_path)
    yield commands
    commands.end_all()


def test_a_story_keeps_its_large_values_in_a_bucket(perdure: CommandLine, service: str) -> None:
    """Refused without the driver; with it, written by one step and given to the next, and its keys are told nowhere."""
    make_bucket(f"{service}/large-values")
    (perdure.folder / "story.yaml").write_text(STORY)
    (perdure.folder / "engrams.py").write_text(ENGRAMS)
    assert "needs an S3 driver" in perdure("check", "story.yaml", "--load", "engrams.py", code=7).out
    variables = {
        **KEYS,
        "PERDURE_STORAGE_S3": f"{service}/large-values",
        "PERDURE_STORY_SETTINGS": '{"storage.drivers": ["file", "s3"]}',
    }
    ended = perdure("run", "story.yaml", "--load", "engrams.py", "--json", code=0, stdin=None, **variables)
    assert ended.json["status"]["output"] == {"all": [0, 1, 2, 3]}
    run = ended.json["metadata"]["uid"]
    output = perdure("history", run, "--raw", code=0, stdin=None, **variables).out + ended.out
    assert "s3://large-values/default/" in output and KEYS["AWS_SECRET_ACCESS_KEY"] not in output


def test_a_script_is_an_object_of_a_bucket_that_the_operator_names(
    bucket: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-092: with the operator's keys, or with those of the task; never out of the bucket of shared values."""
    make_bucket(f"{service}/scripts")
    monkeypatch.setenv("PERDURE_SCRIPTS_S3", f"{service}/scripts")
    object_storage.write_object("PERDURE_SCRIPTS_S3", "s3://scripts/sql/make it.sql", b"select 1")
    script = Script("s3://scripts/sql/make it.sql", TextSource("s3", region="eu-central-1"))

    assert read_text(script) == read_text(Script(script.uri)) == "select 1"
    with pytest.raises(ProviderFailure, match="does not match `sha256`"):
        read_text(Script(script.uri, sha256="0" * 64))
    for uri, code in [("s3://scripts/none.sql", "NotFound"), ("s3://large-values/x", "Forbidden"), ("x.sql", "BadUrl")]:
        with pytest.raises(ProviderFailure) as refused:
            read_text(Script(uri, TextSource("s3")))
        assert refused.value.code == f"Provider.Call.ScriptSource.{code}"
    for name in KEYS:
        monkeypatch.delenv(name)
    with pytest.raises(ProviderFailure, match="AWS_ACCESS_KEY_ID"):
        read_text(script)
    auth = {"access_key_id": "AKIDOTHER", "secret_access_key": "of the task"}
    assert read_text(Script(script.uri, TextSource("s3", auth=auth))) == "select 1"
    with pytest.raises(ProviderFailure, match="lacks access_key_id"):
        read_text(Script(script.uri, TextSource("s3", auth={"token": "x"})))
