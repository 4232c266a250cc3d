"""No secret is left anywhere: not in the store's files, not in the output of commands, not after a power cut."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.stores.protocol import Store
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.clock import FakeClock
from perdure.testing.crashing import CrashingStore
from perdure.wiring import Engine
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

SECRET = "pa55-w0rd-of-the-shop"
OTHER = "k3y-from-a-file"


@pytest.fixture
def perdure_line(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


TALKATIVE = playbook("""
keychain:
  - {name: shop, kind: secret_manager, provider: env, map: {token: SHOP}}
  - {name: user, kind: basic, username: ada, password: "{{ keychain.shop.token }}"}
workflow:
  - step: echo
    tool:
      - file: {kind: secrets, provider: file, path: KEYFILE}
      - shell: {kind: shell, cmds: ["echo out $T; echo err $T >&2; echo $U"], env: {T: "{{ keychain.shop.token }}", U: "{{ results.file }}"}}
      - python:
          kind: python
          args: {t: "{{ keychain.shop.token }}", u: "{{ results.file }}"}
          code: |
            import sys, os
            print("printed", t, u); print("printed", t, file=sys.stderr)
            os.write(1, ("raw " + t + chr(10)).encode())
            result = {"t": t, t: [u, "a" + t + "b"], "big": (t + " ") * 20000}
      - raises:
          kind: python
          args: {t: "{{ keychain.shop.token }}"}
          code: raise ValueError("token " + t)
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome.error.message }}"}}}}]}}
      - exits:
          kind: shell
          cmds: "echo {{ keychain.user.password }} >&2; exit 3"
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {told: "{{ outcome.error }}"}}}}]}}
      - later: {kind: shell, cmds: "cat NOTE"}
      - nowhere: {kind: http, url: "http://{{ keychain.user.password }}.invalid/", spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
      - dies: {kind: python, args: {t: "{{ keychain.shop.token }}"}, code: "raise KeyError(t)"}
""")  # noqa: E501


@pytest.mark.parametrize("verbosity", [(), ("-vv",)])
def test_nothing_secret_is_left(perdure_line: CommandLine, verbosity: tuple[str, ...]) -> None:
    """PBK-185 PBK-155 PBK-178: every file of the store, stdout, stderr, show and history, failing tasks included."""
    folder = perdure_line.folder
    (folder / "key").write_text(OTHER + "\n")
    (folder / "note").write_text(f"somebody wrote {SECRET} here\n")
    text = TALKATIVE.replace("KEYFILE", str(folder / "key")).replace("NOTE", str(folder / "note"))
    (folder / "book.yaml").write_text(text)

    secrets: dict[str, Any] = {"PERDURE_SECRET_SHOP": SECRET, "PERDURE_KEYCHAIN_FILES": str(folder / "key")}
    done = perdure_line("run", "book.yaml", "--json", *verbosity, "--db", "sqlite:///runs.db", code=3, **secrets)
    run = done.json["execution_id"]
    output = [
        done.out,
        done.err,
        *(perdure_line.here(verb, run, "--json", "--db", "sqlite:///runs.db").out for verb in ("show", "history")),
        perdure_line.here("history", run, "--full", "--db", "sqlite:///runs.db").out,
        perdure_line.here("history", run, "--raw", "--json", "--db", "sqlite:///runs.db").out,
        perdure_line.here("ps", "--json", "--db", "sqlite:///runs.db").out,
    ]

    assert done.json["failures"][-1]["error"]["message"] == "no such key: '[redacted]'"
    assert done.json["ctx"]["seen"] == "token [redacted]"
    assert done.json["ctx"]["told"]["code"] == 3
    files = [path for path in folder.iterdir() if path.name.startswith("runs.db")]
    assert any(path.stat().st_size > 100_000 for path in files), "the large result is in there"
    for secret in (SECRET, OTHER):
        assert [text for text in output if secret in text] == []
        assert [path.name for path in files if secret.encode() in path.read_bytes()] == []


KILLED = playbook("""
keychain: [{name: shop, kind: secret_manager, provider: env, map: {token: SHOP}}]
workflow:
  - step: s
    tool:
      - read: {kind: secrets, provider: file, path: KEYFILE}
      - slow: {kind: shell, cmds: "echo began >> BEGAN; test -e GO || sleep 60"}
      - use:
          kind: python
          args: {u: "{{ results.read }}", t: "{{ keychain.shop.token }}"}
          code: result = [len(u), len(t), u.startswith("k3y")]
""")


def test_a_power_cut_behind_a_secrets_task(perdure_line: CommandLine) -> None:
    """PBK-195 PBK-100, invariant 16 of the architecture: its result was not recorded, so it is read again."""
    folder = perdure_line.folder
    (folder / "key").write_text(OTHER)
    text = KILLED.replace("KEYFILE", str(folder / "key"))
    text = text.replace("BEGAN", str(folder / "began")).replace("GO", str(folder / "go"))
    (folder / "book.yaml").write_text(text)
    secrets: dict[str, Any] = {"PERDURE_SECRET_SHOP": SECRET, "PERDURE_KEYCHAIN_FILES": str(folder / "key")}
    going = perdure_line.start("run", "book.yaml", "--json", **secrets)
    deadline = time.monotonic() + 60
    while not (folder / "began").exists():
        assert time.monotonic() < deadline and going.process.poll() is None
        time.sleep(0.02)
    going.send(signal.SIGKILL)
    going.process.wait()
    files = [path for path in folder.iterdir() if path.name.startswith("perdure.db")]
    assert [path.name for path in files if OTHER.encode() in path.read_bytes()] == []
    (folder / "go").touch()
    (folder / "key").write_text(OTHER + "-and-changed")

    perdure_line("resume", **secrets)

    (row,) = perdure_line.here("ps", "--json", "--all").json
    view = perdure_line.here("show", row["id"], "--json").json
    assert view["result"] == [len(OTHER) + len("-and-changed"), len(SECRET), True]
    assert view["steps"]["s"]["task_runs"] == {"read": 1, "slow": 1, "use": 1}
    assert (folder / "began").read_text() == "began\n" * 2


CRASHING = playbook("""
keychain:
  - {name: shop, kind: secret_manager, provider: env, map: {token: SHOP}}
  - {name: again, kind: bearer, token: "{{ keychain.shop.token }}", scope: shared}
workflow:
  - step: s
    tool:
      - read: {kind: secrets, key: SHOP}
      - pass: {kind: noop}
      - mix: {kind: noop, result: {a: "{{ _prev | length }}", b: "{{ keychain.again.token | length }}", c: "{{ results.read }}"}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: [1, 2], iterator: n, spec: {mode: parallel, reduce: {sum: sum}}}
    tool:
      kind: noop
      result: "{{ iter.n * (keychain.shop.token | length) }}"
      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {sum: "{{ outcome.result }}"}}}}]}}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, result: ["{{ ctx.sum }}", "{{ steps.s.result }}"]}}
