"""A run that cannot be decided says why, without the secrets that came with its input."""

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.dialects.playbook import Playbook
from perdure.dialects.playbook.run import moves
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

DOCUMENT = playbook("""
keychain: [{name: shop, kind: bearer, token: "{{ workload.token }}"}]
workflow: [{step: a, tool: {kind: shell, cmds: "sleep 0.3"}}]
""")


@pytest.mark.parametrize("size", [1, 200_000])
def test_why_a_run_is_stuck_quotes_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    """In lists, views and logs, with the traceback; also where the input lies beside the log."""
    secret = f"t-{secrets.token_hex(10)}"
    is_broken = False

    def break_off(*arguments: Any) -> Any:
        if is_broken:
            raise ValueError(f"this is unexpected: {secret}")
        return moves.advance(*arguments)

    async def get_stuck() -> None:
        nonlocal is_broken
        async with perdure.Engine(f"sqlite:///{tmp_path}/perdure.db") as engine:
            run = await engine.start(DOCUMENT.encode(), {"token": secret, "more": "x" * size})
            is_broken = True
            while not (await engine.find(run.id)).stuck:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(Playbook, "advance", staticmethod(break_off))
    with caplog.at_level(logging.DEBUG, logger="perdure"):
        asyncio.run(asyncio.wait_for(get_stuck(), 60))

    line = CommandLine(tmp_path)
    (row,) = [row for row in line.here("ps", "--all", "--json").json if row["stuck"]]
    outputs = [line.here(*words, code=None) for words in (("ps",), ("ps", "--json"), ("show", row["id"]))]
    assert "ValueError" in row["stuck"] and "ValueError" in caplog.text
    assert secret not in caplog.text + "".join(done.out + done.err for done in outputs)
