"""Secrets in the input of a run: the run keeps its input, and no view of it shows them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

TOKEN = 'pa55 "w0rd"\\of-the-shöp'
PASSWORD = "s3cret-of-the-user"
CLIENT = "client-s3cret-42"


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


GIVEN: dict[str, Any] = {
    "token": TOKEN,
    "creds": {"username": "ada-the-user", "password": PASSWORD},
    "city": "Lima-the-city",
    "client": CLIENT,
    "host": "shop.invalid",
}

DOCUMENT = playbook("""
workload: {token: none, city: Oslo}
keychain:
  - {name: shop, kind: bearer, token: "Bearer {{ workload.token }}"}
  - {name: user, kind: basic, username: "{{ workload.creds.username }}", password: "{{ workload.creds.password }}"}
  - {name: key, kind: api_key, value: "{{ workload['client'] }}", header: "{{ workload.host }}"}
workflow:
  - step: a
    tool:
      - echo: {kind: noop, result: {all: "{{ workload }}", text: "is {{ workload.token }}!"}}
      - fails:
          kind: python
          args: {t: "{{ workload.token }}", p: "{{ workload.creds.password }}"}
          code: raise ValueError("no " + t + " " + p)
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome.error.message }} {{ workload.client }}"}}}}]}}
      - named: {kind: shell, cmds: "echo {{ workload.token | tojson }} {{ workload.city }}"}
    next: {arcs: [{step: END}]}
  - {step: good, tool: {kind: noop, result: "{{ workload.token }} {{ workload.city }}"}}
  - {step: bad, tool: {kind: python, args: {t: "{{ workload.token }}"}, code: "raise KeyError(t)"}}
""")  # noqa: E501


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("end", "code"), [("good", 0), ("bad", 3)])
@pytest.mark.parametrize("is_json", [True, False])
def test_what_a_request_confides_is_shown_nowhere(perdure: CommandLine, end: str, code: int, is_json: bool) -> None:
    """PBK-185: by every verb, in the words of every task, also in failures; what is no secret stays readable."""
    (perdure.folder / "book.yaml").write_text(DOCUMENT.replace("END", end))
    how = ["--json"] if is_json else []
    done = perdure("run", "book.yaml", "--input", json.dumps(GIVEN), *how, "-vv", code=code)
    (row,) = perdure.here("ps", "--json", "--all").json
    run = row["id"]
    views = [
        *(("show", run), ("show", run, "--json"), ("status", run), ("status", run, "--json"), ("ps", "--all")),
        *(("history", run, "--full"), ("history", run, "--json"), ("history", run, "--raw", "--json")),
        *(("history", run, "--raw", "--full"), ("result", "get", run)),
    ]
    output = {view: perdure.here(*view) for view in views if view[0] != "result" or end == "good"}
    texts = {"run": done.out + done.err} | {" ".join(view): item.out + item.err for view, item in output.items()}

    for secret in (TOKEN, PASSWORD, CLIENT):
        forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
        assert [name for name, text in texts.items() if any(form in text for form in forms)] == []
    shown = output["show", run, "--json"].json
    assert shown["ctx"]["seen"].startswith("no [redacted] [redacted]") and shown["ctx"]["seen"].endswith(" [redacted]")
    history = output["history", run, "--json"].out
    assert "Lima-the-city" in history and "ada-the-user" in history and "shop.invalid" in history
    if end == "good":
        assert shown["result"] == "[redacted] Lima-the-city"


def test_effects_and_words_that_wait_do_not_show_it(perdure: CommandLine) -> None:
    """PBK-185: what a task has done with it, and what somebody says of it while nobody drives the run."""
    (perdure.folder / "shop.py").write_text(
        "import os, perdure\n\n"
        "@perdure.provider('pay')\n"
        "def pay(token, context):\n"
        "    context.effect_once('paid', lambda: {'with': token})\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    (perdure.folder / "book.yaml").write_text(
        playbook("""
keychain: [{name: shop, kind: bearer, token: "{{ workload.token }}"}]
workflow: [{step: a, tool: {kind: pay, token: "{{ workload.token }}"}}]
""")
    )
    perdure("run", "book.yaml", "--load", "shop.py", "--input", json.dumps({"token": PASSWORD}), code=-9)
    (row,) = perdure.here("ps", "--json", "--all").json
    perdure(
        "patch", row["id"], "--ctx", json.dumps({"note": PASSWORD}), "--reason", f"it is {PASSWORD}", "--by", PASSWORD
    )
    views = (("effects",), ("effects", "--json"), ("show",), ("show", "--json"), ("status", "--json"))
    texts = {view: perdure.here(view[0], row["id"], *view[1:]).out for view in views}
    texts["ps",] = perdure.here("ps", "--all").out
    texts["ps", "--json"] = perdure.here("ps", "--all", "--json").out

    assert [view for view, text in texts.items() if PASSWORD in text] == []
    (effect,) = json.loads(texts["effects", "--json"])
    assert effect["result"] == {"with": "[redacted]"}
    assert "pending" in texts["show", "--json"] and "[redacted]" in texts["ps", "--json"]


def test_a_child_is_as_discreet_about_what_its_caller_shares(perdure: CommandLine) -> None:
    """PBK-201: the entry goes to the child with the values that it reads."""
    child = playbook("""
workflow:
  - step: a
    tool: {kind: shell, cmds: "printf %s $T | wc -c", env: {T: "{{ keychain.shop.token }}"}}
""")
    parent = playbook("""
keychain: [{name: shop, kind: bearer, scope: shared, token: "{{ workload.token }}"}]
workflow:
  - {step: a, tool: {kind: playbook, path: child}}
""")
    (perdure.folder / "child.yaml").write_text(
        child.replace("name: test, path: tests/test", "name: child, path: child")
    )
    (perdure.folder / "book.yaml").write_text(parent)
    perdure("apply", "-f", "child.yaml")
    perdure("run", "book.yaml", "--input", json.dumps({"token": PASSWORD}), "--json")

    for row in perdure.here("ps", "--json", "--all").json:
        for view in (("show",), ("history",), ("history", "--raw")):
            verb, *how = view
            assert PASSWORD not in perdure.here(verb, row["id"], *how, "--json").out, (row["name"], view)
