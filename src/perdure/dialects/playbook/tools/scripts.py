"""Scripts outside of the document: `script: {uri, source, sha256}`, or the text itself (PBK-092, 094, 097, 098)."""

import re
from typing import Any

from perdure.dialects.playbook.tools.kind import Call, general_kind
from perdure.kernel.outcomes import Failed, Outcome

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


def located(call: Call, script: Any) -> Any:
    """The descriptor, told where relative names start: in the folder of the document, where that is known."""
    if not isinstance(script, dict):
        return script
    folder = call.folder
    written = {name: value for name, value in script.items() if name != "folder"}
    return written if folder is None else {**written, "folder": folder}


def kind_of_failure(outcome: Outcome, kinds: dict[str, str]) -> str:
    """What a failure is called here: by the tool's own words, or by those of the script that could not be had."""
    if not isinstance(outcome, Failed):
        return "unknown"
    last = outcome.code.rpartition(".")[2]
    known = _SOURCE_KINDS if outcome.code.startswith(PREFIX) else kinds
    return known.get(last) or ("client_error" if known is _SOURCE_KINDS else general_kind(outcome.code))


def failure_code(outcome: Outcome) -> str | None:
    """The end of a provider's code in the language's spelling: `MissingExtra` is MISSING_EXTRA."""
    if not isinstance(outcome, Failed):
        return None
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", outcome.code.rpartition(".")[2]).upper()
