"""Documents of every language, sound and unsound, and what is found in each (ANA-001 to ANA-009)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.analysis.soundness import find_defects
from perdure.analysis.state_space import StateSpace
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.validation import ValidationContext
from perdure.kernel.graphs.net import Certainty, DefectKind, Net
from perdure.providers.context import TaskContext
from perdure.providers.registry import Registry
from perdure.wiring import languages

CORPUS = Path(__file__).parent / "corpus"
PROVIDERS = Registry()
LANGUAGES = languages(providers=PROVIDERS)


@PROVIDERS.provider("charge", side_effects=True)
def charge(amount: int = 0, idempotency_key: str = "") -> int:
    return amount


@PROVIDERS.provider("charge-by-key", side_effects=True)
def charge_by_key(context: TaskContext, amount: int = 0) -> int:
    return amount


@PROVIDERS.provider("book")  # it says nothing of side effects
def book(amount: int = 0) -> int:
    return amount


Case = dict[str, Any]


def _provider(value: Any, kind: str = "call") -> Any:
    """Short names of providers in the corpus, written in full."""
    if isinstance(value, list):
        return [_provider(item, kind) for item in value]
    if not isinstance(value, dict):
        return value
    full = {name: _provider(member, "middleware" if name == "middleware" else "call") for name, member in value.items()}
    if isinstance(value.get("provider"), str):
        owner = "mwl" if value["provider"] in ("mock", "loop", "retry", "timeout", "finally") else "perdure"
        full["provider"] = f"mwl:provider.{kind}/{owner}/{value['provider']}/v1"
    return full


def _flow(case: Case) -> str:
    members = {name: member for name, member in case.items() if name not in ("name", "found")}
    first = next(iter(case["steps"]))
    return json.dumps(
        {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": first, **_provider(members)}, indent=1
    )


def _playbook(case: Case) -> str:
    policy = dict(case.get("policy", {}))
    if "timeout" in case:
        policy["lifecycle"] = {"timeout_s": case["timeout"]}
    final = {"final_step": policy.pop("final_step")} if "final_step" in policy else {}
    errors = {"no_next_is_error": policy.pop("no_next_is_error")} if "no_next_is_error" in policy else {}
    document = {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": "tested", "path": "tests/tested"},
        "executor": {"requires": {"features": ["cursor"]}, "spec": {"policy": policy, **final, **errors}},
        "workflow": case["workflow"],
    }
    return yaml.safe_dump(document, sort_keys=False)


def _story(case: Case) -> str:
    specs = {"tested": case["spec"], **case.get("stories", {})}
    documents = [
        {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    ]
    return yaml.safe_dump_all(documents, sort_keys=False)


WRITERS = {"flow": ("flows", _flow), "playbook": ("playbooks", _playbook), "story": ("stories", _story)}


def _cases() -> Iterator[Any]:
    for language, (file, _) in WRITERS.items():
        for case in yaml.safe_load((CORPUS / f"{file}.yaml").read_text()):
            yield pytest.param(language, case, id=f"{language}: {case['name']}")


CASES = list(_cases())


def net_of(language: Dialect, text: str) -> tuple[Net, Any]:
    validated = language.parse(text.encode(), ValidationContext(chosen="tested"))
    assert validated.program is not None, validated.problems
    net = language.net(validated.program)
    assert net is not None
    return net, validated.program


@pytest.mark.parametrize(("language", "case"), CASES)
def test_what_is_wrong_is_found_and_nothing_else(language: str, case: Case) -> None:
    text = WRITERS[language][1](case)
    net, program = net_of(LANGUAGES[language], text)
    defects = find_defects(net)

    lines = [f"{defect.kind} {defect.certainty} {'null' if defect.step is None else defect.step}" for defect in defects]
    assert sorted(lines) == sorted(case["found"])
    places = LANGUAGES[language].find_places(text.encode(), program, [defect.place for defect in defects])
    for defect, (path, line) in zip(defects, places, strict=True):
        assert path and line is not None and 1 <= line <= text.count("\n") + 1
        assert defect.message and defect.hint


def test_the_corpus_has_every_kind_of_finding() -> None:
    """ANA-002, ANA-007; `undecided` has tests of its own, because it takes a large document."""
    kinds = {line.partition(" ")[0] for parameter in CASES for line in parameter.values[1]["found"]}

    assert {kind.value for kind in DefectKind} - kinds == {DefectKind.UNDECIDED.value}


@pytest.mark.parametrize(("language", "case"), CASES)
def test_a_defect_is_reported_once(language: str, case: Case) -> None:
    """ANA-007: kinds do not overlap, and what *will* happen is of a kind that can be certain (ANA-008)."""
    defects = find_defects(net_of(LANGUAGES[language], WRITERS[language][1](case))[0])

    assert len({(defect.step, defect.place) for defect in defects}) == len(defects)
    never_certain = {DefectKind.TIMEOUT_INVERTED, DefectKind.EFFECT_UNKEYED, DefectKind.UNDECIDED}
    assert not never_certain & {defect.kind for defect in defects if defect.certainty is Certainty.WILL}


def test_the_corpus_has_enough_of_each() -> None:
    sound = [case for parameter in CASES if not (case := parameter.values[1])["found"]]

    assert len(CASES) >= 80 and len(sound) >= 30


@pytest.mark.parametrize(("language", "case"), CASES)
def test_partial_order_reduction_loses_nothing(language: str, case: Case) -> None:
    """The same ends, and the same use of every part, as when every order is explored (ANA-004)."""
    net, _ = net_of(LANGUAGES[language], WRITERS[language][1](case))
    reduced, whole = StateSpace(net, most_states=3_000), StateSpace(net, most_states=3_000, reduces=False)
    if not whole.is_complete or whole.growing or reduced.growing:
        return

    assert {reduced.markings[state] for state in reduced.last} == {whole.markings[state] for state in whole.last}


def test_a_limit_is_told_and_makes_nothing_certain() -> None:
    """Beyond the limit a document is not decided, never silently sound (ANA-004, ANA-008)."""
    case = next(parameter.values[1] for parameter in CASES if parameter.values[1]["name"] == "for ever")
    net, _ = net_of(LANGUAGES["flow"], _flow(case))
    (undecided,) = find_defects(net, most_states=2)

    assert (undecided.kind, undecided.certainty, undecided.step) == ("undecided", Certainty.MAY, None)
    assert "2 states" in undecided.message


def test_a_trace_is_a_run_from_the_entry() -> None:
    """ANA-003, ANA-005"""
    case = next(parameter.values[1] for parameter in CASES if parameter.values[1]["name"] == "data may end it")
    net, _ = net_of(LANGUAGES["flow"], _flow(case))
    (loop,) = find_defects(net)

    assert loop.trace == (("a", "goes on"), ("m", "vars.again"))


def test_two_hundred_steps_take_few_states() -> None:
    """In a row and side by side (ANA-004)."""
    row = {
        f"s{number}": {"action": "Call", "call": {"provider": "echo"}, "next": f"s{number + 1}"}
        for number in range(200)
    }
    flow, _ = net_of(LANGUAGES["flow"], _flow({"steps": {**row, "s200": {"action": "Return"}}}))
    wide = {"steps": [{"name": f"s{number}", "ref": {"name": "e"}} for number in range(98)]}
    wide["steps"] += [{"name": "g", "type": "gate"}, {"name": "w", "type": "wait", "with": {"until": "false"}}]
    story, _ = net_of(LANGUAGES["story"], _story({"spec": wide}))
    arcs = [{"step": f"s{number}"} for number in range(1, 100)]
    fork = [{"step": "s0", "tool": {"kind": "noop"}, "next": {"spec": {"mode": "inclusive"}, "arcs": arcs}}]
    fork += [{"step": arc["step"], "tool": {"kind": "python", "code": "result = 1"}} for arc in arcs]
    playbook, _ = net_of(LANGUAGES["playbook"], _playbook({"workflow": fork}))

    for net in (flow, story, playbook):
        space = StateSpace(net, most_states=20_000)
        assert space.is_complete, len(space.markings)
