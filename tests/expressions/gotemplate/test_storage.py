"""Offloaded values: plain paths refer into them, everything else needs them loaded (STY-203, STY-207, STY-208)."""

from typing import Any

import pytest

from perdure.expressions.gotemplate import NeedsStoredValue, compile_template

REFERENCE = {"$bubuStorageRef": "runs/1/output.json"}
DATA: dict[str, Any] = {
    "inputs": {"parts": [REFERENCE]},
    "steps": {
        "big": {"output": REFERENCE},
        "part": {"output": {"$bubuStorageRef": "r", "$bubuStoragePath": "x.y"}},
        "odd": {"output": {"$bubuStorageRef": " "}},
    },
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{{ steps.big.output }}", REFERENCE),
        ("{{ steps.big.output.a.b[0].c }}", {**REFERENCE, "$bubuStoragePath": "a.b[0].c"}),
        ("{{ steps.part.output.z }}", {"$bubuStorageRef": "r", "$bubuStoragePath": "x.y.z"}),
        ("{{ inputs.parts[0][1] }}", {**REFERENCE, "$bubuStoragePath": "[1]"}),
        ("{{ type_of steps.big.output }}", "offloaded(runs/1/output.json)"),
        ("{{ type_of steps.part.output }}", "offloaded(r.x.y)"),
        ("{{ exists steps.big.output }}", "true"),
        ("{{ len inputs.parts }}", 1),
        ("{{ type_of steps.odd.output }}", "object"),
    ],
)
def test_a_reference_is_passed_on(text: str, result: Any) -> None:
    assert compile_template(text).render(DATA) == result


@pytest.mark.parametrize(
    "text",
    [
        "{{ steps.big.output }}!",
        "{{ steps.big.output.x | upper }}",
        "{{ len steps.big.output }}",
        "{{ hash_of steps.big.output }}",
        "{{ sample steps.big.output }}",
        "{{ default 1 steps.big.output }}",
        "{{ toJson inputs.parts }}",
        "{{ print inputs.parts }}",
        '{{ printf "%v" inputs.parts }}',
        "{{ if steps.big.output }}{{ end }}",
        "{{ with steps.big.output }}{{ end }}",
        "{{ range steps.big.output }}{{ end }}",
        "{{ and steps.big.output 1 }}",
        "{{ deepEqual inputs.parts inputs.parts }}",
        '{{ join "," inputs.parts }}',
        '{{ dig "big" "output" "x" 0 steps }}',
        "{{ eq steps.big.output nil }}",
    ],
)
def test_looking_into_a_reference_asks_for_its_value(text: str) -> None:
    with pytest.raises(NeedsStoredValue) as raised:
        compile_template(text).render(DATA)

    assert raised.value.reference == REFERENCE
    assert raised.value.position is not None
