"""Why a pattern was refused."""


class BadPattern(Exception):
    """The pattern is not RE2 syntax, or would need too large a program."""
