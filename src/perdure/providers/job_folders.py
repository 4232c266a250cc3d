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
from typing import Annotated, Any

import msgspec

from perdure.kernel import jsontext
from perdure.providers.context import TaskContext
from perdure.providers.external_texts import UNSAID, Script, Source, read_bytes
from perdure.providers.failure import ProviderFailure

LARGEST_ARGUMENT = 100_000  # bytes; systems refuse a single argument above 128 KiB
COMMAND = ".perdure-command"  # the file of a command that has a secret

Text = str | int | float | bool


class File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of the job: its content, or where that is. `mountPath` is its name in the folder."""

    mountPath: str | None = None  # noqa: N815 - the language's spelling
    content: str | None = None
    uri: str | None = None
    source: Source = msgspec.field(default_factory=Source)
    sha256: str | None = None
    folder: Annotated[str | None, UNSAID] = None


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


class JobFolder:
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
            raise self._bad(f"{name!r} is not the name of a file inside the job's folder")
        path = self.path / "files" / pure.relative_to("/") if pure.is_absolute() else self.path / "workspace" / pure
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        if pure.is_absolute():
            self.elsewhere[str(pure)] = path

    def _bad(self, message: str) -> ProviderFailure:
        return ProviderFailure(f"{self.prefix}.BadArguments", message, retryable=False)

    def command(self, runtime: Runtime, seen_at: str, python: str, args: Any, context: TaskContext) -> list[str]:
        """What to run; a script that is not mentioned by a `command` is run itself, with the task's args as JSON.

        Arguments can be listed by every user of the machine: args with a secret are not among them, and a command
        for the shell that has one is read from a file.
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
    """A new folder, gone afterwards.

    Nobody else gets into it (0700), though what is in it can be read: a container, which may run as somebody else,
    sees the workspace without the folder around it.
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
    """The first of these programs that there is; the environment variable `asked` may name another."""
    chosen = os.environ.get(requested)
    return next((path for name in ((chosen,) if chosen else names) if (path := shutil.which(name))), None)
