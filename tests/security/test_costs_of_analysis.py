"""`check` looks at all that may happen in runs of a document, within bounds whatever the document says (ANA-004)."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from typing import Any

import pytest

from perdure.analysis.soundness import find_defects
from perdure.dialects.story.views.net import truth
from perdure.expressions.mwl.condition_analysis import rounds_of
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.validation import ValidationContext
from perdure.kernel.graphs.net import DefectKind, Net
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND, TurnBudget
from perdure.views.resources import soundness_findings
from perdure.views.resources.document_check import CheckedDocument
from perdure.views.resources.soundness_findings import with_findings
from perdure.wiring import languages

LANGUAGES = languages()
NOOP = "tool: [{name: t, kind: noop}]"


def playbook(*steps: str) -> str:
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a}\nworkflow:\n"
    return head + "".join(f"- {{{step}, {NOOP}}}\n" for step in steps)


def dead_steps(count: int) -> str:
    return playbook("step: start", *(f"step: d{index}" for index in range(count)))


def parsed(language: str, text: str) -> tuple[Dialect, Any]:
    validated = LANGUAGES[language].parse(text.encode(), ValidationContext())
    assert validated.program is not None, validated.problems
    return LANGUAGES[language], validated.program


def counted_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """The arguments with which a function is called from now on."""
    calls: list[Any] = []
    function = resolve_name(name)

    def call(argument: Any) -> Any:
        calls.append(argument)
        return function(argument)

    monkeypatch.setattr(name, call)
    return calls


def work_of(action: Callable[[], Any]) -> int:
    """How much counted work it does."""
    plenty = 10**15
    with TurnBudget(plenty) as budget:
        action()
    return plenty - budget.left


def test_the_ways_of_a_join_are_counted_before_they_are_made() -> None:
    """There are 10^17 ways in which half of sixty branches can come first."""
    names = [f"p{index}" for index in range(60)]
    arcs = ", ".join(f"{{step: {name}}}" for name in names)
    branches = (f"step: {name}, next: {{arcs: [{{step: j}}]}}" for name in names)
    join = f"step: j, spec: {{join: {{mode: n, n: 30, from: [{', '.join(names)}]}}}}"
    language, program = parsed(
        "playbook", playbook(f"step: start, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}", *branches, join)
    )

    net = language.net(program)

    assert net is not None and len(net.transitions) < 2_000


def test_a_document_is_read_once_for_all_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Playbook of a thousand steps that never run was read a thousand times, for a minute."""
    text = dead_steps(1_000)
    language, program = parsed("playbook", text)
    reads = counted_calls(monkeypatch, "perdure.dialects.playbook.document.reader.read_document")

    checked = asyncio.run(with_findings(CheckedDocument("a.yaml", text.encode(), [], program, language=language)))

    assert len(reads) == 1
    assert len(checked.findings) == soundness_findings.MOST_FINDINGS + 1
    assert checked.certain == soundness_findings.MOST_FINDINGS
    assert "800 more findings" in checked.findings[-1].defect.message
    assert [finding.line for finding in checked.findings[:2]] == [6, 7]


def test_places_in_a_flow_are_found_with_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {name: {"action": "Return"} for name in "abc"}
    schema = "https://mwl.dev/v0.1/flow/schema.json"
    text = json.dumps({"$schema": schema, "entrypoint": "a", "steps": steps}, indent=1)
    language, program = parsed("flow", text)
    reads = counted_calls(monkeypatch, "perdure.dialects.flow.document.reader.jsontext.decode")

    places = list(language.find_places(text.encode(), program, [("steps", "b"), ("steps", "c")]))

    assert [line for _, line in places] == [8, 11]
    assert len(reads) == 1


def test_steps_that_never_run_are_explained_in_proportion_to_their_number() -> None:
    """Each of them was compared with everything: a hundred times the work for ten times the steps."""
    counted = {}
    for count in (100, 1_000):
        net = Net()
        whole = net.part(None)
        before, nowhere = net.place(), net.place()
        for _ in range(count):
            part = net.part("s", never=DefectKind.DEAD_STEP, message="never")
            after = net.place(part)
            net.add(part, "", (before, nowhere), (after,))
            before = after
        net.add(whole, "", (0,), ())
        counted[count] = work_of(partial(find_defects, net))

    assert counted[1_000] < 20 * counted[100]


def test_constants_are_evaluated_with_a_small_budget() -> None:
    """A Story of two hundred bytes kept a server from everything else for a second."""
    endless = "{{ $l := splitList `` (printf `%900d` 1) }}{{ range $l }}{{ range $l }}{{ end }}{{ end }}true"
    assert truth(endless) is None
    assert work_of(lambda: truth(endless)) < 10 * STEPS_PER_MILLISECOND
    assert truth("{{ eq 1 1 }}") is True

    ten = "[1,2,3,4,5,6,7,8,9,10]"
    dear = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, middleware.metadata.iteration < 10000.0)))"
    roots, counter = frozenset({"middleware"}), ("middleware", "metadata", "iteration")
    assert rounds_of(dear, roots, counter) is None
    assert work_of(lambda: rounds_of(dear, roots, counter)) < 100 * STEPS_PER_MILLISECOND
    assert rounds_of("middleware.metadata.iteration < 900.0", roots, counter) == 899


def test_what_takes_too_long_is_said_to_be_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness_findings, "LONGEST", -1.0)
    text = dead_steps(3)
    language, program = parsed("playbook", text)

    checked = asyncio.run(with_findings(CheckedDocument("a.yaml", text.encode(), [], program, language=language)))

    assert [finding.defect.kind for finding in checked.findings] == [DefectKind.UNDECIDED]
    assert "could not be determined" in checked.findings[0].defect.message


def test_flows_that_call_each_other_very_deep_are_undecided() -> None:
    depth = 200
    call = {"action": "Call", "next": "z"}
    end = {"z": {"action": "Return"}}
    flows = {
        f"f{index}": {"entrypoint": "a", "steps": {"a": {**call, "call": {"flow": f"f{index + 1}"}}, **end}}
        for index in range(depth)
    }
    flows[f"f{depth}"] = {"entrypoint": "z", "steps": end}
    first = {"a": {**call, "call": {"flow": "f0"}}, **end}
    schema = "https://mwl.dev/v0.1/flow/schema.json"
    text = json.dumps({"$schema": schema, "entrypoint": "a", "steps": first, "flows": flows})
    language, program = parsed("flow", text)

    checked = asyncio.run(with_findings(CheckedDocument("a.json", text.encode(), [], program, language=language)))

    assert {finding.defect.kind for finding in checked.findings} <= {DefectKind.UNDECIDED}
