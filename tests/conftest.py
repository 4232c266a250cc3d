"""Tests written as coroutines run on an event loop of their own; databases are real."""

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import storing

if TYPE_CHECKING:
    from tests.postgres import Server


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 120))
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `every_store` runs on each of them; `PERDURE_TEST_STORE` picks one."""
    marker = metafunc.definition.get_closest_marker
    if marker("every_store") is not None and marker("sqlite_inside") is None:
        metafunc.parametrize("world_store", storing.chosen(), indirect=True)


@pytest.fixture(autouse=True)
def world_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which store the worlds of this test are on (see `tests/storing.py`)."""
    name: str = getattr(request, "param", storing.SQLITE)
    if name == storing.SQLITE:
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
