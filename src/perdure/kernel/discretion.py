"""Taking out of a text what looks like a secret, whoever wrote it, and keeping it short.

What is known to be a secret is masked by the worker that knows it; this is for what nobody has declared.
"""

from perdure.kernel.late import late

# Every repetition is bounded, so that no text can make the search slow.
_HEADER = late(r"(?i)(authorization[\"']?\s{0,9}[:=]\s{0,9}[\"']?)(?:(bearer|basic|token)\s{1,9})?[^\s\"',;]+")
_NAMED = late(
    r"(?i)((?:api[_-]?key|access[_-]?key|token|passwd|password|secret|credential)[\w.-]{0,40}[\"']?\s{0,9}[:=]"
    r"\s{0,9}[\"']?)[^\s\"',;&]+"
)


def without_secrets(text: str) -> str:
    if ":" not in text and "=" not in text:  # neither can be found without one
        return text
    found = _HEADER.sub(lambda m: m.group(1) + "[REDACTED]", text)
    return _NAMED.sub(lambda m: m.group(1) + "[REDACTED]", found)


def cut(text: str, most: int) -> str:
    """At most so many bytes, never half a character."""
    if 4 * len(text) <= most:
        return text
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")
