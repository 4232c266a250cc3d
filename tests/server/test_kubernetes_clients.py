"""Libraries of Kubernetes for Python, from the registry, in an environment of their own (issue 20)."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.kubectl import Kubectl
from tests.server.serving import Server

PACKAGES = ("kubernetes==37.0.2", "kr8s==0.20.15")
PLACE = Path(sys.prefix) / ".clients" / "kubernetes-37.0.2-kr8s-0.20.15"

OFFICIAL = """
from kubernetes import client, config, watch

config.load_kube_config("kubeconfig")
api, core = client.CustomObjectsApi(), client.CoreV1Api()
stories = ("bubustack.io", "v1alpha1", "default", "stories")
runs = ("runs.bubustack.io", "v1alpha1", "default", "storyruns")
spec = {"steps": [{"name": "ok", "type": "gate"}]}
body = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": "official"}, "spec": spec}
made = api.create_namespaced_custom_object(*stories, body)
request = {"metadata": {"generateName": "official-"}, "spec": {"storyRef": {"name": "official"}}}
head = {"apiVersion": "runs.bubustack.io/v1alpha1", "kind": "StoryRun"}
run = api.create_namespaced_custom_object(*runs, {**head, **request})["metadata"]["name"]
api.patch_namespaced_custom_object_status(*runs, run, {"status": {"gates": {"ok": {"state": "Approved"}}}})
selector = f"metadata.name={run}"
followed = watch.Watch().stream(api.list_namespaced_custom_object, *runs, timeout_seconds=60, field_selector=selector)
for event in followed:
    if event["object"]["status"]["phase"] == "Succeeded":
        break
made["spec"]["version"] = "2"
assert api.replace_namespaced_custom_object(*stories, "official", made)["metadata"]["generation"] == 2
try:
    api.replace_namespaced_custom_object(*stories, "official", made)
    raise SystemExit("a stale version was accepted")
except client.ApiException as refusal:
    assert refusal.status == 409
settings = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="official"), data={"a": "b"})
core.create_namespaced_config_map("default", settings)
assert core.read_namespaced_config_map("official", "default").data == {"a": "b"}
assert "default" in [item.metadata.name for item in core.list_namespace().items]
assert core.list_namespaced_event("default").items
assert client.VersionApi().get_code().git_version.startswith("v1.")
api.delete_namespaced_custom_object(*runs, run)
print(event["object"]["status"]["phase"])
"""

KR8S = """
import kr8s
from kr8s.objects import new_class

api = kr8s.api(kubeconfig="kubeconfig")
Story = new_class("Story", "bubustack.io/v1alpha1", namespaced=True, plural="stories")
StoryRun = new_class("StoryRun", "runs.bubustack.io/v1alpha1", namespaced=True)
where = {"namespace": "default"}
spec = {"steps": [{"name": "ok", "type": "gate"}]}
story = Story({"metadata": {"name": "short", **where}, "spec": spec}, api=api)
story.create()
story.label({"a": "b"})
story.refresh()
assert dict(story.labels) == {"a": "b"}
run = StoryRun({"metadata": {"generateName": "short-", **where}, "spec": {"storyRef": {"name": "short"}}}, api=api)
run.create()
run.patch({"status": {"gates": {"ok": {"state": "Approved"}}}}, subresource="status")
run.wait("condition=Ready", timeout=60)
run.refresh()
print(run.status.phase)
run.delete()
story.delete()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    _install()
    running = Server.start(tmp_path_factory.mktemp("clients"), "--tls", "auto")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def _install() -> None:
    """Skips the tests where the registry does not answer."""
    PLACE.parent.mkdir(exist_ok=True)
    with (PLACE.parent / "kubernetes-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (PLACE / "complete").exists():
            return
        subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True, capture_output=True, timeout=300)
        command = [str(PLACE / "bin" / "pip"), "install", "--quiet", "--retries", "1", *PACKAGES]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{PACKAGES} cannot be installed here in time")
        if done.returncode != 0:
            pytest.skip(f"{PACKAGES} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
        (PLACE / "complete").touch()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", [OFFICIAL, KR8S], ids=["kubernetes", "kr8s"])
def test_libraries_create_approve_and_wait(server: Server, program: str) -> None:
    config = Kubectl.of(server)
    done = subprocess.run(
        [str(PLACE / "bin" / "python"), "-W", "ignore", "-c", program],
        cwd=config.home,
        env={"HOME": str(config.home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Succeeded"]
