"""A run in one file: exported, opened without its store, and refused when a byte of it was changed (ANA-033)."""

import asyncio
import base64
import copy
import json
import random
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine
from tests.cli.test_diff import DOCUMENTS

import perdure
from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.runs import capsule_writer
from perdure.engine.runs.capsule_writer import write_capsule
from perdure.engine.runs.capsules import FIRST, CapsuleChain, CapsuleDamaged, read_capsule
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import RunFilter

SECRET = "pa55-w0rd-of-the-payload"
WITH_SECRET = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: shop, path: shop}
workload: {password: "", text: ""}
keychain:
  - {name: user, kind: basic, username: ada, password: "{{ workload.password }}"}
workflow:
  - step: begin
    tool: {kind: python, args: {text: "{{ workload.text }}"}, code: "print('printed', text); result = text"}
"""
CALLER = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: caller, path: caller}
workload: {word: ""}
workflow:
  - step: go
    tool: {kind: playbook, path: shop, args: {password: "{{ workload.word }}", text: "it is {{ workload.word }}!"}}
"""
LARGE = """
{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "ask", "steps": {
  "ask": {"action": "Call", "next": "done",
          "call": {"provider": "mwl:provider.call/perdure/echo/v1", "with": {"value": "{{ step.input }}"}}},
  "done": {"action": "Return", "value": "{{ step.input }}"}}}
"""


def _run(document: str, input: Any, folder: Path) -> tuple[str, str]:
    """The run, which has ended, and the address of its store."""
    (folder / "doc").write_text(document)
    url = f"sqlite:///{folder}/runs.db"

    async def perform() -> str:
        async with perdure.Engine(url) as engine:
            handle = await engine.start(folder / "doc", input)
            await handle.result()
            return handle.id

    return asyncio.run(perform()), url


@pytest.mark.parametrize("language", [*DOCUMENTS, "large"])
def test_a_run_is_opened_as_it_was(language: str, tmp_path: Path) -> None:
    run, url = _run(DOCUMENTS.get(language, LARGE), {"n": 3, "text": "x" * 200_000}, tmp_path)
    line, file = CommandLine(tmp_path), tmp_path / "run.perdure"
    written = line.here("export", run, "--file", str(file), "--db", url, "--json").json
    assert file.stat().st_mode & 0o777 == 0o600
    printed, kept = line.here("export", run, "--db", url).out.splitlines(), file.read_text().splitlines()
    assert [text[65:] for text in printed[1:]] == [text[65:] for text in kept[1:]]  # the first has the time
    verbs = ("show", "history", "graph", "timeline")
    expected = {verb: line.here(verb, run, "--db", url, "--json").json for verb in verbs}
    for path in tmp_path.glob("runs.db*"):
        path.unlink()
    for verb, facts in expected.items():
        shown = line.here("open", str(file), verb, "--json")
        assert shown.json == facts
        assert written["digest"] in shown.err
    line.here("open", str(file), "show", "--at", "2")
    line.here("open", str(file), "cancel", code=2)


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    run, url = _run(DOCUMENTS["story"], {"n": 3}, tmp_path)
    line = CommandLine(tmp_path)
    whole = line.here("export", run, "--db", url).out.encode()
    assert read_capsule(whole.splitlines(keepends=True)).head.run == run
    chance = random.Random(33)
    for place in [0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(300))]:
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(7)
        with pytest.raises(CapsuleDamaged):
            read_capsule(bytes(changed).splitlines(keepends=True))
    lines = whole.splitlines(keepends=True)
    for damaged in ([], lines[:-1], lines[:1], [*lines, lines[-1]], lines[1:], [lines[0], *lines[2:]]):
        with pytest.raises(CapsuleDamaged):
            read_capsule(damaged)
    (tmp_path / "bad").write_bytes(whole.replace(b"default", b"defalut"))
    assert "was changed" in line.here("open", "bad", code=7).err


