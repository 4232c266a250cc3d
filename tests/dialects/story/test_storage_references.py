"""Values too large for a StepRun: shown as references, bottom-up, which can be resolved (STY-219, STY-221)."""

from typing import Any

import pytest

from perdure.dialects.story.values.storage_addresses import StorageAddress, offloaded
from perdure.kernel.errors import ReferenceNotAvailable
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import MissingValues
from tests.dialects.story.world import World

RUN = StorageAddress("default/run", "a")


def shown(value: Any, limit: int = 100) -> Any:
    return offloaded(value, len(jsontext.encode(value)), limit, RUN)


def test_what_is_small_stays() -> None:
    assert shown({"a": [1, 2], "b": "x" * 50}) == {"a": [1, 2], "b": "x" * 50}


def test_from_the_bottom_up() -> None:
    """STY-221: texts are raw, everything else is JSON; what is small beside them stays."""
    value = {"text": "x" * 200, "deep": {"rows": list(range(100)), "n": 1}, "list": [{"t": "y" * 200}]}

    assert shown(value) == {
        "text": {"$bubuStorageRef": "default/run/steps/a/text.json", "$bubuStorageContentType": "raw"},
        "deep": {
            "rows": {"$bubuStorageRef": "default/run/steps/a/deep.rows.json", "$bubuStorageContentType": "json"},
            "n": 1,
        },
        "list": [{"t": {"$bubuStorageRef": "default/run/steps/a/list[0].t.json", "$bubuStorageContentType": "raw"}}],
    }


def test_many_small_parts_go_together() -> None:
    whole = {"$bubuStorageRef": "default/run/steps/a/output.json", "$bubuStorageContentType": "json"}
    assert shown({str(n): "x" for n in range(100)}) == whole
    assert shown({"a": 1}, limit=0) == whole  # 0: always
    parts = {str(n): "x" * 200 for n in range(4_000)}  # their references alone are more than 256 KiB
    assert shown(parts) == whole


def test_what_no_path_can_name_goes_with_what_is_around_it() -> None:
    assert shown({"in": {"a.b": "x" * 200}})["in"]["$bubuStorageRef"] == "default/run/steps/a/in.json"
    assert shown({"output": "x" * 200})["$bubuStorageRef"] == "default/run/steps/a/output.json"


@pytest.mark.parametrize("text", ["default/run/steps/../x.json", "a/b.json", "/etc/passwd", "n/r/steps/s/a/b/c.json"])
def test_an_address_that_is_none(text: str) -> None:
    """STY-221: traversal is refused."""
    assert StorageAddress.read(text) is None


def test_addresses_are_read_as_they_are_written() -> None:
    for address in (RUN, RUN.inside("x"), StorageAddress("n/r", "s", True), StorageAddress("n/r", "s", True, "a[0].b")):
        assert address is not None and StorageAddress.read(str(address)) == address


BIG = """
steps:
- {name: a, ref: {name: echo}, with: {rows: "{{ inputs.rows }}", n: 1}}
- {name: b, ref: {name: echo}, needs: [a], with: {first: "{{ index steps.a.output.rows 0 }}", all: "{{ inputs.ref }}"}}
output: {first: "{{ steps.b.output.first }}", last: "{{ index steps.b.output.all 19999 }}"}
"""
ROWS = list(range(20_000))


def body_of(world: World, ref: str) -> Any:
    texts: dict[bytes, bytes] = {}
    while True:
        try:
            return world.life.dialect.body_of(world.life.execution, texts, ref, 0)
        except MissingValues as needs:
            texts |= {name: world.values[name] for name in needs.digests}


@pytest.mark.parametrize("crash", [False, True])
def test_a_large_output_is_shown_as_a_reference_and_read_in_process(crash: bool) -> None:
    """STY-017 STY-018 STY-207 STY-208 STY-223: templates read it, a reference to it is filled in for the worker."""
    ref = {"$bubuStorageRef": "default/run/steps/a/rows.json"}
    world = World(BIG, {"rows": ROWS, "ref": ref}, crash=crash)
    run = world.run()

    assert run["status"]["output"] == {"first": 0, "last": 19_999}
    first, second = run["stepRuns"]["a"], run["stepRuns"]["b"]
    assert first["status"]["output"] == {"rows": {**ref, "$bubuStorageContentType": "json"}, "n": 1}
    assert first["spec"]["input"]["rows"]["$bubuStorageRef"] == "default/run/steps/a/input/rows.json"
    assert second["spec"]["input"]["all"]["$bubuStorageRef"] == "default/run/steps/b/input/all.json"
    assert world.performed[1][1]["inputs"]["all"] == ROWS
    assert body_of(world, "default/run/steps/a/rows.json") == ROWS
    assert body_of(world, "default/run/steps/b/input/all.json") == ROWS
    assert body_of(world, "") == {"first": 0, "last": 19_999}
    with pytest.raises(ReferenceNotAvailable):
        body_of(world, "default/run/steps/zzz/output.json")


@pytest.mark.parametrize("ref", ["default/other/steps/a/output.json", "/etc/passwd", "files/../x.json"])
def test_a_reference_that_leads_nowhere_fails_its_step(ref: str) -> None:
    text = "steps: [{name: a, ref: {name: echo}, with: {all: '{{ inputs.ref }}'}}]"
    run = World(text, {"ref": {"$bubuStorageRef": ref}}).run()

    assert run["stepRuns"]["a"]["status"]["error"]["type"] == "storage_error"
    assert "does not lead to a step" in run["stepRuns"]["a"]["status"]["message"]


def test_a_part_of_it_by_path() -> None:
    """STY-219: `$bubuStoragePath` goes further in."""
    text = """
steps:
- {name: a, ref: {name: echo}, with: {rows: [{id: 1}, {id: 2}]}}
- {name: b, ref: {name: echo}, needs: [a], with: {ids: {"$bubuStorageRef": default/run/steps/a/output.json,
                                                        "$bubuStoragePath": "rows[*].id"}}}
output: {ids: "{{ steps.b.output.ids }}"}
"""
    assert World(text).run()["status"]["output"] == {"ids": [1, 2]}


@pytest.mark.parametrize("policy", ["error", "inject", "controller"])
def test_a_verification_reads_its_own_output_however_large(policy: str) -> None:
    """STY-216: what is to be verified is at hand, also that of branches."""
    text = """
policy: {execution: {maxInlineSize: 0}}
steps:
- name: p
  type: parallel
  with: {steps: [{name: one, ref: {name: echo}, with: {rows: [1, 2]}}]}
  postExecution: {condition: "{{ eq (len steps.p.output.one.rows) 2 }}"}
- {name: a, ref: {name: echo}, with: {n: 1}, postExecution: {condition: "{{ eq steps.a.output.n 1 }}"}}
"""
    world = World(text, settings={"templating.offloaded-data-policy": policy})

    assert world.run()["status"]["phase"] == "Succeeded"
    assert list(world.show()["stepRuns"]) == ["one", "a"]
