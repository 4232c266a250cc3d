"""Modes of new files: readable by their owner alone, unless the operator configures otherwise."""

from perdure.kernel.errors import PerdureError

SETTING = "PERDURE_FILE_MODE"
PRIVATE = 0o600


def private_mode(text: str) -> int:
    """The mode of new files, from an octal number as in `chmod`."""
    if not text.strip():
        return PRIVATE
    try:
        mode = int(text.strip(), 8)
    except ValueError:
        mode = 0
    if not mode & 0o600 == 0o600 or mode & ~0o666:
        raise PerdureError(
            f"{SETTING} is {text!r}, which is not the mode of a file that its owner reads and writes",
            hint="For example 0600 (the owner alone) or 0660 (the owner's group as well).",
        )
    return mode


def folder_mode(mode: int) -> int:
    """Whoever may read files may also enter the folders that contain them."""
    return mode | (mode & 0o444) >> 2
