"""Simulations and scenarios of documents that come with a request: played in a process of their own.

They are long computations about texts of others. The process has none of the server's functions, variables and files,
and limits for its time, memory and files; it is what `perdure sim` and `perdure test` do, and answers their JSON.
"""

import asyncio
import contextlib
import os
import re
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from perdure.engine.decision_threads import done_aside
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import InvalidDocument, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Result
from perdure.server.route_table import Route
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.errors import BadRequest
from perdure.views.resources.referred_documents import referred_documents

API = "/api/v1"
LONGEST = 60.0  # seconds that a process may take
WAIT = 5.0  # seconds for a place
LOOK_EVERY = 0.5  # seconds between looks whether somebody still waits for the answer
MOST_MEMORY = 2 << 30  # bytes
MOST_WRITTEN = 64 << 20  # bytes of one file: it may be in memory
MEMORY = Path("/dev/shm")  # where files are kept in memory; elsewhere they are temporary
LARGEST_ANSWER = 32 << 20  # bytes
NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}(/[A-Za-z0-9_][\w.-]{0,99}){0,5}\.(json|ya?ml)", re.ASCII)
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "PERDURE_STORY_SETTINGS")
SCHEDULE = "perdure.failing.json"

Files = Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=200)]
Names = Annotated[list[str], msgspec.Meta(min_length=1, max_length=200)]
Word = Annotated[str, msgspec.Meta(max_length=1_000, pattern=r"^[^\x00]*$")]  # one of the command that is run
Faults = Annotated[list[Annotated[str, msgspec.Meta(max_length=20, pattern="^[a-z]*$")]], msgspec.Meta(max_length=100)]


IsGone = Callable[[], Awaitable[bool]]


class SimulationBody(m.Body):
    files: Files  # texts by name: the document, its scenarios, and what those name
    document: str
    runs: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)] = 0
    faults: Faults | None = None
    scenario: Word = ""
    input: Any = msgspec.UNSET
    trace: str = ""  # the name of a schedule, or of a finding of `check`
    apply: m.Texts = msgspec.field(default_factory=list)  # names of files that the document refers to
    namespace: str | None = None  # of a run whose scenario names none, and of what it refers to


class ScenariosBody(m.Body):
    files: Files
    places: Names  # of scenarios or documents
    crash: Literal["all", "none"] = "none"
    only: Word = ""
    coverage: Literal["text", "mermaid", "dot", "svg"] | None = None
    apply: m.Texts = msgspec.field(default_factory=list)
    namespace: str | None = None


async def simulate_document(call: ApiCall) -> Result:
    body: SimulationBody = call.body
    words = ["sim", body.document, "--runs", str(body.runs), "--seed", str(body.seed), "--write", SCHEDULE]
    words += [] if body.faults is None else [f"--faults={','.join(body.faults)}"]
    words += [f"--scenario={body.scenario}"] if body.scenario else []
    words += [f"--trace={_name(body.trace, body.files)}"] if body.trace else []
    stdin = None  # it is not a word of the command: other users of the machine see those
    if body.input is not msgspec.UNSET:
        stdin = await asyncio.to_thread(jsontext.encode, body.input)
        words += ["--input=@-"]
    return Answer(await _play(call, body, [body.document], words, stdin))


async def play_scenarios(call: ApiCall) -> Result:
    body: ScenariosBody = call.body
    words = ["test", *body.places, "--crash", body.crash]
    words += [f"--only={body.only}"] if body.only else []
    words += [f"--coverage={body.coverage}"] if body.coverage else []
    return Answer(await _play(call, body, body.places, words))


async def _play(
    call: ApiCall,
    body: SimulationBody | ScenariosBody,
    places: Sequence[str],
    words: Sequence[str],
    stdin: bytes | None = None,
) -> Any:
    files, apply = body.files, body.apply
    namespace = call.caller.place_of_documents(call.caller.meant_namespace(body.namespace))
    for name in files:
        if not NAME.fullmatch(name) or ".." in name:
            raise BadRequest(f"{name[:100]!r} is not a name of a file (expected e.g. flows/order.yaml)")
    for place in (*places, *apply):
        _name(place, files)
    documents = [AppliedDocument(name, text) for name, text in files.items() if ".test." not in name]
    await call.check_documents(documents)
    async with call.server.plays.turn(call.caller.identity, WAIT):
        known = await referred_documents(call.documents, documents, call.caller.sees, namespace)
        named = [word for name in (*known, *apply) for word in ("--apply", name)]  # those of the request count more
        # The server removes it with all that a process that was killed has left there.
        memory = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="perdure-analysis-", dir=memory) as folder:
            await asyncio.to_thread(_write, Path(folder), {**known, **files})
            text, code = await _run(
                Path(folder), [*words, *named, "-n", namespace, "--confined", "--json"], stdin, call.is_gone
            )
            return await done_aside(len(text), partial(_read, text, code, Path(folder) / SCHEDULE))


