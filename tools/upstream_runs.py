"""Run the documents that other projects publish, as far as what they need is here: `tools.upstream COPY --run`.

Each accepted Playbook is one `perdure run` with a limit of time, in an empty folder and with an empty database of a
real PostgreSQL. Addresses of services that are simple to offer (an echo service, the project's own test service, NATS)
become addresses of servers on this machine; nothing else is reached. A document that needs more is not run, and the
reason is counted: which host, which program, which cloud. One that reads bare names and has no other word of profile
"io" is run with `executor.spec.compat: io`, as `perdure check` advises. A few get smaller inputs than their own, so as
to end in time, and one that fails by chance is run until it succeeds.
"""

import asyncio
import contextlib
import json
import os
import posixpath
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from tests import nats_server, postgres
from tools.upstream_expectations import Expectations, read_expectations
from tools.upstream_services import echo_service, test_service, why_not

from perdure.dialects.playbook.document import vocabulary
from perdure.dialects.playbook.document.template_advice import PROGRAM_TEXTS
from perdure.dialects.playbook.document.tool_forms import tasks_of
from perdure.dialects.playbook.plan.program import SCOPES
from perdure.documents import UnreadableText, read_document
from perdure.expressions.jinja import Template

LIMIT = 60.0  # seconds, for one document


@dataclass(frozen=True)
class Accepted:
    """A document that Perdure takes."""

    repository: Path  # its folder
    path: str  # in the repository
    text: str  # as it is run: after `perdure convert` if it needs that

    @property
    def place(self) -> str:
        return f"{self.repository.name}/{self.path}"


class Why(StrEnum):
    """Why a document ends otherwise than its authors say."""

    NOT_ALONE = "not run alone: it is a part of something else, or needs what its authors prepare"
    THERE_TOO = "ended as it does in NoETL, by itself"
    A_RULE = "ended otherwise, as a rule of this language demands"
    OTHERWISE = "ended otherwise"


@dataclass(frozen=True)
class Ending:
    why: Why
    reason: str


@dataclass(frozen=True)
class Ran:
    """What became of a document. `reason`: what it needs, or why it ended otherwise than its authors say."""

    place: str
    status: str  # of the run; "not run"
    is_expected: bool = False
    reason: str = ""
    why: Why = Why.OTHERWISE
    differences: Sequence[str] | None = None  # from what its project expects of this run; None if it expects nothing


# Playbooks.

POSTGRES = ("pg_k8s", "pg_local", "pg_auth", "pg_demo", "pg_dev", "pg_tutorial", "pg_noetl_k8s", "pg_trade", "my_db")
NATS = ("nats_credential", "nats_e2e")
BUCKETS = ("sessions",)
FAILING = (  # parts of places: the project says that these fail, or their last test is that a refused login does
    *("/broken_", "/should_error_", "_failing_", "/test_pipeline_error_handling."),
)
INPUTS: Mapping[str, Mapping[str, int]] = {  # fewer rows and shorter waits than their own
    "/parallel_distributed_claim_regression": {"worker_delay_seconds": 1},
    "/kind_playbook_lease_expiry": {"api_delay_seconds": 1},
    "/frame_heartbeat_regression.": {"response_delay_seconds": 3, "frame_lease_seconds": 2},
    "/test_pft_flow.": {"num_facilities": 1, "patients_per_facility": 20, "pft_batch_size": 3},
    "/test_pft_flow_v2.": {"num_facilities": 1, "patients_per_facility": 10},
}
BY_CHANCE = ("/python_retry_exception.",)  # fails once in six runs
TRIES = 8
OWN_CHECKS = re.compile(r'"(?:test_passed|all_valid|success)":false|"test_result":"FAILED"')