def test_secrets_of_a_payload_are_not_in_it(tmp_path: Path) -> None:
    run, url = _run(WITH_SECRET, {"password": SECRET, "text": f"it is {SECRET}!"}, tmp_path)
    assert SECRET.encode() in (tmp_path / "runs.db").read_bytes()
    line, file = CommandLine(tmp_path), tmp_path / "run.perdure"
    line.here("export", run, "--file", str(file), "--db", url)
    capsule = read_capsule(file.read_bytes().splitlines(keepends=True))
    assert capsule.redacted and SECRET not in repr(capsule.records)
    shown = line.here("open", str(file), "history", "--raw", "--json")
    assert "it is [redacted]!" in shown.out and "redacted at" in shown.err
    assert [entry["text"] for entry in line.here("open", str(file), "logs", "--json").json] == [
        "printed it is [redacted]!"
    ]


def test_a_secret_of_a_run_is_hidden_in_the_runs_above_and_below_it(tmp_path: Path) -> None:
    """What the run below declares a secret is a plain input of the run that called it (ANA-033)."""
    (tmp_path / "doc").write_text(CALLER)

    async def export() -> list[list[bytes]]:
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            await engine.apply([AppliedDocument("shop", WITH_SECRET)])
            handle = await engine.start(tmp_path / "doc", {"word": SECRET})
            await handle.result()
            runs = [row.id for row in await engine.search(RunFilter())]
            assert len(runs) == 2
            return [[line async for line in write_capsule(engine, run, "0")] for run in runs]

    for lines in asyncio.run(export()):
        capsule = read_capsule(lines)
        assert capsule.redacted and SECRET not in repr(capsule.records) and SECRET[4:14] not in repr(capsule.records)


TALKS = """
import perdure

@perdure.provider("talks")
def talks(n):
    for number in range(n):
        print(f"line {number} " + "x" * 1000)
    return {}
"""
TALKING = (
    LARGE.replace("perdure/echo/v1", "perdure/talks/v1")
    .replace("value", "n", 1)
    .replace("step.input", "step.input.n", 1)
)


