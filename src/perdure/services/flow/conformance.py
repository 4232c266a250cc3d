"""Conformance cases in the layout of the MWL suite (MWL-601): read, and run through the real engine."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.dialects.flow.views.result_comparison import differences
from perdure.engine.clock import SystemClock
from perdure.engine.handle import Handle, RunFailed
from perdure.engine.virtual_clock import VirtualClock
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.services.sandbox import settle
from perdure.wiring import Engine

_PREFIX = "https://mwl.dev/v0.1/conformance"
CLAIMED = frozenset(
    {
        f"{_PREFIX}/core",
        f"{_PREFIX}/expressions/cel",
        *(f"{_PREFIX}/expressions/cel/{name}" for name in ("strings", "lists", "sets", "encoders", "math")),
    }
)
"""Profiles of the language that Perdure claims (MWL-600)."""

SCENARIO_TIMEOUT = 30.0  # seconds that one scenario may take


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str  # case/scenario
    definition: bytes
    input: Any
    arguments: Any  # None: none were supplied
    expected: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    scenario: Scenario
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    scenarios: list[Scenario]
    out_of_scope: list[str]  # cases whose profile is not claimed


def read_suite(folders: Iterable[Path]) -> Suite:
    """Every case in these folders, at any depth; a folder may also be a case itself."""
    suite = Suite([], [])
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(None, "there is no such folder", str(folder))
        for described in sorted(folder.rglob("case.json")):
            case = described.parent
            profiles = _read(described).get("profiles", [])
            if set(profiles) <= CLAIMED:
                suite.scenarios.extend(_scenarios(case))
            else:
                suite.out_of_scope.append(case.name)
    return suite


def _scenarios(case: Path) -> Iterator[Scenario]:
    definition = (case / "definition.json").read_bytes()
    for place in sorted(entry for entry in (case / "scenarios").iterdir() if entry.is_dir()):
        arguments = place / "arguments.json"
        yield Scenario(
            f"{case.name}/{place.name}",
            definition,
            _read(place / "input.json"),
            _read(arguments) if arguments.exists() else None,
            _read(place / "expected-result.json"),
        )


def _read(path: Path) -> Any:
    try:
        return jsontext.read_strict(path.read_bytes())
    except jsontext.NotJson as error:
        raise PerdureError(f"{path}: {error}", hint="A case's files are JSON.") from None


async def run_suite(scenarios: list[Scenario], store: Path, *, virtual_time: bool) -> list[Verdict]:
    """Run all scenarios side by side on one store; in virtual time a sleep of an hour takes no time."""
    url = f"sqlite:///{store}"
    if not virtual_time:
        async with Engine(url, clock=SystemClock(), recover=False) as engine:
            return list(await asyncio.gather(*(_verdict(engine, scenario) for scenario in scenarios)))
    clock = VirtualClock()
    async with Engine(url, clock=clock, recover=False) as engine:
        verdicts = asyncio.gather(*(_verdict(engine, scenario) for scenario in scenarios))
        while not verdicts.done():
            await _let_time_pass(engine, clock)
        return list(await verdicts)


async def _let_time_pass(engine: Engine, clock: VirtualClock) -> None:
    """When nothing moves by itself any more, the next thing that is due comes at once."""
    await settle(engine)
    due = clock.next_alarm()
    if due is not None:
        clock.move_to(due)
    else:
        await asyncio.sleep(0.001)


async def _verdict(engine: Engine, scenario: Scenario) -> Verdict:
    options = {} if scenario.arguments is None else {"args": scenario.arguments}
    try:
        handle = await engine.start(scenario.definition, scenario.input, options=options)
        actual = await asyncio.wait_for(_result(handle), SCENARIO_TIMEOUT)
    except TimeoutError:
        return Verdict(scenario, (f"no Result within {SCENARIO_TIMEOUT:g} seconds",))
    except PerdureError as error:
        return Verdict(scenario, tuple(str(error).splitlines()))
    return Verdict(scenario, tuple(differences(scenario.expected, actual)))


async def _result(handle: Handle) -> Any:
    try:
        await handle.result()
    except RunFailed:
        pass  # a failure is a Result like any other
    return await handle.show()
