"""Addresses of stores as they may be shown: what people read, copy and log holds no password."""

import re

_PASSWORD = re.compile(r"(://[^/?#@:]*):[^/?#]*@")
_PARAMETER = re.compile(r"([?&])password=[^&]*")


def without_password(url: str) -> str:
    """The address with something in place of its password."""
    return _PARAMETER.sub(r"\1password=***", _PASSWORD.sub(r"\1:***@", url))


def to_be_typed(url: str) -> str:
    """The address for a command that we tell people to type: the password comes from PGPASSWORD or ~/.pgpass."""
    return re.sub(r"\?$", "", _PARAMETER.sub(r"\1", _PASSWORD.sub(r"\1@", url)).replace("?&", "?").replace("&&", "&"))
