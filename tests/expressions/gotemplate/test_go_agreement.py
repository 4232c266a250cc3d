"""Templates whose outcome was compared with Go itself, those in `sprig` with another implementation of Sprig.

A case is a template and the text it writes, or null where both refuse it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.expressions.gotemplate import ExpressionError, Template

AGREED = Path(__file__).parent / "agreed"


def outcome(text: str, data: dict[str, Any]) -> str | None:
    try:
        return Template(text).render_text(data)
    except ExpressionError:
        return None


@pytest.mark.parametrize("name", ["language", "printf", "random", "times", "encodings", "sprig", "letters"])
def test_a_template_writes_what_go_writes(name: str) -> None:
    agreed = json.loads((AGREED / f"{name}.json").read_text(encoding="utf-8"))

    result = {text: outcome(text, agreed["data"]) for text, _ in agreed["cases"]}

    assert result == dict(agreed["cases"])
