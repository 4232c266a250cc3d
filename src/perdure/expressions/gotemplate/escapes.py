"""Texts escaped for other contexts: a Go string, HTML, JavaScript, a URL."""

from urllib.parse import quote_plus

from perdure.expressions import bounded_calls

_GO = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_HTML = str.maketrans({"\0": "�", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JS = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
    **{chr(code): f"\\u{code:04X}" for code in range(32)},
}


def quote_go(text: str, quote: str = '"', ascii_only: bool = False) -> str:
    """A Go string literal, or a character literal with single quotes."""
    return quote + "".join(_escape_go(char, quote, ascii_only) for char in text) + quote


def _escape_go(char: str, quote: str, ascii_only: bool) -> str:
    if char == quote or char == "\\":
        return "\\" + char
    code = ord(char)
    if char in _GO:
        return _GO[char]
    if char.isprintable() and not (ascii_only and code > 126):
        return char
    if code < 128:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_html(text: str) -> str:
    return bounded_calls.translate(text, _HTML)


def escape_js(text: str) -> str:
    return "".join(_JS.get(char) or (char if char.isprintable() else f"\\u{ord(char):04X}") for char in text)


def escape_url(text: str) -> str:
    """For the query of a URL."""
    return quote_plus(text, safe="~", errors="replace")