def _name(name: str, files: Mapping[str, str]) -> str:
    if name not in files:
        raise BadRequest(f"there is no {name[:100]!r} in `files`")
    return name


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError:  # a file and a folder of one name
            raise BadRequest(f"{name!r} cannot be written beside the others") from None


async def _run(
    folder: Path, words: Sequence[str], stdin: bytes | None = None, is_gone: IsGone | None = None
) -> tuple[bytes, int]:
    """What the command prints, and its exit code. `stdin`: what it reads. `is_gone`: nobody waits for it any more."""
    variables = {name: value for name in KEPT_VARIABLES if (value := os.environ.get(name)) is not None}
    # -I: nothing in the folder is imported.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "perdure", *words),
        cwd=folder,
        env={**variables, "HOME": str(folder), "TMPDIR": str(folder)},
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LARGEST_ANSWER,
    )
    watching = None if is_gone is None else asyncio.ensure_future(_end_if_gone(process, is_gone))
    try:
        _limit(process.pid)
        async with asyncio.timeout(LONGEST):
            text, _ = await asyncio.gather(_printed(process), _tell(process, stdin))
            code = await process.wait()
    except TimeoutError:
        message = f"it takes longer than {LONGEST:g} s, which is the limit of a server"
        raise BadRequest(message, hint="Ask for fewer runs, or run the command where you are.") from None
    finally:
        if watching is not None:
            watching.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    return text, code


async def _end_if_gone(process: asyncio.subprocess.Process, is_gone: IsGone) -> None:
    while not await is_gone():
        await asyncio.sleep(LOOK_EVERY)
    process.kill()


async def _printed(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    while size < LARGEST_ANSWER and (part := await process.stdout.read(LARGEST_ANSWER - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


async def _tell(process: asyncio.subprocess.Process, stdin: bytes | None) -> None:
    if stdin is None or process.stdin is None:
        return
    with contextlib.suppress(ConnectionError):  # it has ended, and says why
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


def _limit(process: int) -> None:
    """Time and memory that it may take; the kernel ends it beyond them."""
    if not hasattr(resource, "prlimit"):  # not on this system: the time limit of the request remains
        return
    limits = {
        resource.RLIMIT_CPU: int(LONGEST) + 1,
        resource.RLIMIT_AS: MOST_MEMORY,
        resource.RLIMIT_FSIZE: MOST_WRITTEN,
    }
    with contextlib.suppress(ProcessLookupError):  # it has ended
        for kind, most in limits.items():
            resource.prlimit(process, kind, (most, most))
        os.setpriority(os.PRIO_PROCESS, process, 10)


def _read(text: bytes, code: int, schedule: Path) -> Any:
    """The answer of the command; its errors are those of this request."""
    try:
        answer = jsontext.decode(text)
    except ValueError:
        raise BadRequest(
            "it needed more time or memory than a server gives it",
            hint="Ask for fewer runs, or run the command where you are.",
        ) from None
    if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict) and "scenarios" not in answer:
        raised = InvalidDocument if code == 7 else UnfitInput
        refusal = raised(str(error.get("message", "")), hint=error.get("hint"))
        vars(refusal)["code"] = str(error.get("code", raised.code))  # as the command names it
        raise refusal
    if answer.get("shrunk") and schedule.is_file():
        answer["shrunk"]["schedule"] = jsontext.decode(schedule.read_bytes())
    return answer


ANALYSIS_ROUTES = (
    Route(
        "POST",
        f"{API}/simulations",
        AccessRole.AUTHOR,
        simulate_document,
        "simulate many runs of a document, with faults; nothing is stored or called",
        body=SimulationBody,
        answer=dict[str, Any],
        is_expensive=True,
        longest=WAIT + LONGEST + 5,
        refusals=(422, 429),
    ),
    Route(
        "POST",
        f"{API}/tests",
        AccessRole.AUTHOR,
        play_scenarios,
        "play scenarios of documents with mocks, also with crashes; nothing is stored or called",
        body=ScenariosBody,
        answer=dict[str, Any],
        is_expensive=True,
        longest=WAIT + LONGEST + 5,
        refusals=(422, 429),
    ),
)
