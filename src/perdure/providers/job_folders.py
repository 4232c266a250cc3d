"""A job: a script and files in a folder of its own, and the command to run there.

Containers and plain scripts are described in the same way; only the path under which the command sees the folder
differs.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.providers.context import TaskContext
from perdure.providers.external_texts import UNSAID, Script, TextSource, read_bytes
from perdure.providers.failure import ProviderFailure

LARGEST_ARGUMENT = 100_000  # bytes; systems refuse a single argument above 128 KiB
COMMAND = ".perdure-command"  # the file with a command that contains a secret

Text = str | int | float | bool


class File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of the job: its content, or where to get it. `mountPath` is its name in the folder."""

    mountPath: str | None = None  # noqa: N815 - the language's spelling
    content: str | None = None
    uri: str | None = None
    source: TextSource = msgspec.field(default_factory=TextSource)
    sha256: str | None = None
    folder: Annotated[str | None, UNSAID] = None


class JobRuntime(msgspec.Struct, forbid_unknown_fields=True):
    """How a job runs. `namespace` is for Kubernetes only; it is accepted and not used."""

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
        return {name: to_text(value) for name, value in self.env.items()}

    def arguments(self) -> list[str]:
        return [to_text(value) for value in self.args]


def to_text(value: Text) -> str:
    return value if isinstance(value, str) else jsontext.encode(value).decode()


class JobFolder:
    """The job's files on disk, and the absolute paths that some of them must have."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.path = path
        self.prefix = prefix
        self.elsewhere: dict[str, Path] = {}  # absolute name → file
        self.script: str | None = None  # its name in the folder
        self.has_shebang = False

    def fill(self, script: Script | str | None, files: list[File] | dict[str, str]) -> None:
        """Blocking: files may be downloaded."""
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
            raise self._bad(f"{name!r} is not the name of a file inside the job's folder")
        path = self.path / "files" / pure.relative_to("/") if pure.is_absolute() else self.path / "workspace" / pure
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        if pure.is_absolute():
            self.elsewhere[str(pure)] = path

    def _bad(self, message: str) -> ProviderFailure:
        return ProviderFailure(f"{self.prefix}.BadArguments", message, retryable=False)

    def command(self, runtime: JobRuntime, seen_at: str, python: str, args: Any, context: TaskContext) -> list[str]:
        """What to run; a script that a `command` does not mention is run itself, with the task's args as JSON.

        Every user of the machine can list arguments: args with a secret are not among them, and a shell command that
        contains one is read from a file.
        """
        if isinstance(runtime.command, str):
            if context.secrets.are_in(runtime.command):
                self._put(COMMAND, runtime.command.encode(), 0o644)
                return ["/bin/sh", f"{seen_at}/{COMMAND}", *runtime.arguments()]
            return ["/bin/sh", "-c", runtime.command, "sh", *runtime.arguments()]
        if runtime.command:
            return [*runtime.command, *runtime.arguments()]
        if self.script is None:
            return runtime.arguments()
        file = f"{seen_at}/{self.script}"
        arguments_text = jsontext.encode_finite(args) if args else b""
        is_fit = (
            arguments_text
            and len(arguments_text) <= LARGEST_ARGUMENT
            and not context.secrets.are_in(arguments_text.decode())
        )
        return [*self._interpreter(python), file, *runtime.arguments(), *([arguments_text.decode()] if is_fit else [])]

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
def folder(prefix: str) -> Iterator[JobFolder]:
    """A new folder, removed afterwards.

    Other users cannot enter it (0700), but its content can be read: a container, which may run as another user, sees
    the workspace without the folder around it.
    """
    path = Path(tempfile.mkdtemp(prefix="perdure-job-"))
    try:
        (path / "workspace").mkdir()
        yield JobFolder(path, prefix)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def own_python() -> str:
    return sys.executable or "python3"


def search(names: tuple[str, ...], requested: str) -> str | None:
    """The first of these programs that exists; the environment variable `asked` may name another."""
    chosen = os.environ.get(requested)
    return next((path for name in ((chosen,) if chosen else names) if (path := shutil.which(name))), None)
