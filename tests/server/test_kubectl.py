"""Unmodified kubectl against a real server (SRV-060 to SRV-063): the lines that users of a cluster know."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.kubectl import RUN, STORY, Kubectl, needs_kubectl
from tests.server.serving import Server

pytestmark = needs_kubectl


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """kubectl sends its token over TLS only (SRV-060)."""
    folder = tmp_path_factory.mktemp("kubectl")
    key = folder / "key"
    key.write_text(base64.b64encode(bytes(32)).decode())
    key.chmod(0o600)
    running = Server.start(folder, "--tls", "auto", PERDURE_SECRETS_KEY_FILE=str(key))
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


@pytest.fixture(scope="module")
def kubectl(secure: Server) -> Kubectl:
    kubectl = Kubectl.of(secure)
    kubectl("apply", "-f", kubectl.write("story.yaml", STORY))
    return kubectl


def test_the_server_is_found_with_its_resources(kubectl: Kubectl) -> None:
    """SRV-060, SRV-063: aggregated discovery, with the short names and categories of the original."""
    assert "Server Version: v1.32" in kubectl("version")
    listed = {line.split()[0]: line for line in kubectl("api-resources", "--no-headers").splitlines()}
    assert listed["storyruns"].split() == ["storyruns", "srun", "runs.bubustack.io/v1alpha1", "true", "StoryRun"]
    assert listed["engramtemplates"].split()[-2:] == ["false", "EngramTemplate"]
    workflows = kubectl("api-resources", "--categories", "workflows", "-o", "name").split()
    assert workflows == ["stories.bubustack.io"]


def test_entries_are_applied_shown_changed_and_deleted(kubectl: Kubectl) -> None:
    """SRV-062: client-side apply, diff, every form of get, describe, label, annotate, edit, delete."""
    template = kubectl.write(
        "template.yaml",
        "apiVersion: catalog.bubustack.io/v1alpha1\nkind: EngramTemplate\nmetadata: {name: box}\n"
        "spec: {version: '1.0', supportedModes: [job], image: box}\n",
    )
    process = kubectl.start("apply", "-f", template)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "engramtemplate.catalog.bubustack.io/box created\n")
    assert "Warning: spec.image: these fields only apply to Kubernetes and are ignored" in err
    assert kubectl("apply", "-f", "story.yaml") == "story.bubustack.io/deploy unchanged\n"
    changed = kubectl.write("changed.yaml", STORY.replace("30m", "45m"))
    shown = kubectl("diff", "-f", changed, code=1)
    assert "+      timeout: 45m" in shown and "-  conditions:" not in shown
    bad = kubectl.write("bad.yaml", STORY.replace("deploy", "bad").replace("gate", "gaate"))
    refused = kubectl("apply", "-f", bad, code=1)
    assert refused.startswith('The Story "bad" is invalid') and "did you mean 'gate'?" in refused
    assert kubectl("apply", "-f", changed) == "story.bubustack.io/deploy configured\n"
    assert kubectl("diff", "-f", changed) == ""

    kubectl("label", "story", "deploy", "tier=one")
    kubectl("annotate", "story", "deploy", "note=kept")
    editor = kubectl.write("editor.sh", "#!/bin/sh\nsed -i 's/45m/50m/' \"$1\"\n")
    (kubectl.home / editor).chmod(0o755)
    assert kubectl("edit", "story", "deploy", KUBE_EDITOR=str(kubectl.home / editor)) == (
        "story.bubustack.io/deploy edited\n"
    )
    story = kubectl.json("get", "story", "deploy")
    metadata = story["metadata"]
    assert metadata["labels"] == {"team": "shop", "tier": "one"} and metadata["annotations"]["note"] == "kept"
    assert metadata["generation"] == 3 and story["status"]["validationStatus"] == "valid"
    assert story["spec"]["steps"][0]["with"]["timeout"] == "50m"

    wide = kubectl("get", "stories,engramtemplates", "-o", "wide")
    assert "NAME                        STEPS   STATUS   USAGE   TRIGGERS   AGE" in wide
    assert "DESCRIPTION   VERSION   USAGE   STATUS   AGE" in wide
    assert kubectl("get", "stories", "-l", "team in (shop),!old", "-o", "name") == "story.bubustack.io/deploy\n"
    assert kubectl("get", "stories", "-l", "team=other", "-o", "name") == ""
    assert kubectl("get", "stories", "--field-selector", "metadata.name=deploy", "-A", "-o", "name") != ""
    assert kubectl("get", "story/deploy", "-o", "jsonpath={.spec.steps[*].name}") == "approve done"
    columns = "custom-columns=N:.metadata.name,S:.status.stepsTotal"
    assert kubectl("get", "stories", "-o", columns).split() == ["N", "S", "deploy", "2"]
    assert "kind: Story" in kubectl("get", "story", "deploy", "-o", "yaml")
    assert "story.bubustack.io/deploy" in kubectl("get", "bubu")
    described = kubectl("describe", "story", "deploy")
    assert "Generation:          3" in described and "Events:" in described
    assert kubectl("delete", "-f", template) == 'engramtemplate.catalog.bubustack.io "box" deleted\n'
    assert 'engramtemplates.catalog.bubustack.io "box" not found' in kubectl("get", "etpl", "box", code=1)


def test_fields_have_managers_with_server_side_apply(kubectl: Kubectl) -> None:
    """SRV-062, SRV-079: conflicts name the field and its manager; force takes over; nothing new writes nothing."""
    text = STORY.replace("deploy", "managed").replace("spec:\n", "spec:\n  version: one\n", 1)
    first, second = (
        kubectl.write("first.yaml", text),
        kubectl.write("second.yaml", text.replace("version: one", "version: two")),
    )
    apply = ("apply", "--server-side", "-f")
    assert kubectl(*apply, first) == "story.bubustack.io/managed serverside-applied\n"
    before = kubectl.json("get", "story", "managed", "--show-managed-fields")["metadata"]
    kubectl(*apply, first)
    assert kubectl.json("get", "story", "managed", "--show-managed-fields")["metadata"] == before
    output = kubectl(*apply, second, "--field-manager", "other", code=1)
    assert 'conflicts with "kubectl": .spec.version' in output
    kubectl(*apply, second, "--field-manager", "other", "--dry-run=server", "--force-conflicts")
    assert kubectl.json("get", "story", "managed", "--show-managed-fields")["metadata"] == before
    assert "+  version: two" in kubectl("diff", "--server-side", "--force-conflicts", "-f", second, code=1)
    kubectl(*apply, second, "--field-manager", "other", "--force-conflicts")
    story = kubectl.json("get", "story", "managed", "--show-managed-fields")
    owners = {item["manager"]: item["fieldsV1"] for item in story["metadata"]["managedFields"]}
    assert story["spec"]["version"] == "two" and owners["other"]["f:spec"] == {"f:steps": {}, "f:version": {}}
    assert owners["kubectl"]["f:spec"] == {"f:steps": {}}
    client = kubectl.write("client.yaml", STORY.replace("deploy", "client"))
    kubectl("apply", "-f", client)
    kubectl(*apply, kubectl.write("again.yaml", STORY.replace("deploy", "client").replace("30m", "35m")))
    story = kubectl.json("get", "story", "client", "--show-managed-fields")
    assert story["spec"]["steps"][0]["with"]["timeout"] == "35m"  # what the client applied before is taken over
    names = {item["manager"] for item in story["metadata"]["managedFields"]}
    assert "kubectl" in names and "kubectl-client-side-apply" not in names


def test_what_is_wrong_is_told_where_it_is(kubectl: Kubectl) -> None:
    """SRV-061: reasons of Kubernetes; admission is the one that all interfaces have."""
    wrong = kubectl.write("wrong.yaml", STORY.replace("type: gate", "type: gata").replace("deploy", "wrong"))
    output = kubectl("apply", "-f", wrong, code=1)
    assert 'The Story "wrong" is invalid: ' in output
    assert "spec.steps[0].type" in output and "gata" in output
    assert 'stories.bubustack.io "wrong" not found' in kubectl("get", "story", "wrong", code=1)
    assert "(AlreadyExists)" in kubectl("create", "-f", "story.yaml", code=1)
    story = kubectl.json("get", "story", "deploy")
    story["metadata"]["resourceVersion"] = "1"
    stale = kubectl.write("stale.json", json.dumps({**story, "spec": {**story["spec"], "version": "2"}}))
    kubectl("annotate", "story", "deploy", "--overwrite", "seen=1")
    assert "(Conflict)" in kubectl("replace", "-f", stale, code=1)


def test_explain_knows_the_fields_of_a_story(kubectl: Kubectl) -> None:
    output = kubectl("explain", "story.spec.steps")
    assert "FIELD: steps <[]Object>" in output and "Steps of the main graph." in output
    assert "allowFailure\t<boolean>" in output and "needs\t<[]string>" in output
    assert "ENUM:\n    condition\n" in kubectl("explain", "story.spec.steps.type")
    for kind, field in (("storyrun", "cancelRequested"), ("engram", "templateRef"), ("configmap", "binaryData")):
        assert f"{field}\t<" in kubectl("explain", kind, "--recursive"), kind
    assert "ENUM:\n    Approved\n" in kubectl("explain", "storyrun.status.gates.state")


def test_a_dry_run_of_any_verb_changes_nothing(kubectl: Kubectl) -> None:
    """SRV-061: asked of the server by each verb of kubectl that has it."""
    before = kubectl("get", "stories,storyruns,configmaps", "-o", "yaml")
    dry = "--dry-run=server"
    assert "created (server dry run)" in kubectl("create", dry, "-f", kubectl.write("dry-run.yaml", RUN))
    new = kubectl.write("dry.yaml", STORY.replace("deploy", "dry"))
    assert "created (server dry run)" in kubectl("apply", dry, "-f", new)
    assert "serverside-applied (server dry run)" in kubectl("apply", dry, "--server-side", "-f", new)
    assert "(server dry run)" in kubectl("label", dry, "story", "deploy", "dry=yes")
    kubectl("patch", dry, "story", "deploy", "--type=merge", "-p", '{"spec":{"version":"9"}}')
    assert "(server dry run)" in kubectl("create", dry, "configmap", "dry", "--from-literal=a=b")
    assert "(server dry run)" in kubectl("delete", dry, "story", "deploy")
    assert kubectl("get", "stories,storyruns,configmaps", "-o", "yaml") == before


def reach(kubectl: Kubectl, run: str, phase: str) -> Any:
    """The run, once it is in this phase."""
    kubectl("wait", f"--for=jsonpath={{.status.phase}}={phase}", f"storyrun/{run}", "--timeout=60s")
    return kubectl.json("get", "storyrun", run)


def test_a_run_is_created_approved_redriven_cancelled_and_deleted(kubectl: Kubectl) -> None:
    """SRV-062, SRV-074: the seed's own line approves; spec is immutable but for cancelRequested (STY-049)."""
    created = kubectl("create", "-f", kubectl.write("run.yaml", RUN))
    assert created.startswith("storyrun.runs.bubustack.io/deploy-") and created.endswith(" created\n")
    run = created.split()[0].partition("/")[2]
    assert "STORY    PHASE     DURATION   AGE" in kubectl("get", "storyruns")
    approval = '{"status":{"gates":{"approve":{"state":"Approved","message":"ok"}}}}'
    follower = kubectl.start("get", "storyruns", "-w", "-o", "jsonpath={.metadata.name} {.status.phase}{'\\n'}")
    assert follower.stdout is not None and follower.stdout.readline() == f"{run} Running\n"
    waiting = kubectl.start("wait", "--for=condition=Ready", f"storyrun/{run}", "--timeout=60s")
    patched = kubectl("patch", "storyrun", run, "--type", "merge", "--subresource", "status", "-p", approval)
    assert patched == f"storyrun.runs.bubustack.io/{run} patched\n"
    gate = kubectl.json("get", "storyrun", run)["status"]["gates"]["approve"]
    assert (gate["state"], gate["message"]) == ("Approved", "ok") and gate["updatedBy"].startswith("kubectl-")

    assert waiting.communicate(timeout=120)[0] == f"storyrun.runs.bubustack.io/{run} condition met\n"
    while (line := follower.stdout.readline()) != f"{run} Succeeded\n":
        assert line == f"{run} Running\n"
    follower.kill()
    follower.communicate()
    kubectl("label", "storyrun", run, "kept=yes", "who-")
    kubectl("annotate", "storyrun", run, "note=after its end")
    shown = reach(kubectl, run, "Succeeded")
    assert shown["metadata"]["annotations"] == {"note": "after its end"}
    assert kubectl("get", "storyruns", "-l", "kept=yes,!who", "-o", "name") == f"storyrun.runs.bubustack.io/{run}\n"

    kubectl("annotate", "storyrun", run, "storyrun.bubustack.io/redrive-token=T")
    reach(kubectl, run, "Running")
    reasons = kubectl("get", "events", "-o", "jsonpath={.items[*].reason}", "--field-selector", "type=Normal")
    assert "GateDecided" in reasons.split() and "StoryrunMetadata" in reasons.split()
    assert "GateDecided" in kubectl("describe", "storyrun", run)
    output = kubectl("patch", "storyrun", run, "--type", "merge", "-p", '{"spec":{"inputs":{"a":1}}}', code=1)
    assert "spec is immutable, except that cancelRequested may be set to true" in output
    kubectl("patch", "storyrun", run, "--type", "merge", "-p", '{"spec":{"cancelRequested":true}}')
    reach(kubectl, run, "Finished")
    assert kubectl("delete", "storyrun", run) == f'storyrun.runs.bubustack.io "{run}" deleted\n'
    assert "not found" in kubectl("get", "storyrun", run, code=1)


