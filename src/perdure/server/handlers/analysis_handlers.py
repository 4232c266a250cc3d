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
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import InvalidDocument, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Result
from perdure.server.route_table import Route
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import TooManyRequests
from perdure.views.errors import BadRequest

API = "/api/v1"
LONGEST = 60.0  # seconds that a process may take
MOST_AT_ONCE = 2  # processes of one server
WAIT = 5.0  # seconds for a place
MOST_MEMORY = 2 << 30  # bytes
MOST_WRITTEN = 256 << 20  # bytes of one file
LARGEST_ANSWER = 32 << 20  # bytes
NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}(/[A-Za-z0-9_][\w.-]{0,99}){0,5}\.(json|ya?ml)", re.ASCII)
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "PERDURE_STORY_SETTINGS")
SCHEDULE = "perdure.failing.json"

Files = Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=200)]
Names = Annotated[list[str], msgspec.Meta(min_length=1, max_length=200)]
_places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


class SimulationBody(m.Body):
    files: Files  # texts by name: the document, its scenarios, and what those name
    document: str
    runs: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)] = 0
    faults: m.Texts | None = None
    scenario: str = ""
    input: Any = msgspec.UNSET
    trace: str = ""  # the name of a schedule, or of a finding of `check`


class ScenariosBody(m.Body):
    files: Files
    places: Names  # of scenarios or documents
    crash: Literal["all", "none"] = "none"
    only: str = ""
    coverage: Literal["text", "mermaid", "dot", "svg"] | None = None


async def simulate_document(call: ApiCall) -> Result:
    body: SimulationBody = call.body
    words = ["sim", body.document, "--runs", str(body.runs), "--seed", str(body.seed), "--write", SCHEDULE]
    words += [] if body.faults is None else [f"--faults={','.join(body.faults)}"]
    words += [f"--scenario={body.scenario}"] if body.scenario else []
    words += [] if body.input is msgspec.UNSET else [f"--input={jsontext.encode(body.input).decode()}"]
    words += [f"--trace={_name(body.trace, body.files)}"] if body.trace else []
    return Answer(await _play(call, body.files, [body.document], words))


async def play_scenarios(call: ApiCall) -> Result:
    body: ScenariosBody = call.body
    words = ["test", *body.places, "--crash", body.crash]
    words += [f"--only={body.only}"] if body.only else []
    words += [f"--coverage={body.coverage}"] if body.coverage else []
    return Answer(await _play(call, body.files, body.places, words))


async def _play(call: ApiCall, files: Mapping[str, str], places: Sequence[str], words: Sequence[str]) -> Any:
    for name in files:
        if not NAME.fullmatch(name) or ".." in name:
            raise BadRequest(f"{name[:100]!r} is not a name of a file (expected e.g. flows/order.yaml)")
    for place in places:
        _name(place, files)
    documents = [AppliedDocument(name, text) for name, text in files.items() if ".test." not in name]
    await call.check_documents(documents)
    async with _place():
        with tempfile.TemporaryDirectory(prefix="perdure-analysis-") as folder:
            await asyncio.to_thread(_write, Path(folder), files)
            answer = await _run(Path(folder), [*words, "--confined", "--json"])
            schedule = Path(folder) / SCHEDULE
            if answer.get("shrunk") and schedule.is_file():
                answer["shrunk"]["schedule"] = jsontext.decode(schedule.read_bytes())
            return answer


def _name(name: str, files: Mapping[str, str]) -> str:
    if name not in files:
        raise BadRequest(f"there is no {name[:100]!r} in `files`")
    return name


@contextlib.asynccontextmanager
async def _place() -> AsyncIterator[None]:
    """One of the places for processes; raises `TooManyRequests` if there is none soon."""
    places = _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MOST_AT_ONCE))
    try:
        await asyncio.wait_for(places.acquire(), WAIT)
    except TimeoutError:
        raise TooManyRequests("other simulations and tests are under way") from None
    try:
        yield
    finally:
        places.release()


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError:  # a file and a folder of one name
            raise BadRequest(f"{name!r} cannot be written beside the others") from None


async def _run(folder: Path, words: Sequence[str]) -> Any:
    """What the command answers; its errors are those of this request."""
    variables = {name: value for name in KEPT_VARIABLES if (value := os.environ.get(name)) is not None}
    # -I: nothing in the folder is imported.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "perdure", *words),
        cwd=folder,
        env={**variables, "HOME": str(folder), "TMPDIR": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LARGEST_ANSWER,
    )
    try:
        _limit(process.pid)
        assert process.stdout is not None
        async with asyncio.timeout(LONGEST):
            text = await process.stdout.read(LARGEST_ANSWER)
            while len(text) < LARGEST_ANSWER and (more := await process.stdout.read(LARGEST_ANSWER - len(text))):
                text += more
            code = await process.wait()
    except TimeoutError:
        message = f"it takes longer than {LONGEST:g} s, which is the limit of a server"
        raise BadRequest(message, hint="Ask for fewer runs, or run the command where you are.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _read(text, code)


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


def _read(text: bytes, code: int) -> Any:
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
        refusals=(422, 429),
    ),
)