def run_playbooks(documents: Sequence[Accepted], endings: Mapping[str, Ending]) -> Iterator[Ran]:
    """`endings`: why documents end otherwise, by a part of their places."""
    folders = {document.repository for document in documents}
    service = next((path for folder in folders if (path := folder / "fixtures" / "servers").is_dir()), Path())
    with contextlib.ExitStack() as stack:
        echo = stack.enter_context(echo_service())
        tests = stack.enter_context(test_service(service))
        server = stack.enter_context(postgres.server(18, f"upstream-{os.getpid()}"))
        nats = stack.enter_context(nats_server.own_server())
        asyncio.run(_make_buckets(nats.address))
        offered = {"httpbin.org": echo}
        if tests is not None:
            offered |= dict.fromkeys(("paginated-api.test-server.svc.cluster.local", "paginated-api"), tests)
        callers = {
            child: document
            for document in documents
            if "regression_test/" not in document.path  # it calls all of them
            for child in _family(document, documents)[1:]
        }
        expected = read_expectations(folders)
        for document in documents:
            family = _family(document, documents)
            needs = [why_not(_read(member.text) or {}, offered) for member in family]
            if any(needs):
                yield Ran(document.place, "not run", reason=next(need for need in needs if need))
                continue
            for _ in range(TRIES if _is_any_of(BY_CHANCE, document.place) else 1):
                with server.database() as database, tempfile.TemporaryDirectory() as folder:
                    credentials = _credentials(database, nats.address)
                    ran = _run(document, family[1:], Path(folder), offered, credentials, expected)
                is_expected = ran.status == ("failed" if _is_any_of(FAILING, ran.place) else "success")
                if is_expected:
                    break
            if is_expected and not ran.reason.startswith("its own"):
                yield replace(ran, is_expected=True, reason="")
            else:
                ending = _explained(ran, endings, callers.get(document))
                yield replace(ran, reason=ending.reason, why=ending.why)


def _is_any_of(parts: Iterable[str], place: str) -> bool:
    return any(part in place for part in parts)


def _explained(ran: Ran, endings: Mapping[str, Ending], caller: Accepted | None) -> Ending:
    for part, ending in endings.items():
        if part in ran.place:
            return ending
    if caller is not None:
        return Ending(Why.NOT_ALONE, f"is a part of {caller.place}, which gives it tables or inputs")
    return Ending(Why.OTHERWISE, ran.reason)


async def _make_buckets(address: str) -> None:
    import nats

    connection = await nats.connect(address)
    for name in BUCKETS:
        await connection.jetstream().create_key_value(bucket=name)
    await connection.close()


@cache
def _read(text: str) -> dict[str, Any] | None:
    try:
        data = read_document(text.encode()).data
    except UnreadableText:
        return None
    return data if isinstance(data, dict) else None


def _family(document: Accepted, documents: Sequence[Accepted]) -> list[Accepted]:
    """The document, and those that it may call: whose paths or files it mentions."""
    family, index = [document], 0
    while index < len(family):
        data = _read(family[index].text) or {}
        called = (
            set(_texts([data.get("workload"), data.get("workflow")])) if "playbook" in family[index].text else set()
        )
        files = {text.lstrip("./") for text in called if text.endswith((".yaml", ".yml"))}
        here = posixpath.dirname(family[index].path)
        for other in documents:
            path = ((_read(other.text) or {}).get("metadata") or {}).get("path")
            is_file = other.repository == document.repository and any(
                other.path == posixpath.join(here, file) for file in files
            )
            if (path in called or is_file) and other not in family:
                family.append(other)
        index += 1
    return family


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _credentials(database: str, nats: str) -> dict[str, str]:
    parameters = conninfo_to_dict(database)
    data = {
        "db_host": parameters["host"], "db_port": int(str(parameters["port"])), "db_user": parameters["user"],
        "db_password": parameters.get("password") or "none", "db_name": parameters["dbname"],
    }  # fmt: skip
    credentials = {name: json.dumps({"type": "postgres", "data": data}) for name in POSTGRES}
    credentials |= {name: json.dumps({"type": "nats", "data": {"nats_url": nats}}) for name in NATS}
    return {f"PERDURE_CREDENTIAL_{name.upper()}": value for name, value in credentials.items()}


