"""What a mask hides, and what it leaves alone."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Outcome, Succeeded
from perdure.kernel.secrets.secret_masking import Mask
from perdure.workers.secrets import Masks

SECRET = 'a"b/ç d+e'


@pytest.mark.parametrize(
    "form",
    [SECRET, json.dumps(SECRET), quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode(), f"x{SECRET}y"],
)
def test_a_secret_is_hidden_in_every_writing(form: str) -> None:
    """PBK-185."""
    mask = Mask()
    mask.add(SECRET)

    hidden = mask.text(f"<{form}>")

    assert "[redacted]" in hidden and "ç" not in hidden and "a%22b" not in hidden and hidden != f"<{form}>"


def test_short_values_and_other_data_stay() -> None:
    mask = Mask()
    mask.add("abc")
    mask.add("123456")
    value: Any = {"abc": ["abc", True, None, 123456, 1234567, 12.5]}

    assert mask.data(value) == {"abc": ["abc", True, None, "[redacted]", 1234567, 12.5]}


def test_the_lines_of_a_key_file_are_hidden_one_by_one() -> None:
    mask = Mask()
    mask.add("-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nend\n")

    assert mask.text("it holds MIIEvQIBADANBgkqhkiG9w0BAQ, end") == "it holds [redacted], end"


def test_outcomes_are_hidden_in_all_their_parts() -> None:
    mask = Mask()
    mask.add("hunter22")
    text = jsontext.encode({"hunter22": "is hunter22"})
    hidden = b'{"[redacted]":"is [redacted]"}'

    assert mask.outcome(Succeeded(text)) == Succeeded(hidden)
    assert mask.outcome(Failed("C.hunter22", "hunter22", True, text, text)) == Failed(
        "C.[redacted]", "[redacted]", True, hidden, hidden
    )


def test_a_value_without_secrets_is_not_touched() -> None:
    mask = Mask()
    mask.add("hunter22")
    text = b'{ "kept" : "as it was written" }'

    assert mask.json(text) is text


def test_a_run_has_one_mask_and_others_have_their_own() -> None:
    masks = Masks(most=2)
    masks.of("a").add("hunter22")

    assert masks.of("a").text("hunter22") == "[redacted]"
    assert masks.of("b").text("hunter22") == "hunter22"
    masks.of("c")
    assert masks.of("b").text("x") == "x"


def test_a_mask_that_hides_nothing_is_shared_while_tasks_hold_it_and_then_forgotten() -> None:
    masks, ignored = Masks(), list[Outcome]()
    first, second = masks.of("a"), masks.of("a")
    assert first is second
    masks.report("a", first, Succeeded(), ignored.append)
    assert masks.of("a") is first
    masks.report("a", first, Succeeded(), ignored.append)
    masks.report("a", first, Succeeded(), ignored.append)
    assert masks.of("a") is not first

    hiding = masks.of("b")
    hiding.add("hunter22")
    masks.report("b", hiding, Succeeded(), ignored.append)
    assert masks.of("b") is hiding