""")  # noqa: E501


async def test_a_crash_at_any_commit_changes_nothing_about_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-195 PBK-180: with the real worker, whose memory is gone each time."""
    monkeypatch.setenv("PERDURE_SECRET_SHOP", SECRET)
    expected = [3 * len(SECRET), {"a": len(SECRET), "b": len(SECRET), "c": "[redacted]"}]
    clock = FakeClock()

    async def finish(store: Store, run: str) -> Any:
        async with Engine(store, clock=clock) as engine:
            await engine.resume()
            handle = engine.handle(run)
            await asyncio.wait_for(engine.wait(handle.id), 60)
            return await handle.show()

    commit, is_past_the_end = 1, False
    while not is_past_the_end:
        commit += 1
        for after in (False, True):
            path = tmp_path / f"{commit}-{after}.db"
            dying = CrashingStore(SqliteStore(path, clock.now, None), commit, after=after)
            engine = Engine(dying, clock=clock)
            await engine.runtime.open()
            handle = await engine.start(CRASHING.encode())
            waiting = asyncio.ensure_future(engine.wait(handle.id))
            crashed = asyncio.ensure_future(dying.crashed.wait())
            await asyncio.wait({waiting, crashed}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            is_past_the_end = waiting.done()
            await engine.runtime.die()
            crashed.cancel()
            waiting.cancel()
            await asyncio.gather(crashed, waiting, return_exceptions=True)

            view = await finish(SqliteStore(path, clock.now, None), handle.id)

            assert (view["status"], view["result"]) == ("success", expected), (commit, after)
            assert SECRET.encode() not in path.read_bytes()
    assert commit > 5
