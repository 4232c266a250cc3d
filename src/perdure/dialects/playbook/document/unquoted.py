"""Step names that other readers of YAML take for a boolean: `on`, `yes` and their like, without quotes (PBK-005)."""

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.documents import Document

SWITCHES = frozenset(form for word in ("yes", "no", "on", "off") for form in (word, word.title(), word.upper()))


def step_names(look: Cursor, written: Document) -> None:
    """This reader keeps them as text (YAML 1.2), but the same document must mean the same everywhere."""
    workflow = look.value.get("workflow") if isinstance(look.value, dict) else None
    for index, step in enumerate(workflow if isinstance(workflow, list) else ()):
        name = step.get("step") if isinstance(step, dict) else None
        if isinstance(name, str) and name in SWITCHES and _is_plain(written, ("workflow", index, "step"), name):
            message = f"{name} without quotes is a boolean to many readers of YAML, not a name"
            look.at("workflow").at(index).at("step").problem("PBK-005", message, hint=f'Put it in quotes: "{name}".')


def _is_plain(written: Document, path: tuple[str | int, ...], name: str) -> bool:
    line, column = written.place_of(path)
    return written.text.split("\n")[line - 1][column - 1 :].startswith(name)
