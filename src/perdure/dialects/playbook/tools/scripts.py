"""Scripts outside the document: `script: {uri, source, sha256}`, or the text itself (PBK-092, 094, 097, 098)."""

import re
from typing import Any

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.tools.kind import ToolCall, error_kind
from perdure.kernel.outcomes import Failed, Outcome

SOURCES = ("file", "http", "https", "s3")  # of scripts
HINT = "Write script: {uri: path/or/address, source: {type: file, http or s3}}."

PREFIX = "Provider.Call.ScriptSource."

_SOURCE_KINDS = {
    "Busy": "rate_limit",
    "ConnectionFailed": "connection",
    "Denied": "auth",
    "Forbidden": "storage_access",
    "NotFound": "not_found",
    "ServerError": "server_error",
    "Timeout": "timeout",
    "TooLarge": "limit",
    "Unreadable": "storage_access",
    "WrongDigest": "storage_access",
}


def check_descriptor(cursor: Cursor) -> None:
    """Program text, or a map that says where it is (PBK-092)."""
    if isinstance(cursor.value, str) or not cursor.has("a map", "PBK-092", HINT):
        return
    cursor.closed(("uri", "source", "sha256"), "PBK-092", "a script")
    if "uri" not in cursor.value:
        cursor.problem("PBK-092", "the script lacks 'uri'", hint=HINT)
    else:
        cursor.at("uri").is_text("PBK-092")
    source = cursor.value.get("source")
    if source is not None and cursor.at("source").has("a map", "PBK-092", HINT) and "type" in source:
        cursor.at("source").at("type").is_one_of(SOURCES, "PBK-092")


def check_script(cursor: Cursor) -> None:
    """The field `script` of a task, if it has one."""
    if "script" in cursor.value:
        check_descriptor(cursor.at("script"))


def with_folder(call: ToolCall, script: Any) -> Any:
    """The descriptor with the folder that relative names refer to: that of the document, if it is known."""
    if not isinstance(script, dict):
        return script
    folder = call.folder
    descriptor = {name: value for name, value in script.items() if name != "folder"}
    return descriptor if folder is None else {**descriptor, "folder": folder}


def kind_of_failure(outcome: Outcome, kinds: dict[str, str]) -> str:
    """The kind of a failure: by the tool's own table, or by that of scripts if the script could not be read."""
    if not isinstance(outcome, Failed):
        return "unknown"
    last = outcome.code.rpartition(".")[2]
    table = _SOURCE_KINDS if outcome.code.startswith(PREFIX) else kinds
    return table.get(last) or ("client_error" if table is _SOURCE_KINDS else error_kind(outcome.code))


def failure_code(outcome: Outcome) -> str | None:
    """The end of a provider's code in the language's spelling: `MissingExtra` is MISSING_EXTRA."""
    if not isinstance(outcome, Failed):
        return None
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", outcome.code.rpartition(".")[2]).upper()
