"""Addresses of stores as they may be shown: what people read, copy and log holds no password."""

import re

_PASSWORD = re.compile(r"\A([^:/?#@\s]*:/{0,2}[^/?#@:]*):[^\n]*@")
"""Up to the last @: what a password should have escaped, and has not, belongs to it."""
_PARAMETER = re.compile(r"(?i)([?&])([^=&?]*(?:password|passwd|pwd|secret|token)[^=&]*)=[^&]*")
_KIND = re.compile(r"[a-z][a-z0-9+.-]{0,20}")


def without_password(url: str) -> str:
    """The address with something in place of its password."""
    return _PARAMETER.sub(r"\1\2=***", _PASSWORD.sub(r"\1:***@", url))


def has_password(url: str) -> bool:
    """Whether what others say of the address may quote its password."""
    return without_password(url) != url


def kind_of_store(url: str) -> str:
    """As the address begins, if that is a word; all else may be a password that stands where it should not."""
    kind, mark, _ = url.partition("://")
    return repr(kind) if mark and _KIND.fullmatch(kind) else "its address has no kind, as sqlite:// or postgresql://"


def shell_quoted(url: str) -> str:
    """The address for a command that we tell people to type: the password comes from PGPASSWORD or ~/.pgpass."""
    return re.sub(r"\?$", "", _PARAMETER.sub(r"\1", _PASSWORD.sub(r"\1@", url)).replace("?&", "?").replace("&&", "&"))
