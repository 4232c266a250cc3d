"""Slash-separated paths as texts. No file system is used."""

from perdure.expressions.gotemplate.functions.library import TEXT, takes


def clean(path: str) -> str:
    """The shortest path that means the same."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif (part == ".." and rooted) or part in ("", "."):
            continue
        else:
            parts.append(part)
    return ("/" if rooted else "") + "/".join(parts) or "."


def base(path: str) -> str:
    if path == "":
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def directory(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return clean(head + slash)


def extension(path: str) -> str:
    _, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return dot + suffix if dot else ""


_BASE, _CLEAN, _DIR, _EXT = (takes(function, TEXT) for function in (base, clean, directory, extension))
_IS_ABSOLUTE = takes(lambda path: path.startswith("/"), TEXT)

FUNCTIONS = {
    "base": _BASE,
    "clean": _CLEAN,
    "dir": _DIR,
    "ext": _EXT,
    "isAbs": _IS_ABSOLUTE,
    "osBase": _BASE,
    "osClean": _CLEAN,
    "osDir": _DIR,
    "osExt": _EXT,
    "osIsAbs": _IS_ABSOLUTE,
}