def _run(
    document: Accepted,
    children: Sequence[Accepted],
    folder: Path,
    offered: Mapping[str, str],
    secrets: Mapping[str, str],
    expected: Expectations,
) -> Ran:
    applied = list[str]()
    for number, member in enumerate((document, *children)):
        file = folder / str(number) / Path(member.path.partition(":")[0]).name
        file.parent.mkdir()
        file.write_text(_with_addresses(_with_profile(member.text), offered))
        applied += ["--apply", str(file)] if number else [str(file)]
    inputs = next((inputs for part, inputs in INPUTS.items() if part in document.place), {})
    applied += [word for name, value in inputs.items() for word in ("--set", f"{name}={value}")]
    store = ["--db", f"sqlite:///{folder}/runs.db", "--json"]
    environment = {**os.environ, **secrets, "HOME": str(folder), "PERDURE_SCRIPTS_DIR": str(document.repository)}
    try:
        done = _perdure(["run", *applied, *store], folder, environment)
    except subprocess.TimeoutExpired:
        return Ran(document.place, "timeout", reason=f"has not ended after {LIMIT:.0f} s")
    ran, run = _outcome(document.place, done)
    history = _perdure(["history", run, *store], folder, environment).stdout if run else ""
    ran = replace(ran, differences=expected.differences(document.path, done.stdout, history))
    if ran.status == "success" and OWN_CHECKS.search(history):
        return replace(ran, reason="its own check says that it has failed")
    return ran


