"""Tests written as coroutines run on an event loop of their own; databases are real."""

import asyncio
import gc
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from perdure.testing.drill import Drill
from perdure.wiring import add_language
from tests import ordering, sampling, storing

if TYPE_CHECKING:
    from tests.postgres import Server


IN_MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes
ENDING = 30  # seconds for tasks that were cancelled to end
LONGEST = 300  # seconds; where a test takes all of its cases, thirty times as long


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers on a database keep their token and certificates in the user's state folder: here, one of the test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed") is None and sampling.seed() is not None:
        config.option.hypothesis_seed = sampling.seed_text()  # its examples, too, are those of this commit
    os.environ[sampling.SEED] = sampling.seed_text()  # for all test processes alike: a commit may come meanwhile
    os.environ.setdefault("TMPDIR", _folder_for_tests())
    tempfile.tempdir = None  # look again
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")  # on a busy machine examples take long, which is not the test's fault
    add_language(Drill)


def _folder_for_tests() -> str:
    """In memory, where there is room: stores sync a hundred thousand times, and no test can take the power away."""
    if not IN_MEMORY.is_dir() or not os.access(IN_MEMORY, os.W_OK):
        return tempfile.gettempdir()
    space = os.statvfs(IN_MEMORY)
    is_fit = space.f_bavail * space.f_frsize > ROOM and not space.f_flag & os.ST_NOEXEC
    return str(IN_MEMORY) if is_fit else tempfile.gettempdir()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"sampled cases: {sampling.described()}", f"files: TMPDIR={tempfile.gettempdir()}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Of this process, its workers and what they started and waited for; the gate's whole budget is 14 minutes."""
    spent = sum(os.times()[:4])
    terminalreporter.write_line(f"processor time: {spent / 60:.1f} minutes; sampled cases: {sampling.described()}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: the garbage collector would go through it again and again, for nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    commandline = sys.modules.get("tests.cli.commandline")
    if commandline is not None:
        commandline.end_fork_server()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases that are not in turn are left out, unless tests were named one by one; those that wait come first."""
    if any("::" in argument for argument in config.args):
        return
    chosen = [item for item in items if sampling.is_in_turn(item)]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    workers: int | None = getattr(config, "workerinput", {}).get("workercount")
    if workers is not None:
        files = [item.nodeid.partition("::")[0] for item in items]
        items[:] = [items[number] for number in ordering.order(files, workers)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    timeout = LONGEST if sampling.seed() is not None else 30 * LONGEST
    with asyncio.Runner() as runner:
        try:
            runner.run(asyncio.wait_for(pyfuncitem.obj(**arguments), timeout))
        finally:
            end_tasks(runner.get_loop())
    return True


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what a test has left. `asyncio` waits for ever for a task that is cancelled and goes on; we name it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=ENDING))
    stuck = [task for task in left if not task.done()]
    for task in stuck:
        task.print_stack()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        asyncio.tasks._unregister_task(task)  # else the runner waits for it
    assert not stuck, f"cancelled, and goes on: {stuck}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `every_store` runs on each of them; `PERDURE_TEST_STORE` picks one."""
    marker = metafunc.definition.get_closest_marker
    if (mark := marker("every_store")) is not None and marker("sqlite_inside") is None:
        metafunc.parametrize("world_store", storing.chosen(**mark.kwargs), indirect=True)


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> sampling.Sample:
    """What of many cases inside one test is in turn (see `tests/sampling.py`)."""
    return sampling.Sample.of(request.node)


@pytest.fixture(autouse=True)
def loaded_sources() -> Iterator[None]:
    """What a test has loaded is forgotten after it: subprocesses of later tests would look for files that are gone."""
    yield
    registry = sys.modules.get("perdure.providers.registry")
    if registry is not None:
        registry.shared.sources[:] = [source for source in registry.shared.sources if Path(source).exists()]


@pytest.fixture(autouse=True)
def world_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which store the worlds of this test are on (see `tests/storing.py`)."""
    name: str = getattr(request, "param", storing.SQLITE)
    if name == storing.SQLITE:
        with storing.worlds_on(storing.open_file):
            yield name
    else:
        databases = request.getfixturevalue("world_databases")
        with storing.worlds_on(databases(name).open):
            yield name
        databases(name).forget()


@pytest.fixture(scope="session")
def world_databases(postgres_server: "Callable[[int], Server]") -> "Iterator[Callable[[str], storing.Databases]]":
    """Name of a store → databases for worlds, kept for the whole session."""
    with ExitStack() as stack:
        made: dict[str, storing.Databases] = {}

        def databases(name: str) -> storing.Databases:
            if name not in made:
                made[name] = storing.Databases(postgres_server(int(name.removeprefix("postgres"))), stack)
            return made[name]

        yield databases


@pytest.fixture(scope="session")
def postgres_server(testrun_uid: str) -> "Iterator[Callable[[int], Server]]":
    """Version → a real server, the same one for the whole session (see `tests/postgres.py`)."""
    from tests import postgres

    with ExitStack() as stack:
        started: dict[int, Server] = {}

        def start(version: int) -> "Server":
            if not os.environ.get(postgres.GIVEN) and postgres.binaries(version) is None:
                pytest.skip(f"there is no PostgreSQL {version} on this machine")
            if version not in started:
                started[version] = stack.enter_context(postgres.server(version, testrun_uid))
            return started[version]

        yield start


@pytest.fixture
def postgres_url(postgres_server: "Callable[[int], Server]") -> Iterator[str]:
    """The address of a fresh database on the newest PostgreSQL we test with."""
    with postgres_server(18).database() as address:
        yield address