def test_what_tasks_printed_is_in_it_the_latest_lines_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ANA-033: bounded, tamper-evident, and shown as `perdure logs` shows it."""
    (tmp_path / "code.py").write_text(TALKS)
    (tmp_path / "doc").write_text(TALKING)
    line, url = CommandLine(tmp_path), f"sqlite:///{tmp_path}/runs.db"
    line.here("run", "doc", "--input", '{"n": 400}', "--load", "code.py", "--db", url)
    (run,) = [row["id"] for row in line.here("ps", "--db", url, "--json").json]
    whole = line.here("export", run, "--db", url).out.encode()
    (tmp_path / "run.perdure").write_bytes(whole)
    printed = line.here("logs", run, "--db", url, "--json").json
    assert len(printed) == 400
    assert line.here("open", "run.perdure", "logs", "--json").json == printed
    at = whole.index(b'{"log":[')
    for place in range(at, len(whole), 9_973):
        changed = bytearray(whole)
        changed[place] ^= 1
        with pytest.raises(CapsuleDamaged):
            read_capsule(bytes(changed).splitlines(keepends=True))

    monkeypatch.setattr(capsule_writer, "MOST_LOG_BYTES", 200_000)
    short = line.here("export", run, "--db", url).out
    (tmp_path / "short.perdure").write_text(short)
    shown = line.here("open", "short.perdure", "logs", "--json")
    kept = shown.json[1:]
    assert 0 < len(kept) < 200 and kept == printed[-len(kept) :]
    assert f"{400 - len(kept)} older lines that tasks printed are not in it" in shown.err
    assert f"{400 - len(kept)} older lines are gone" in shown.json[0]["text"]


def test_a_capsule_of_an_earlier_version_is_opened_and_one_of_a_later_is_not(tmp_path: Path) -> None:
    run, url = _run(DOCUMENTS["playbook"], {"n": 3}, tmp_path)
    line, file = CommandLine(tmp_path), tmp_path / "run.perdure"
    contents = [json.loads(text[65:]) for text in line.here("export", run, "--db", url).out.splitlines()]
    file.write_bytes(b"".join(_forged([{**contents[0], "format": 1, "engine": "0.0.9"}, *contents[1:]])))
    assert "by Perdure 0.0.9" in line.here("open", str(file)).err
    for member in ("format", "records"):
        file.write_bytes(b"".join(_forged([{**contents[0], member: contents[0][member] + 1}, *contents[1:]])))
        refused = line.here("open", str(file), code=7).err
        assert "written by a newer Perdure" in refused and "Open it with that version" in refused


@pytest.mark.parametrize("run", ["--svg=planted", "flow.json", "01m7pd36d0sccacb6p78w7z2z5"])
def test_the_run_of_a_capsule_is_one_that_it_has(run: str, tmp_path: Path) -> None:
    """Whoever wrote the file would otherwise give options and files to the command that looks at it."""
    own, url = _run(DOCUMENTS["flow"], {"n": 3}, tmp_path)
    line = CommandLine(tmp_path)
    (tmp_path / "flow.json").write_text(DOCUMENTS["flow"])
    contents = [json.loads(text[65:]) for text in line.here("export", own, "--db", url).out.splitlines()]
    contents[0]["run"] = run
    if run.startswith("-"):
        record = next(content["run"] for content in contents[1:] if "run" in content and "checksum" not in content)
        record[0] = run
    chain = CapsuleChain()
    (tmp_path / "hostile.perdure").write_bytes(b"".join(map(chain.add, contents)))

    refused = line.here("open", "hostile.perdure", "graph", code=None)
    assert "does not have the run" in refused.err and not (tmp_path / "planted").exists()


def test_numbers_and_bytes_that_nothing_can_keep_are_damage(tmp_path: Path) -> None:
    """They were faults of the command."""
    own, url = _run(DOCUMENTS["flow"], {"n": 3}, tmp_path)
    contents = [
        json.loads(text[65:]) for text in CommandLine(tmp_path).here("export", own, "--db", url).out.splitlines()
    ]
    at = next(at for at, content in enumerate(contents) if "events" in content)
    contents[at]["events"][1] = 2**80
    with pytest.raises(CapsuleDamaged):
        read_capsule(_forged(contents))

    text = b'{"perdure":"\xed\xa0\x80"}'
    digest = sha256(sha256(FIRST).digest() + text).hexdigest().encode()
    with pytest.raises(CapsuleDamaged, match="cannot be read"):
        read_capsule([digest + b" " + text + b"\n"])


def test_large_values_and_long_histories_are_written_with_pauses(tmp_path: Path) -> None:
    """A viewer of a server can ask for a capsule: others do not wait until it is written."""
    run, url = _run(LARGE, {"text": "x" * 3_000_000}, tmp_path)
    on_loop: list[int] = []
    threads: set[str] = set()
    before = CapsuleChain.record

    def record(chain: CapsuleChain, kind: str, record: Any) -> bytes:
        line = before(chain, kind, record)
        threads.add(threading.current_thread().name)
        if threading.current_thread() is threading.main_thread():
            on_loop.append(len(line))
        return line

    async def export() -> int:
        async with perdure.Engine(url) as engine:
            return sum([len(line) async for line in write_capsule(engine, RunId(run), "0")])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapsuleChain, "record", record)
        assert asyncio.run(export()) > 4_000_000
    assert max(on_loop) < 64 * 1024 and len(threads) > 1


def _forged(contents: list[Any]) -> list[bytes]:
    """A capsule with these lines, each with the digest that it must have: anybody can compute them."""
    chain, lines = sha256(b"perdure capsule").digest(), []
    for content in contents:
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        chain = sha256(chain + text).digest()
        lines.append(chain.hex().encode() + b" " + text + b"\n")
    return lines


RUN_FIELDS = ("id", "language", "name", "program", "parent", "labels", "key", "status", "has_work", "due", "created_at")


def _with(contents: list[Any], kind: str, place: int, value: Any) -> list[Any]:
    changed = copy.deepcopy(contents)
    line = next(line for line in changed if isinstance(line.get(kind), list))
    line[kind][place] = value
    return changed


def test_a_capsule_that_was_forged_is_refused_as_damaged(tmp_path: Path) -> None:
    """Records that do not belong together, times out of range and deep nesting were faults of the command."""
    run, url = _run(DOCUMENTS["flow"], {"n": 3, "text": "x"}, tmp_path)
    line, file = CommandLine(tmp_path), tmp_path / "run.perdure"
    line.here("export", run, "--file", str(file), "--db", url)
    contents = [json.loads(text[65:]) for text in file.read_text().splitlines()]
    assert read_capsule(_forged(contents)).head.run == run
    head = contents[0]
    forged: list[list[Any]] = [[{**head, "exported_at": at}, *contents[1:]] for at in (1 << 62, -1)]
    for field, value in (("status", "none"), ("program", "AAAA"), ("created_at", 1 << 62), ("due", -1)):
        forged.append(_with(contents, "run", RUN_FIELDS.index(field), value))
    forged.append([*contents[:-2], {"value": ["other", "AAAA", "AAAA"]}, contents[-2], {"end": len(contents)}])
    for log in (
        ["other", 1, 1, 1, "p", 1, 0, "W10="],
        [run, 1, 1, 1, "p", 1, 1, "W10="],
        [run, 1, 1, 1, "p", 0, 0, "W10="],
    ):
        forged.append([*contents[:-1], {"log": log}, {"end": len(contents)}])
    for text in (b"{}", b"no", b'[{"at":-1,"level":"info","text":""}]'):
        log = [run, 1, 1, 1, "p", 1, 1, base64.b64encode(text).decode()]
        forged.append([*contents[:-1], {"log": log}, {"end": len(contents)}])
    forged += [[*contents[:-1], {"lines_left_out": "x"}, {"end": len(contents)}]]
    forged += [_with(contents, "events", 0, "other"), [head, b"[" * 100_000], [head, b"{"], [b"5"]]
    for lines in forged:
        with pytest.raises(CapsuleDamaged):
            read_capsule(_forged(lines))
    for kind, place, value in (("document", 1, "flow@x"), ("document", 2, "ew=="), ("events", 2, "3f////8=")):
        file.write_bytes(b"".join(_forged(_with(contents, kind, place, value))))
        line.here("open", str(file), code=7)


async def test_a_long_document_is_compiled_beside_other_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer's request for a capsule of a short run stopped the event loop for as long as that took."""
    run, url = await asyncio.to_thread(_run, LARGE, {"text": "x"}, tmp_path)
    sizes: list[int] = []

    async def noted(size: int, work: Any) -> Any:
        sizes.append(size)
        return await done_aside(size, work)

    monkeypatch.setattr(capsule_writer, "done_aside", noted)
    async with perdure.Engine(url) as engine:
        assert [line async for line in write_capsule(engine, RunId(run), "0")]
    assert any(size >= WORK_OF_TEXT * len(LARGE) for size in sizes)