def _perdure(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def _with_profile(text: str) -> str:
    """A document that only bare names show to be in profile "io" is run in it, as `perdure check` advises."""
    document = _read(text) or {}
    steps = list(vocabulary.steps_of(document))
    words = [vocabulary.step_vocabulary(step, path) for path, step in steps]
    if vocabulary.requested_profile(document) or any(step.io or step.canonical for step in words):
        return text
    workload = document.get("workload")
    known = {step["step"] for _, step in steps if isinstance(step.get("step"), str)}
    known |= workload.keys() if isinstance(workload, dict) else set()
    if known.isdisjoint(name for _, step in steps for name in _names_read(step) - SCOPES):
        return text
    executor = document.get("executor") or {}
    spec = {**(executor.get("spec") or {}), "compat": "io"}
    return json.dumps({**document, "executor": {**executor, "spec": spec}}, default=str)


def _names_read(step: Mapping[str, Any]) -> frozenset[str]:
    names = Template([arc.get(name) for arc in vocabulary.arcs_of(step) for name in ("when", "args")]).reads.names
    for task in tasks_of(str(step.get("step", "")), step.get("tool")):
        if isinstance(task.body, dict):
            names |= Template({name: task.body[name] for name in task.body if name not in PROGRAM_TEXTS}).reads.names
    return names


def _with_addresses(text: str, offered: Mapping[str, str]) -> str:
    for host, address in offered.items():
        text = re.sub(rf"https?://{re.escape(host)}(:\d+)?(?=[/\"'\s?]|$)", address, text)
    return text


def _outcome(place: str, done: subprocess.CompletedProcess[str]) -> tuple[Ran, str]:
    """And the id of the run."""
    try:
        shown = json.loads(done.stdout)
    except ValueError:
        shown = {}
    if "status" not in shown:
        print(f"{place}: {done.stderr[-300:]}", file=sys.stderr)
        return Ran(place, "refused", reason=str((shown.get("error") or {}).get("code"))), ""
    for failure in (shown.get("failures") or [])[:2]:
        print(f"{place}: {failure['step']}: {failure['error']['message']}", file=sys.stderr)
    error = next((failure["error"] for failure in shown.get("failures") or ()), {"kind": shown.get("code")})
    reason = f"an error of kind `{error['kind']}`" if shown["status"] == "failed" else ""
    return Ran(place, str(shown["status"]), reason=reason), str(shown["execution_id"])


# Stories.

ANSWERED = ("gate",)
HERE = frozenset({"gate", "wait", "sleep", "condition", "stop", "parallel", "setData", "transform", "filter"})


def run_stories(documents: Sequence[Accepted]) -> Iterator[Ran]:
    """Those that contain a Story, if it has no Engrams. Gates are approved, and the input is `{ready: true}`."""
    for document in documents:
        for resource in _resources(document.text):
            steps = (resource.get("spec") or {}).get("steps") or []
            if resource.get("kind") != "Story":
                continue
            foreign = sorted({step["ref"]["name"] for step in steps if isinstance(step.get("ref"), dict)})
            called = sorted({str(step.get("type")) for step in steps if "ref" not in step} - HERE)
            if foreign or called:
                reason = (
                    f"needs the Engrams {', '.join(foreign)}: images that run in a cluster"
                    if foreign
                    else f"needs {called}"
                )
                yield Ran(document.place, "not run", reason=reason)
            else:
                gates = [step["name"] for step in steps if step.get("type") in ANSWERED]
                yield asyncio.run(_run_story(document, gates))


def _resources(text: str) -> Iterator[dict[str, Any]]:
    for part in re.split(r"^---\s*$", text, flags=re.MULTILINE):
        if (data := _read(part)) is not None:
            yield data


async def _run_story(document: Accepted, gates: Sequence[str]) -> Ran:
    import perdure

    with tempfile.TemporaryDirectory() as folder:
        async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
            handle = await engine.start(document.text.encode(), {"ready": True})
            for gate in gates:
                await handle.approve(gate)
            try:
                await asyncio.wait_for(engine.wait(handle.id), 15)
            except TimeoutError:
                return Ran(
                    document.place, "waiting", reason="it waits for a text without a template, which is never true"
                )
            phase = str((await handle.show())["status"]["phase"])
    return Ran(document.place, phase.lower(), phase == "Succeeded", "" if phase == "Succeeded" else "it has failed")


# Writing.


def runs_section(title: str, results: Sequence[Ran]) -> list[str]:
    done = [ran for ran in results if ran.is_expected]
    absent = [ran for ran in results if ran.status == "not run"]
    other = [ran for ran in results if not ran.is_expected and ran.status != "not run"]
    groups = [(why, [ran for ran in other if ran.why is why]) for why in Why]
    groups = [(why, group) for why, group in groups if group]
    lines = [f"### {title} that were run", "", "| | |", "|---|---|", f"| ended as their authors say | {len(done)} |"]
    lines += [f"| {why} | {len(group)} |" for why, group in groups]
    lines += [f"| not run: they need what is not here | {len(absent)} |", ""]
    alone = [ran for ran in (*done, *other) if ran.is_expected or ran.why is not Why.NOT_ALONE]
    same = [ran for ran in alone if ran.is_expected or ran.why is Why.THERE_TOO]
    percent = 100 * len(same) // max(len(alone), 1)
    lines += [f"Of the {len(alone)} that can be run here, {len(same)} end as upstream says ({percent} %).", ""]
    lines += ["Ended as their authors say:", "", "| folder | documents |", "|---|---|"]
    lines += [f"| {folder} | {number} |" for folder, number in Counter(map(_folder, done)).items()]
    for why, group in groups:
        lines += ["", f"{why[:1].upper()}{why[1:]}:", "", "| document | status | because |", "|---|---|---|"]
        lines += [f"| {ran.place} | {ran.status} | {_cell(ran.reason)} |" for ran in group]
    lines += _compared(results)
    if absent:
        lines += ["", "Not run:", "", "| document | it |", "|---|---|"]
        lines += [f"| {ran.place} | {_cell(ran.reason)} |" for ran in absent]
    return [*lines, ""]


def _compared(results: Sequence[Ran]) -> list[str]:
    """With what the project expects of single runs: their status, their steps, their results."""
    compared = [(ran, ran.differences) for ran in results if ran.differences is not None]
    if not compared:
        return []
    same = sum(not differences for _, differences in compared)
    lines = ["", f"For {len(compared)} of these documents their project writes down what a run must show: its status,"]
    lines += [f"its steps, results or errors. {same} of them agree in all of it.", ""]
    if same < len(compared):
        lines += ["| document | otherwise |", "|---|---|"]
        lines += [f"| {ran.place} | {_cell('; '.join(differences))} |" for ran, differences in compared if differences]
    return lines


def _folder(ran: Ran) -> str:
    return (
        posixpath.dirname(ran.place.partition(":")[0])
        if not ran.place.partition(":")[2]
        else ran.place.partition(":")[0]
    )


def _cell(reason: str) -> str:
    return " ".join(reason.replace("|", "\\|").split())
