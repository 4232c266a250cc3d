"""Reading documents: from bytes to data, or to all problems that prevent it."""

from typing import Any

from perdure.documents.document import Document
from perdure.documents.errors import COUNT, DEFAULT_LIMITS, ENCODING, LIMIT, Limits, UnreadableText
from perdure.kernel.documents.problems import Problem
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.json_positions import line_and_column

_NOT_JSON = object()


def read_document(text: bytes, limits: Limits = DEFAULT_LIMITS) -> Document:
    """The one document of a text. Raises `UnreadableText`."""
    documents = read_documents(text, limits)
    if not documents:
        raise UnreadableText(
            [Problem(COUNT, "there is no document: the text is empty or has only comments", line=1, column=1)]
        )
    if len(documents) > 1:
        line, column = documents[1].place_of()
        hint = "Put each document in a file of its own."
        raise UnreadableText([Problem(COUNT, "a second document begins here", line=line, column=column, hint=hint)])
    return documents[0]


def read_documents(text: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Document, ...]:
    """The documents of a text in order, without the empty ones. Raises `UnreadableText`."""
    if len(text) > limits.size:
        raise UnreadableText([Problem(LIMIT, f"the text is larger than {limits.size} bytes", line=1, column=1)])
    decoded = _decode(text)
    if decoded.lstrip()[:1] in ("{", "["):
        data = _read_json(decoded, limits.depth)
        if data is not _NOT_JSON:
            return (Document(data, decoded),)
    from perdure.documents.yaml_builder import read_yaml  # JSON does not need it

    return read_yaml(decoded, limits)


def _decode(text: bytes) -> str:
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        hint = "Save the file as UTF-8."
        raise UnreadableText([Problem(ENCODING, "the text is UTF-16, not UTF-8", line=1, column=1, hint=hint)])
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8-sig")
        line, column = line_and_column(before, len(before))
        message = f"the byte 0x{text[error.start]:02X} is not UTF-8"
        hint = "Save the file as UTF-8."
        raise UnreadableText([Problem(ENCODING, message, line=line, column=column, hint=hint)]) from None


def _read_json(text: str, depth: int) -> Any:
    """The value of a JSON text, or _NOT_JSON: then the YAML reader can read it, or explain better what is wrong."""
    try:
        data = jsontext.read_strict(text)
        if "\\ud" in text or "\\uD" in text:
            jsontext.encode(data)  # an unpaired surrogate is not text
    except jsontext.NotJson:
        return _NOT_JSON
    return _NOT_JSON if _is_deeper(data, depth) else data


def _is_deeper(data: Any, depth: int) -> bool:
    level = [data]
    for _ in range(depth + 1):
        containers = [container for container in level if isinstance(container, dict | list)]
        if not containers:
            return False
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
    return True
