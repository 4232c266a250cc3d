"""Namespaces on the command line: `-n`, `-A`, `PERDURE_NAMESPACE` (SRV-005, SRV-009)."""

import pytest
from tests.cli.commandline import CommandLine

FLOW = """{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "end",
 "steps": {"end": {"action": "Return", "value": "WORD"}}}"""


OUTER = """apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: outer}
spec: {steps: [{name: call, type: executeStory, with: {storyRef: {name: inner}}},
  {name: flow, type: executeStory, with: {documentRef: {language: flow, name: word}}}]}
"""
INNER = """apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: inner}
spec: {steps: [{name: a, ref: echo}]}
"""
IMPULSE = """apiVersion: bubustack.io/v1alpha1
kind: Impulse
metadata: {name: hourly}
spec: {templateRef: {name: cron}, documentRef: {language: flow, name: word},
  with: {schedules: [{name: h, cron: "0 * * * *"}]}}
"""


def test_a_run_is_started_found_and_steered_in_its_namespace(
    perdure: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = perdure.drill({"signal": "go", "save": "x"}, name="waits")
    here = perdure.here("run", waits, "--detach").out.strip()
    shop = perdure.here("run", waits, "--detach", "-n", "shop").out.strip()
    monkeypatch.setenv("PERDURE_NAMESPACE", "ops")
    third = perdure.here("run", waits, "--detach").out.strip()

    def listed(*words: str) -> dict[str, str]:
        return {row["id"]: row["namespace"] for row in perdure.here("ps", "--json", *words).json}

    assert listed() == {third: "ops"}
    assert listed("-A") == {here: "default", shop: "shop", third: "ops"}
    assert listed("-n", "shop") == {shop: "shop"}
    assert perdure.here("cancel", "--all", "--dry-run", "--json").json["ids"] == [third]
    perdure.here("cancel", code=2)
    monkeypatch.setenv("PERDURE_NAMESPACE", "No_Label")
    assert "PERDURE_NAMESPACE" in perdure.here("ps", code=2).err
    monkeypatch.delenv("PERDURE_NAMESPACE")

    assert len(listed()) == 3
    assert "NAMESPACE" in perdure.here("ps", "-A").out and "NAMESPACE" not in perdure.here("ps").out
    assert perdure.here("cancel", "-n", "shop", "--dry-run", "--json").json["ids"] == [shop]
    assert "there is no run" in perdure.here("cancel", shop, "-n", "ops", code=8).err
    perdure.here("cancel", shop, "-n", "shop")
    assert "is not a namespace" in perdure("run", waits, "-n", "No_Label", code=2).err


def test_documents_of_the_catalog_are_run_in_their_namespace(perdure: CommandLine) -> None:
    for namespace in ("default", "shop"):
        (perdure.folder / "word.json").write_text(FLOW.replace("WORD", namespace))
        perdure.here("apply", "-f", "word.json", "-n", namespace)
    (perdure.folder / "word.json").unlink()
    assert perdure.here("run", "word").out.strip() == "default"
    assert perdure.here("run", "word", "-n", "shop").out.strip() == "shop"
    assert "in namespace 'ops'" in perdure.here("run", "word", "-n", "ops", code=8).err
    table = perdure.here("get", "flows", "-A").out
    assert "shop" in table and "default" in table
    perdure.here("delete", "flow", "word", "-n", "shop")
    assert perdure.here("run", "word").out.strip() == "default"


@pytest.mark.parametrize("namespace", ["default", "shop"])
def test_documents_that_are_applied_together_find_each_other_in_their_namespace(
    perdure: CommandLine, namespace: str
) -> None:
    texts = {"outer.yaml": OUTER, "inner.yaml": INNER, "impulse.yaml": IMPULSE, "word.json": FLOW}
    for name, text in texts.items():
        (perdure.folder / name).write_text(text)
    files = [word for name in texts for word in ("-f", name)]

    assert perdure.here("apply", *files, "-n", namespace).err == ""
    missing = perdure.here("apply", "-f", "impulse.yaml", "-n", "elsewhere").err
    assert "there is no flow.mwl.dev/word in namespace 'elsewhere' yet" in missing
