"""From the result of a call, value or exception, to the outcome of its task."""

import re
import traceback
from itertools import dropwhile
from pathlib import Path
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.jsontext import MOST_VALUES, has_too_many_values
from perdure.kernel.outcomes import Code, Failed, Outcome, Succeeded
from perdure.providers.failure import BadArguments, ProviderFailure

RESULT_LIMIT = 64 * 1024 * 1024
"""Bytes of JSON text that one task may return."""

_FRAMES_SHOWN = 5
_PACKAGE = Path(__file__).parents[1]


def code_prefix(name: str) -> str:
    """`send-mail.v2` → `SendMailV2`: the segment in a provider's own codes."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^0-9A-Za-z]+", name)) or "Provider"


def to_outcome(value: Any, limit: int = RESULT_LIMIT) -> Outcome:
    """A returned value counts only if it has a JSON form and an acceptable size."""
    try:
        text = jsontext.encode(value)
    except jsontext.NotJson as error:
        return Failed(Code.PROVIDER_FAULT, f"the provider returned something that is not JSON: {error}", False)
    if len(text) > limit:
        facts = {"size": len(text), "limit": limit}
        message = f"the result has {len(text)} bytes, {limit} are allowed"
        return Failed(Code.RESULT_TOO_LARGE, message, False, jsontext.encode_finite(facts))
    if has_too_many_values(text):
        message = f"the result has more than {MOST_VALUES} values; return fewer at a time"
        return Failed(Code.RESULT_TOO_LARGE, message, False, jsontext.encode_finite({"values": MOST_VALUES}))
    return Succeeded(text)


def describe(error: BaseException, prefix: str) -> Failed:
    """The failure for an exception: plain facts, no local variables, no source text."""
    match error:
        case ProviderFailure():
            return Failed(str(error.code), str(error.message), error.retryable, _details(error.details))
        case BadArguments():
            facts = {"parameter": error.parameter, "path": error.path}
            code = f"Provider.Call.{prefix}.BadArguments"
            return Failed(code, str(error), False, jsontext.encode_finite(facts))
        case _:
            kind = type(error)
            origin = {"exception": f"{kind.__module__}.{kind.__qualname__}", "traceback": _user_frames(error)}
            code = f"Provider.Call.{prefix}.Errors.{kind.__name__}"
            return Failed(code, _sentence(error), None, jsontext.encode_finite(origin))


def _details(details: Any) -> bytes | None:
    if details is None:
        return None
    try:
        return jsontext.encode(details)
    except jsontext.NotJson as error:
        # The failure itself matters more than its details: name what was lost and keep the code.
        return jsontext.encode_finite({"unrepresentable": str(error)})


def _sentence(error: BaseException) -> str:
    try:
        sentence = str(error).encode("utf-8", "replace").decode() or type(error).__name__
        if type(error) is KeyError and sentence == repr(error.args[0]) and " " not in sentence:
            return f"no such key: {sentence}"  # a bare key says nothing to people who read a list of runs
        return sentence
    except BaseException:  # __str__ is user code as well
        return type(error).__name__


def _user_frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = list(dropwhile(_is_ours, frames)) or frames  # the calls that led to the function explain nothing
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in user_frames[-_FRAMES_SHOWN:]]


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(_PACKAGE)