def test_roles_and_namespaces_are_those_of_the_token(secure: Server, kubectl: Kubectl) -> None:
    """SRV-022: what a token may not see does not exist; what its role lacks is Forbidden."""
    viewer = Kubectl.of(secure, "--role", "viewer", "--namespace", "shop", name="viewer")
    assert "No resources found" in viewer.start("get", "stories").communicate(timeout=120)[1]
    assert "(Forbidden)" in viewer("apply", "-f", "story.yaml", code=1)
    assert "(NotFound)" in viewer("get", "stories", "-n", "default", code=1)
    assert viewer("get", "stories", "-A", "-o", "name") == ""
    Path(viewer.config).write_text(viewer.config.read_text().replace("token: pdr_", "token: wrong_"))
    assert "You must be logged in" in viewer("get", "stories", code=1)


def test_core_kinds_and_rights(secure: Server, kubectl: Kubectl) -> None:
    """SRV-061, SRV-077: kinds whose bodies kubectl sends as protocol buffers; `auth can-i` and `whoami`."""
    assert kubectl("create", "namespace", "core") == "namespace/core created\n"
    kubectl("create", "configmap", "limits", "--from-literal=most=5", "-n", "core")
    kubectl("create", "secret", "generic", "mail", "--from-literal=password=planted-by-kubectl", "-n", "core")
    assert kubectl.json("get", "configmap", "limits", "-n", "core")["data"] == {"most": "5"}
    assert kubectl.json("get", "secret", "mail", "-n", "core")["data"] == {"password": ""}
    uses = STORY[: STORY.index("spec:")].replace("deploy", "uses") + (
        "spec:\n  steps:\n  - {name: s, ref: {name: echo}, with: {said: {$bubuSecretRef: 'mail:password'},"
        " most: {$bubuConfigMapRef: 'limits:most'}}}\n"
    )
    kubectl("apply", "-n", "core", "-f", kubectl.write("uses.yaml", uses))
    kubectl("create", "-n", "core", "-f", kubectl.write("uses-run.yaml", RUN.replace("deploy", "uses")))
    kubectl("wait", "-n", "core", "--for=condition=Ready", "stepruns", "--all", "--timeout=60s")
    output = kubectl("get", "-n", "core", "stepruns", "-o", "jsonpath={.items[*].status.output}")
    assert '"most":"5"' in output and "planted-by-kubectl" not in output and "said" in output
    kubectl("delete", "-n", "core", "storyruns,stories", "--all")
    assert kubectl("auth", "can-i", "create", "stories") == "yes\n"
    assert "Username     kubectl-" in kubectl("auth", "whoami")
    operator = Kubectl.of(secure, "--role", "operator", name="operator")
    assert operator("auth", "can-i", "create", "storyruns") == "yes\n"
    assert operator("auth", "can-i", "create", "stories", code=1).startswith("no")
    assert "storyruns.runs.bubustack.io" in operator("auth", "can-i", "--list")
    assert "(Conflict)" in kubectl("delete", "namespace", "core", code=1)
    kubectl("delete", "configmap,secret", "--all", "-n", "core")
    assert kubectl("delete", "namespace", "core") == 'namespace "core" deleted\n'


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "from-kubernetes.md"


def test_the_guide_does_what_it_says(kubectl: Kubectl, tmp_path: Path) -> None:
    """Every command of the page, with its files, in its order."""
    text = GUIDE.read_text()
    for name, content in re.findall(r"`([\w.]+)`:\n\n```yaml\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content)
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubectl.config)}
    done = subprocess.run(
        ["bash", "-e"],
        input=lines,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    for line in ("story.bubustack.io/release created", "valid", "condition met", "Succeeded", "GateDecided", "yes"):
        assert line in done.stdout, (line, done.stdout)
    assert "change-me" not in done.stdout and '{"password":""}' in done.stdout
