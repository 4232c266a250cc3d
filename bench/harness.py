"""Runs one measured process, times what it marks, kills what W5 wants killed, and leaves nothing behind."""

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import marks
from bench.sizes import Sizes

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0  # seconds for one process


class Failure(Exception):
    """A measured process did not give its figures; the text says why."""


@dataclass(frozen=True)
class Subject:
    """Something that is measured: Perdure in one language, or a peer."""

    name: str
    title: str
    module: str
    python: Path
    home: Path
    is_ours: bool
    share: float = 1.0  # of the sizes; a slow peer is measured with less


@dataclass(frozen=True)
class Harness:
    scratch: Path  # on the disk that is measured
    sizes: Sizes

    def measure(self, subject: Subject, workload: str, variant: str) -> dict[str, Any]:
        """The figures of one run of one workload; raises `Failure`."""
        with self._folder() as folder:
            if workload == "w5":
                return self._kill_and_recover(subject, folder, variant)
            began = time.perf_counter()
            figures, reached = _until_done(self._begin(subject, workload, folder, variant), began)
            if "first result" in reached:
                figures["cold_s"] = reached["first result"]
            return figures

    def call(self, subject: Subject, module: str, function: str, variant: str = "") -> dict[str, Any]:
        """Some other function about the subject, in a process of its own."""
        with self._folder() as folder:
            figures, _ = _until_done(self._begin(replace(subject, module=module), function, folder, variant))
            return figures

    def count_syncs(self, subject: Subject, workload: str, variant: str) -> int:
        """How often the disk was told to sync, by the subject and its servers, their start included."""
        with self._folder() as folder, tempfile.NamedTemporaryFile("r", suffix=".trace") as trace:
            wrapped = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,msync"]
            process = self._begin(subject, workload, folder, variant, wrapped=[*wrapped, "-o", trace.name])
            _until_done(process)
            return len(re.findall(r"(?:fsync|fdatasync|sync_file_range|msync)\(", trace.read()))

    def _kill_and_recover(self, subject: Subject, folder: Path, variant: str) -> dict[str, Any]:
        """The kill takes the whole process group, servers included, halfway through."""
        process = self._begin(subject, "w5_begin", folder, variant)
        sizes = self.sizes.times(subject.share)
        steps = sizes.workflows * sizes.steps
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if marks.count(folder / "marks") >= steps * 0.45 and (folder / "submitted").exists():
                break
            time.sleep(0.001)
        if process.poll() is not None:
            raise Failure(f"ended before it could be killed: {_last_words(process)}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        began = time.perf_counter()
        recovering = self._begin(subject, "w5_recover", folder, variant, life=2)
        figures, reached = _until_done(recovering, began)
        judged = marks.judge(folder / "marks", figures["ended"], sizes.workflows, sizes.steps)
        judged["lost"] += judged.pop("wrong")
        return {"recover_s": reached["recovered"], **judged}

    def _begin(
        self,
        subject: Subject,
        function: str,
        folder: Path,
        variant: str,
        *,
        life: int = 1,
        wrapped: list[str] | None = None,
    ) -> "subprocess.Popen[str]":
        sizes = self.sizes.times(subject.share).dump()
        arguments = [subject.module, function, subject.name, folder, sizes, variant, life, subject.home]
        with (folder / "stderr").open("ab") as errors:
            process = subprocess.Popen(
                [*(wrapped or []), str(subject.python), "-m", "bench.measured", *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
                env={**_environment(), "TMPDIR": str(folder)},  # what a server leaves behind goes with the folder
                start_new_session=True,
            )
        process.errors = folder / "stderr"  # type: ignore[attr-defined]
        return process

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix="bench-", dir=self.scratch))
        folder.chmod(0o755)  # PostgreSQL runs as somebody else
        try:
            yield folder
        finally:
            _end_servers(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as in production: a cold start is not a first start."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}


def ours(language: str, title: str, store: str, home: Path) -> Subject:
    name, where = (language, "") if store == "sqlite" else (f"{language}@{store}", " on PostgreSQL")
    return Subject(name, f"Perdure {title}{where}", "bench.ours", Path(sys.executable), home, is_ours=True)


def peer(name: str, title: str, home: Path, share: float = 1.0) -> Subject:
    return Subject(name, title, f"bench.peers.{name}", home / "bin" / "python", home, is_ours=False, share=share)


def _until_done(
    process: "subprocess.Popen[str]", began: float | None = None
) -> tuple[dict[str, Any], dict[str, float]]:
    """The figures, and when each moment was reached. The process and all it started are gone afterwards."""
    began = time.perf_counter() if began is None else began
    figures: dict[str, Any] | None = None
    reached: dict[str, float] = {}
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + PATIENCE
            while figures is None:
                has_ended = process.poll() is not None  # looked at first: what it said before is still read
                if not selector.select(0.2):
                    if has_ended:
                        raise Failure(_last_words(process))
                    if time.monotonic() > end:
                        raise Failure(f"no figures after {PATIENCE:.0f} s: {_last_words(process)}")
                    continue
                line = process.stdout.readline()
                if not line:
                    process.wait()
                    raise Failure(_last_words(process))
                if line.startswith("{"):
                    message = json.loads(line)
                    if "reached" in message:
                        reached[message["reached"]] = time.perf_counter() - began
                    else:
                        figures = message
        return figures, reached
    finally:
        _end_group(process)


def _end_group(process: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _end_servers(folder: Path) -> None:
    """Those that left the session of their starter."""
    noted = folder / "servers"
    for pid in map(int, noted.read_text().split()) if noted.exists() else ():
        try:
            os.kill(pid, signal.SIGQUIT)  # PostgreSQL: at once
        except ProcessLookupError:
            continue
        for _ in range(200):
            if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
                break
            time.sleep(0.01)


def _last_words(process: "subprocess.Popen[str]") -> str:
    errors: Path = process.errors  # type: ignore[attr-defined]
    lines = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    return (lines[-1] if lines else f"exit code {process.poll()}, nothing said")[:300]
