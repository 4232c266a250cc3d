"""Scenario files beside documents: files, read, run, and repeated with a crash before and after every commit."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perdure.analysis.coverage import Coverage
from perdure.analysis.expectations import differences, shown
from perdure.analysis.mocks import Mocks, recorded_outcomes
from perdure.analysis.scenarios import CODE, DocumentScenario, ScenarioFile, read_scenarios
from perdure.analysis.verdicts import DocumentCoverage, ScenarioVerdict
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.problems import Problem
from perdure.kernel.documents.validation import AppliedDocument, Validated
from perdure.kernel.errors import InvalidDocument, PerdureError, UnfitInput
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Outcome
from perdure.services import SCENARIO_SUFFIXES as SUFFIXES
from perdure.services.scenarios.mocked_tasks import scenario_languages
from perdure.services.scenarios.stage import NEVER, Play, ScenarioStage
from perdure.wiring import load_sources

DOCUMENT_SUFFIXES = (".json", ".yaml", ".yml")
MEMORY = Path("/dev/shm")  # where files are kept in memory; elsewhere they are temporary
MOST_CRASHES_SHOWN = 3
LARGEST_FILE = 64 << 20  # bytes


class BadScenario(InvalidDocument):
    """A file of scenarios has problems."""

    code = "BAD-SCENARIO"
    hint = "Correct the file; docs/guide/trust.md lists what it may contain."


class NoScenarios(UnfitInput):
    """There is nothing to test at the place that was named."""

    code = "NO-SCENARIOS"
    hint = "Write scenarios into a file NAME.test.yaml beside the document NAME.yaml or NAME.json."


class TestedFile:
    """One file of scenarios, with the document that it is about."""

    def __init__(self, path: Path, file: ScenarioFile, document: Path, *, is_confined: bool = False) -> None:
        self.path = path
        self.file = file
        self.document = document
        self.is_confined = is_confined  # nothing but mocks answers

    def beside(self) -> list[Path]:
        """The files that its scenarios name besides the document."""
        recorded = [scenario.recorded for scenario in self.file.scenarios if scenario.recorded is not None]
        return [self.path.parent / name for name in dict.fromkeys((*self.file.apply, *recorded))]


def find_files(place: str) -> list[Path]:
    """Those of a folder, the file itself, or those beside a document."""
    path = Path(place)
    if path.is_dir():
        files = sorted(item for suffix in SUFFIXES for item in path.rglob(f"*{suffix}") if item.is_file())
        if not files:
            raise NoScenarios(
                f"{place}: the folder contains no scenarios ({', '.join('*' + item for item in SUFFIXES)})"
            )
        return files
    if not path.exists():
        raise FileNotFoundError(None, "there is no such file or folder", str(place))
    if path.name.endswith(SUFFIXES):
        return [path]
    files = [item for item in _beside(path) if item.is_file()]
    if not files:
        expected = f"{path.stem}{SUFFIXES[0]}"
        raise NoScenarios(f"{place}: it has no scenarios (expected a file {expected} beside it)")
    return files


def _beside(document: Path) -> list[Path]:
    return [document.with_name(document.stem + suffix) for suffix in SUFFIXES]


def read_files(
    paths: Iterable[Path], *, is_confined: bool = False, namespace: str = DEFAULT_NAMESPACE
) -> list[TestedFile]:
    """All of them, or `BadScenario` with every problem of every file.

    `is_confined`: they are of somebody else. They load no code, call nothing, and name no file outside this folder.
    `namespace`: where scenarios are played that name none.
    """
    files: list[TestedFile] = []
    wrong: list[tuple[str, Problem]] = []
    for path in paths:
        file, problems = read_scenarios(read_bounded(path), namespace)
        wrong += [(str(path), problem) for problem in problems]
        if file is None:
            continue
        if is_confined and file.document is not None and not _is_inside(path.parent / file.document):
            wrong.append((str(path), Problem(CODE, f"{file.document} is outside of this folder", "document", 1, 1)))
            continue  # whether there is such a file is not told
        document = _document_of(path, file)
        if document is None:
            named = file.document or f"{_stem(path)}{{{','.join(DOCUMENT_SUFFIXES)}}}"
            wrong.append((str(path), Problem(CODE, f"its document is not there: {named}", "document", 1, 1)))
        else:
            files.append(TestedFile(path, file, document, is_confined=is_confined))
            wrong += [(str(path), problem) for problem in _refused(files[-1])] if is_confined else []
    if wrong:
        raise BadScenario(
            "\n".join(problem.describe(file) for file, problem in wrong),
            problems=[
                {"file": file, "message": problem.message, "line": problem.line, "path": problem.path}
                for file, problem in wrong
            ],
        )
    return files


def _refused(tested: TestedFile) -> Iterator[Problem]:
    """What a file of somebody else may not ask for."""
    if tested.file.load:
        yield Problem(CODE, "`load` is not possible here: no code is loaded for files of others", "load", 1, 1)
    for number, scenario in enumerate(tested.file.scenarios):
        if scenario.use:
            message = "`use` is not allowed here: in files of strangers only mocks answer"
            yield Problem(CODE, message, f"scenarios[{number}].use", scenario.line, 1)
    for path in (tested.document, *tested.beside()):
        if not _is_inside(path):
            yield Problem(CODE, f"{path} is outside of this folder", "", 1, 1)


def _is_inside(path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(Path.cwd().resolve())
    except (OSError, ValueError):  # it cannot be the name of a file
        return False


def read_bounded(path: Path) -> bytes:
    """A file that scenarios name; a link in a folder of strangers may lead to anything."""
    with path.open("rb") as file:
        text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise BadScenario(f"{path} has more than {LARGEST_FILE >> 20} MiB")
    return text


def _stem(path: Path) -> str:
    return next(path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix))


def _document_of(path: Path, file: ScenarioFile) -> Path | None:
    if file.document is not None:
        named = path.parent / file.document
        return named if named.is_file() else None
    beside = (path.with_name(_stem(path) + suffix) for suffix in DOCUMENT_SUFFIXES)
    return next((item for item in beside if item.is_file()), None)


async def validate_document(
    validator: DocumentValidator, origin: str, text: bytes, applied: Sequence[AppliedDocument], namespace: str
) -> tuple[Dialect, Validated]:
    """A document that can be run, or `InvalidDocument` with every problem."""
    language = await validator.find_language(text)
    if language is None:
        raise InvalidDocument(f"{origin}: it is in no language that is known here")
    validated = await validator.validate(language, text, applied, namespace=namespace)
    if validated.has_errors or validated.program is None:
        problems = "\n".join(problem.describe(origin) for problem in validated.problems)
        raise InvalidDocument(problems or f"{origin}: there is nothing in it that can be run")
    return language, validated


class Bench:
    """A document, validated once, on which scenarios are played."""

    def __init__(self, tested: TestedFile, applied: Sequence[AppliedDocument] = ()) -> None:
        self.tested = tested
        self.text = read_bounded(tested.document)
        folder = tested.path.parent
        load_sources(str(folder / source) if source.endswith(".py") else source for source in tested.file.load)
        self.applied = [*applied]
        self.applied += [
            AppliedDocument(str(folder / name), (folder / name).read_text(encoding="utf-8"))
            for name in tested.file.apply
        ]

    async def checked(self, scenario: DocumentScenario) -> tuple[dict[str, Dialect], Dialect, Validated]:
        dialects = scenario_languages([*scenario.mocks])
        language, validated = await validate_document(
            DocumentValidator(dialects), str(self.tested.document), self.text, self.applied, scenario.namespace
        )
        return dialects, language, validated

    def recorded(self, scenario: DocumentScenario) -> dict[str, list[Outcome]]:
        if scenario.recorded is None:
            return {}
        path = self.tested.path.parent / scenario.recorded
        try:
            return recorded_outcomes(_events(read_bounded(path)))
        except (OSError, ValueError, RecursionError) as error:
            raise BadScenario(f"{path}: {error}") from None

    async def play(self, scenario: DocumentScenario, crash_at: int = NEVER, *, after: bool = False) -> Play:
        dialects, language, validated = await self.checked(scenario)
        mocks = Mocks(scenario.mocks, scenario.step_mocks, recorded=self.recorded(scenario))
        # Whoever confines it removes TMPDIR when it is killed.
        place = MEMORY if MEMORY.is_dir() and not self.tested.is_confined else None
        with tempfile.TemporaryDirectory(prefix="perdure-scenario-", dir=place) as folder:
            stage = ScenarioStage(Path(folder), scenario, dialects, mocks, crash_at=crash_at, after=after)
            stage.calls_functions = not self.tested.is_confined
            async with stage:
                return await stage.play(self.text, (language, validated), self.applied)


def _events(text: bytes) -> Iterator[Any]:
    """A JSON list, an object with `events`, or one event on each line."""
    stripped = text.strip()
    if stripped[:1] == b"[":
        yield from jsontext.decode(stripped)
    elif b"\n" not in stripped:
        data = jsontext.decode(stripped)
        yield from data.get("events", [data])
    else:
        yield from (jsontext.decode(line) for line in stripped.splitlines() if line.strip())


async def play_files(
    files: Sequence[TestedFile],
    *,
    crashes: bool = False,
    only: str = "",
    applied: Sequence[AppliedDocument] = (),
    say: Callable[[ScenarioVerdict], None] = lambda verdict: None,
) -> tuple[list[ScenarioVerdict], list[DocumentCoverage]]:
    """Play every scenario; `crashes`: each again with a crash before and after every commit.

    `applied`: what the documents may refer to.
    """
    verdicts: list[ScenarioVerdict] = []
    coverages: dict[str, Coverage] = {}
    for item in files:
        bench = Bench(item, applied)
        for scenario in item.file.scenarios:
            if only and only not in scenario.name:
                continue
            began = time.monotonic()
            verdict, play = await _play_scenario(bench, scenario, crashes=crashes and scenario.crash)
            verdict.seconds = time.monotonic() - began
            verdicts.append(verdict)
            say(verdict)
            if play is not None and play.seen.graph is not None and play.seen.trace is not None:
                document = str(item.document)
                coverages.setdefault(document, Coverage(play.seen.graph)).add(play.seen.trace)
    return verdicts, [DocumentCoverage(name, coverage) for name, coverage in coverages.items()]


async def _play_scenario(
    bench: Bench, scenario: DocumentScenario, *, crashes: bool
) -> tuple[ScenarioVerdict, Play | None]:
    tested = bench.tested
    verdict = ScenarioVerdict(str(tested.path), str(tested.document), scenario.name, scenario.line)
    try:
        play = await bench.play(scenario)
    except (PerdureError, TimeoutError) as error:
        verdict.differences.append(str(error) or f"it did not come to rest ({type(error).__name__})")
        return verdict, None
    verdict.status, verdict.virtual_seconds, verdict.commits = play.seen.status, play.seconds, play.commits
    verdict.differences += play.differences
    verdict.differences += differences(scenario.expect, play.seen)
    verdict.differences += [
        f"nothing answers for {name!r}: give it a mock, load its function, or name it in `use`"
        for name in play.unmocked
    ]
    if crashes and not verdict.differences:
        await _crash_everywhere(bench, scenario, play, verdict)
    return verdict, play


async def _crash_everywhere(bench: Bench, scenario: DocumentScenario, play: Play, verdict: ScenarioVerdict) -> None:
    failures = 0
    for commit in range(1, play.commits + 1):
        for after in (False, True):
            place = f"a crash {'after' if after else 'before'} commit {commit} of {play.commits}"
            try:
                other = await bench.play(scenario, commit, after=after)
            except (PerdureError, TimeoutError) as error:
                changes = [str(error) or f"it did not come to rest ({type(error).__name__})"]
            else:
                changes = list(changed(play, other))
            verdict.crashes += 1
            if changes:
                failures += 1
                if failures <= MOST_CRASHES_SHOWN:
                    verdict.differences += [f"{place}: {change}" for change in changes]
    if failures > MOST_CRASHES_SHOWN:
        verdict.differences.append(f"and {failures - MOST_CRASHES_SHOWN} more crashes change something")


def changed(play: Play, other: Play) -> Iterator[str]:
    """What a crash has changed, and must not."""
    before, now = play.seen, other.seen
    if before.status != now.status:
        yield f"status is {now.status!r}, without it {before.status!r}"
    if before.result != now.result:
        yield f"result is {shown(now.result)}, without it {shown(before.result)}"
    if before.error != now.error:
        yield f"error is {shown(now.error)}, without it {shown(before.error)}"
    for key, (name, arguments) in other.effects.calls.items():
        known = play.effects.calls.get(key)
        if known is None:
            yield f"{name!r} is called under the key {key!r}, without it never"
        elif known != (name, arguments):
            yield f"{name!r} is called with {arguments.decode()[:200]} under the key {key!r}, without it otherwise"
    for key in play.effects.calls.keys() - other.effects.calls.keys():
        yield f"{play.effects.calls[key][0]!r} is not called under the key {key!r}"
    if play.effects.completed.keys() != other.effects.completed.keys():
        yield f"effects completed: {sorted(other.effects.completed)}, without it {sorted(play.effects.completed)}"
    for key, count in other.effects.completed.items():
        if count > 1:
            yield f"the effect {key!r} was completed {count} times"
    yield from other.differences