GATED = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: gated}
spec:
  steps:
  - {name: first, ref: echo, with: {value: "{{ inputs.n }}"}}
  - {name: ok, type: gate, needs: [first]}
  - {name: last, ref: echo, needs: [ok], with: {value: "{{ steps.first.output.value }}"}}
  output: {value: "{{ steps.last.output.value }}"}
"""


@pytest.mark.parametrize("language", [*DOCUMENTS, "large", "gated"])
def test_a_capsule_becomes_a_scenario_that_passes_and_fails_when_the_document_changes(
    language: str, tmp_path: Path
) -> None:
    line, file = CommandLine(tmp_path), tmp_path / "run.perdure"
    if language == "gated":
        (tmp_path / "doc").write_text(GATED)
        run, url = _approved(tmp_path), f"sqlite:///{tmp_path}/runs.db"
    else:
        run, url = _run(DOCUMENTS.get(language, LARGE), {"n": 3, "text": "x" * 200_000}, tmp_path)
    line.here("export", run, "--file", str(file), "--db", url)
    done = line.here("open", "--scenario", "kept", str(file))
    assert "next: perdure test kept" in done.err
    assert "1 passed" in (played := line.here("test", "kept")).out + played.err
    replayed = line.here("open", str(file), "replay", "--with", str(tmp_path / "doc"), "--json").json
    assert [verdict["verdict"] for verdict in replayed["runs"]] == ["same"]
    (test,) = (tmp_path / "kept").glob("*.test.json")
    test.write_text(test.read_text().replace('"status": "succeeded"', '"status": "failed"'))
    line.here("test", "kept", code=3)


def _approved(folder: Path) -> str:
    async def perform() -> str:
        async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
            run = await engine.start(folder / "doc", {"n": 3})
            while (await run.status()).value != "waiting":
                await asyncio.sleep(0.01)
            await run.approve("ok", by="ada")
            await run.result()
            return run.id

    return asyncio.run(perform())
