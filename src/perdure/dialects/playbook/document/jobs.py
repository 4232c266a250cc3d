"""Tasks that are jobs of their own: a script outside of the document, and how it runs (PBK-092, 098)."""

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.texts import plain

SOURCES = ("file", "http", "https")  # of scripts; object stores are not among them
RUNTIME = ("image", "namespace", "command", "args", "env", "timeoutSeconds", "cleanup", "files")

HINT = "Write script: {uri: path/or/address, source: {type: file or http}}."


def script(look: Cursor) -> None:
    """Program text, or where it is."""
    if isinstance(look.value, str) or not look.has("a map", "PBK-092", HINT):
        return
    look.closed(("uri", "source", "sha256"), "PBK-092", "a script")
    if "uri" not in look.value:
        look.problem("PBK-092", "the script lacks 'uri'", hint=HINT)
    else:
        look.at("uri").is_text("PBK-092")
    source = look.value.get("source")
    if source is not None and look.at("source").has("a map", "PBK-092", HINT) and "type" in source:
        look.at("source").at("type").is_one_of(SOURCES, "PBK-092")


def runtime(look: Cursor, *, needs_image: bool) -> None:
    """What is written as a map; a template that gives one is judged when it runs."""
    if not isinstance(look.value, dict):
        return
    look.closed(RUNTIME, "PBK-098", "a runtime")
    if needs_image and "image" not in look.value:
        look.problem("PBK-098", "a container needs an image", hint="Write runtime: {image: name}.")


def libraries(look: Cursor) -> None:
    """What `python` imports under names of its own: a module, or something of a module (PBK-094)."""
    hint = "Write libs: {name: module}, or libs: {name: {from: module, import: name}}."
    if plain(look) or not isinstance(look.value, dict | str):
        look.problem("PBK-094", "'libs' must be a map", hint=hint)
        return
    for name in look.value if isinstance(look.value, dict) else ():
        item = look.at(name)
        if isinstance(item.value, dict):
            if not item.value or not set(item.value) <= {"from", "import"}:
                item.problem("PBK-094", "a library has 'from' and 'import', or one of them", hint=hint)
            elif not all(isinstance(module, str) and module for module in item.value.values()):
                item.problem("PBK-094", "'from' and 'import' of a library are names", hint=hint)
        elif not (isinstance(item.value, str) and item.value):
            item.problem("PBK-094", f"a library is the name of a module, not {item.value!r}", hint=hint)
