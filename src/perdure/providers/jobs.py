"""A job: a script and files in a folder of its own, and the command that is to run there.

Containers and plain scripts are described alike; where the folder is seen by the command is the only difference.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from perdure.kernel import jsontext
from perdure.providers.failure import ProviderFailure
from perdure.providers.sources import Script, Source, read_bytes

LARGEST_ARGUMENT = 100_000  # bytes; systems refuse a single argument above 128 KiB

Text = str | int | float | bool


class File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of the job: its content, or where that is. `mountPath` is its name in the folder."""

    mountPath: str | None = None  # noqa: N815 - the language's spelling
    content: str | None = None
    uri: str | None = None
    source: Source = msgspec.field(default_factory=Source)
    sha256: str | None = None
    folder: str | None = None


class Runtime(msgspec.Struct, forbid_unknown_fields=True):
    """How a job runs. `namespace` has a meaning only to Kubernetes; it is accepted and not used."""

    image: str | None = None
    namespace: str | None = None
    command: str | list[str] | None = None
    args: list[Text] = []
    env: dict[str, Text] = {}
    timeoutSeconds: float | None = None  # noqa: N815 - the language's spelling
    cleanup: bool = True
    files: list[File] | dict[str, str] = []

    def timeout(self, other: float | None) -> float | None:
        """The shorter of two limits."""
        limits = [limit for limit in (self.timeoutSeconds, other) if limit is not None]
        return min(limits) if limits else None

    def environment(self) -> dict[str, str]:
        return {name: written(value) for name, value in self.env.items()}

    def arguments(self) -> list[str]:
        return [written(value) for value in self.args]


def written(value: Text) -> str:
    return value if isinstance(value, str) else jsontext.encode(value).decode()


class Folder:
    """The job's files on disk, and the absolute paths that some of them shall have."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.path = path
        self.prefix = prefix
        self.elsewhere: dict[str, Path] = {}  # absolute name → file
        self.script: str | None = None  # its name in the folder
        self.has_shebang = False

    def fill(self, script: Script | str | None, files: list[File] | dict[str, str]) -> None:
        """Blocking: files may come from far away."""
        if script is not None:
            data = script.encode() if isinstance(script, str) else read_bytes(script)
            self.script = "script" if isinstance(script, str) else script.name
            self.has_shebang = data.startswith(b"#!")
            self._put(self.script, data, 0o755)
        if isinstance(files, dict):
            files = [File(name, content) for name, content in files.items()]
        for file in files:
            name, data = self._content(file)
            self._put(name, data, 0o644)

    def _content(self, file: File) -> tuple[str, bytes]:
        if (file.content is None) == (file.uri is None):
            raise self._bad("a file has either content or uri")
        if file.content is not None:
            if file.mountPath is None:
                raise self._bad("a file with content needs mountPath")
            return file.mountPath, file.content.encode()
        assert file.uri is not None
        script = Script(file.uri, file.source, file.sha256, file.folder)
        return file.mountPath or script.name, read_bytes(script)

    def _put(self, name: str, data: bytes, mode: int) -> None:
        pure = PurePosixPath(name)
        if ".." in pure.parts or not pure.name:
            raise self._bad(f"{name!r} is no name of a file inside the job's folder")
        path = self.path / "files" / pure.relative_to("/") if pure.is_absolute() else self.path / "workspace" / pure
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        if pure.is_absolute():
            self.elsewhere[str(pure)] = path

    def _bad(self, message: str) -> ProviderFailure:
        return ProviderFailure(f"{self.prefix}.BadArguments", message, retryable=False)

    def command(self, runtime: Runtime, seen_at: str, python: str, args: Any) -> list[str]:
        """What to run; a script that is not mentioned by a `command` is run itself, with the task's args as JSON."""
        if isinstance(runtime.command, str):
            return ["/bin/sh", "-c", runtime.command, "sh", *runtime.arguments()]
        if runtime.command:
            return [*runtime.command, *runtime.arguments()]
        if self.script is None:
            return runtime.arguments()
        file = f"{seen_at}/{self.script}"
        given = jsontext.encode_finite(args) if args else b""
        last = [given.decode()] if given and len(given) <= LARGEST_ARGUMENT else []
        return [*self._interpreter(python), file, *runtime.arguments(), *last]

    def _interpreter(self, python: str) -> list[str]:
        assert self.script is not None
        match PurePosixPath(self.script).suffix:
            case _ if self.has_shebang:
                return []
            case ".py":
                return [python]
            case ".sh" | ".bash" | "":
                return ["/bin/sh"]
        message = f"how to run {self.script!r} is not known: begin it with #!, or give runtime.command"
        raise self._bad(message)


@contextmanager
def folder(prefix: str) -> Iterator[Folder]:
    """A new folder, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="perdure-job-"))
    try:
        (path / "workspace").mkdir()
        path.chmod(0o755)  # a container may run as somebody else
        yield Folder(path, prefix)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def own_python() -> str:
    return sys.executable or "python3"


def search(names: tuple[str, ...], asked: str) -> str | None:
    """The first of these programs that there is; the environment variable `asked` may name another."""
    chosen = os.environ.get(asked)
    return next((found for name in ((chosen,) if chosen else names) if (found := shutil.which(name))), None)
