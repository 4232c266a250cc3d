"""Tasks from a server, for `perdure worker`: the worker protocol over HTTP, with retries that double nothing.

Answers wait for each other while a request is under way, and go together in the next one.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import httpx
import msgspec

from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, Ref, RunId
from perdure.kernel.outcomes import Cancelled, Code, Failed, Outcome, Succeeded
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.kernel.tasks.crash_attribution import StartPlace
from perdure.kernel.tasks.task_sources import KeptLeases, TaskGrant
from perdure.server.api_client.server_connection import API, decode_answer, error_of, read_answer
from perdure.server.problems import status_of
from perdure.server.worker_protocol.task_bodies import CANCELLED
from perdure.server.worker_protocol.task_port import SentSecrets, ServerPort, task_path
from perdure.server.worker_protocol.worker_handlers import PLACES

ANSWERS_AT_ONCE = 200
DOCUMENTS_KEPT = 32
PUT_FROM = 1 << 20  # bytes of an output that is sent by itself
LOG_EVERY = 0.5  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 10.0  # seconds between tries
NOT_FOUND, GONE, TOO_LARGE = 404, 410, 413

_TaskKey = tuple[str, int, int, int]


class ServerSource:
    """Where a worker gets its tasks. Raises `ConnectionError` where a caller has to know that nobody was reached."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        worker: str,
        pools: Sequence[str],
        slots: int,
        known: Collection[str],
        languages: Mapping[str, Dialect],
        now: Callable[[], Instant],
        ca: str | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            verify=True if ca is None else ca,
            timeout=httpx.Timeout(90, connect=10),
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
            trust_env=False,
        )
        self.pools = list(pools)
        self.lease_for, self.beat_every = 60.0, 20.0
        self.worker, self._slots, self._now, self._say = worker, slots, now, say
        self._known, self._languages = frozenset(known), languages
        self._lease_key = ""
        self._asked_for: dict[str, Any] = {}  # under that key
        self._answers: list[tuple[dict[str, Any], asyncio.Future[bool]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._lines: dict[str, list[dict[str, Any]]] = {}
        self._asking: dict[str, TaskGrant] = {}  # in hand, of those that may ask for documents
        self._documents: dict[str, bytes] = {}  # by digest: of pipelines in hand, and of some before
        self._sent_secrets: dict[_TaskKey, str] = {}  # the leases of tasks in hand that the server has secrets for
        self._is_away = False

    async def open(self) -> None:
        """Ask who we are: a wrong token is told at once. Without pools, those of the token."""
        who = await self._retried(lambda: self._once("GET", "/whoami"))
        self.pools = self.pools or list(who["pools"])

    async def close(self) -> None:
        if self.pools:
            with_errors = self._once("POST", "/worker/leave", {"worker": self.worker, "pools": self.pools})
            await asyncio.gather(with_errors, return_exceptions=True)
        await self._http.aclose()

    # Requests.

    async def _once(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        sent = headers | ({} if content is None else {"Content-Type": "application/json"})
        try:
            async with self._http.stream(method, f"{API}{path}", content=content, headers=sent) as reply:
                answer = await read_answer(reply)
        except httpx.TransportError as error:
            raise ConnectionError(str(error) or type(error).__name__) from None
        if reply.status_code in (429, 500, 502, 503, 504):
            raise ConnectionError(f"the server answered {reply.status_code}")
        if reply.status_code >= 400:
            raise error_of(reply.status_code, decode_answer(answer))
        return answer if path.find("/values/") > 0 and method == "GET" else decode_answer(answer)

    async def _retried(self, request: Callable[[], Awaitable[Any]], within: float = float("inf")) -> Any:
        """Until it was heard; what is sent again is the same."""
        pause, end = FIRST_PAUSE, time.monotonic() + within
        while True:
            try:
                answer = await request()
            except ConnectionError as error:
                if not self._is_away:
                    self._say(f"the server cannot be reached, will retry: {error}")
                self._is_away = True
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if self._is_away:
                    self._say("the server is there again")
                self._is_away = False
                return answer

    # Work.

    async def lease(self, count: int, wait: float) -> list[TaskGrant]:
        """Under one key until it was answered: a lost answer costs no delivery."""
        self._lease_key = secrets.token_hex(16)
        offered = sorted({self._short(name) for name in self._known})
        body = {
            "worker": self.worker,
            "pools": self.pools,
            "providers": offered,
            "opens": list(self._languages),
            "max": count,
            "wait": wait,
            "slots": self._slots,
        }
        asked = time.monotonic()
        self._asked_for = body
        answer = await self._retried(lambda: self._ask_for_tasks(body))
        self._lease_key = ""
        return [await self._grant(task, asked) for task in answer["tasks"]]

    async def _ask_for_tasks(self, body: dict[str, Any]) -> Any:
        return await self._once("POST", "/worker/lease", body, **{"Idempotency-Key": self._lease_key})

    async def give_back_unheard(self) -> None:
        if not self._lease_key:
            return
        body = {"worker": self.worker, "pools": self.pools, "max": 1, "wait": 0, "providers": ["-"]}
        try:
            answer = await self._retried(lambda: self._ask_for_tasks(body), 5.0)
        except Conflict:  # something was leased under the key: it is told at once
            answer = await self._retried(lambda: self._ask_for_tasks(self._asked_for), 5.0)
        self._lease_key = ""
        for task in answer["tasks"]:
            await self.release(task["lease"], has_begun=False)

    def _short(self, provider: str) -> str:
        language, _, name = provider.partition(".")
        return name if language in self._languages and name else provider

    async def _grant(self, task: dict[str, Any], asked: float) -> TaskGrant:
        self.lease_for, self.beat_every = task["lease_for"], task["beat_every"]
        texts = {}
        for name in ("arguments", "input"):
            value = task[name]
            if name in task["large"]:
                path = f"/worker/tasks/{task['lease']}/values/{value['$large']}"
                texts[name] = await self._retried(partial(self._once, "GET", path))
            else:
                texts[name] = jsontext.encode(value)
        provider, language = task["provider"], task["language"]
        if f"{language}.{provider}" in self._known:
            provider = f"{language}.{provider}"
        deadline = task["deadline_in"]
        assignment = Assignment(
            RunId(task["run"]),
            task["task"],
            task["path"],
            provider,
            texts["arguments"],
            texts["input"],
            task["attempt"],
            task["delivery"],
            task["idempotency_key"],
            None if deadline is None else self._now() + int(deadline * SECOND),
            task["holds_effects"],
            task["sealed"],
            language,
            task["suspicion"],
            task["losses"],
            secrets=tuple(task["secrets"]),
            namespace=task["namespace"],
            traceparent=task.get("traceparent") or "",
        )
        grant = TaskGrant(task["lease"], assignment, asked, self._now(), task.get("pipeline"), task.get("number", 1))
        if assignment.sealed or grant.pipeline is not None:
            self._asking[grant.lease] = grant
        self._forget_secrets(grant.lease)  # those of an earlier task of its pipeline
        if task.get("sends_secrets"):
            self._sent_secrets[_key(assignment)] = grant.lease
        return grant

    def _let_go(self, lease: str) -> None:
        self._asking.pop(lease, None)
        self._forget_secrets(lease)

    def _forget_secrets(self, lease: str) -> None:
        self._sent_secrets = {key: other for key, other in self._sent_secrets.items() if other != lease}

    async def document(self, digest: bytes) -> tuple[str, bytes] | None:
        """A pinned document, under the lease of a task in hand that asks for it.

        Not every task in hand asks for it, and a lease may have ended: such refusals are passed over. Raises
        `ConnectionError` if the server is away for longer than a lease lasts.
        """
        for lease in list(self._asking):
            request = partial(self._once, "GET", task_path(lease, f"documents/{digest.hex()}"))
            try:
                text = await self._retried(request, self.lease_for)
            except PerdureError as refusal:
                if status_of(refusal) not in (NOT_FOUND, GONE):
                    raise
                continue
            return text["language"], text["text"].encode()
        return None

    async def renew(self, leases: Sequence[str]) -> KeptLeases:
        kept = [{"lease": lease} for lease in leases]
        answer = await self._once("POST", "/worker/heartbeat", {"worker": self.worker, "leases": kept})
        return KeptLeases(frozenset(answer["lost"]), frozenset(answer["recalled"]))

    async def begin(self, lease: str, place: StartPlace, cleared: bool | None = None) -> bool:
        named = next((name for name, value in PLACES.items() if value is place), "beside")
        return await self._is_done(lease, "begin", {"place": named, "cleared": cleared})

    async def release(self, lease: str, *, has_begun: bool) -> None:
        self._let_go(lease)
        await self._is_done(lease, "release", {"begun": has_begun}, within=5.0)

    async def _is_done(self, lease: str, verb: str, body: Any, within: float = float("inf")) -> bool:
        try:
            await self._retried(lambda: self._once("POST", task_path(lease, verb), body), within)
        except PerdureError:  # refused: it is not ours any more
            return False
        return True

    # Answers.

    async def end(self, lease: str, outcome: Outcome, *, was_alone: bool = False) -> bool:
        self._let_go(lease)
        answer = await self._written(lease, outcome)
        if was_alone:
            answer["failure"]["alone"] = True
        heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answers.append((answer, heard))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_answers())
        return await heard

    async def pass_on(self, grant: TaskGrant, outcome: Outcome) -> TaskGrant | None:
        lease = grant.lease
        written = await self._written(lease, outcome)
        del written["lease"]
        await self._send_lines()
        body = {"number": grant.number, "judged": await self._judged(grant, outcome), **written}
        asked = time.monotonic()
        try:
            answer = await self._retried(lambda: self._once("POST", task_path(lease, "report"), body))
            following = await self._grant(answer["next"], asked) if answer["goes_on"] else None
        except PerdureError:  # refused: it is not ours any more
            following = None
        if following is None:
            self._let_go(lease)
        return following

    async def _judged(self, grant: TaskGrant, outcome: Outcome) -> dict[str, Any] | None:
        """What the rules of the task make of its outcome; None leaves that to the server."""
        digest = grant.pipeline.get("program", "")
        language = self._languages.get(grant.assignment.language)
        if language is None or isinstance(outcome, Cancelled):
            return None
        if digest not in self._documents:
            document = await self.document(bytes.fromhex(digest))
            if document is None:
                return None
            if len(self._documents) >= DOCUMENTS_KEPT:
                self._documents.clear()
            self._documents[digest] = document[1]
        about = (self._documents[digest], grant.pipeline, outcome, grant.granted_at, self._now())
        judged = await asyncio.to_thread(language.apply_rules, *about)
        return None if judged is None or len(jsontext.encode(judged)) > jsontext.PIECE else judged

    async def _written(self, lease: str, outcome: Outcome) -> dict[str, Any]:
        match outcome:
            case Succeeded(value):
                assert not isinstance(value, Ref)
                if len(value) <= PUT_FROM:
                    return {"lease": lease, "output": msgspec.Raw(value)}
                name = (await asyncio.to_thread(sha256, value)).hexdigest()
                try:
                    put = await self._retried(lambda: self._once("PUT", task_path(lease, f"values/{name}"), value))
                except PerdureError as refusal:
                    if status_of(refusal) != TOO_LARGE:
                        return {"lease": lease, "output": None}  # the lease is not ours any more, as will be told
                    message = f"the result has {len(value)} bytes, which is more than the server takes"
                    return {"lease": lease, "failure": {"code": Code.RESULT_TOO_LARGE, "message": message}}
                return {"lease": lease, "output": put}
            case Failed(code, message, retryable, details):
                failure: dict[str, Any] = {"code": code, "message": message, "retryable": retryable}
                if details is not None:
                    failure["details"] = msgspec.Raw(details)
                return {"lease": lease, "failure": failure}
            case Cancelled(reason):
                return {"lease": lease, "failure": {"code": CANCELLED, "message": reason}}

    async def _send_answers(self) -> None:
        try:
            while self._answers:
                await self._send_lines()
                batch, self._answers = self._answers[:ANSWERS_AT_ONCE], self._answers[ANSWERS_AT_ONCE:]
                body = {"answers": [answer for answer, _ in batch]}
                try:
                    results = await self._retried(partial(self._once, "POST", "/worker/answers", body))
                except Exception as error:
                    for _, heard in batch:
                        heard.set_exception(error)
                    continue
                for (answer, heard), result in zip(batch, results["results"], strict=True):
                    if result["status"] == 503:
                        self._answers.append((answer, heard))
                    elif not heard.done():
                        heard.set_result(result["status"] == 200)
        finally:
            self._sending = None

    # What running tasks say.

    def port_for(self, grant: TaskGrant) -> RunPort:
        return ServerPort(self, grant.lease)

    def secrets_for(self, assignment: Assignment) -> SentSecrets | None:
        """What the server has kept for the task; None: it sends nothing, or the task is not in hand any more."""
        lease = self._sent_secrets.get(_key(assignment))
        return None if lease is None else SentSecrets(self, lease)

    async def ask(self, lease: str, path: str, body: Any, **headers: str) -> Any:
        """A call under a lease: repeated until it was heard, for as long as the lease may last."""
        request = self._once
        return await self._retried(lambda: request("POST", task_path(lease, path), body, **headers), self.lease_for)

    def add_line(self, lease: str, line: dict[str, Any]) -> None:
        lines = self._lines.setdefault(lease, [])
        lines.append(line)
        if len(lines) == 1:
            asyncio.get_running_loop().call_later(LOG_EVERY, self._send_lines_soon)

    def _send_lines_soon(self) -> None:
        if self._lines:
            self._flushing = asyncio.ensure_future(self._send_lines())

    async def _send_lines(self) -> None:
        """Nothing waits for them: what cannot be sent is lost."""
        lines, self._lines = self._lines, {}
        for lease, some in lines.items():
            for at in range(0, len(some), 1_000):
                sent = self._once("POST", task_path(lease, "log"), {"lines": some[at : at + 1_000]})
                await asyncio.gather(sent, return_exceptions=True)


def _key(assignment: Assignment) -> _TaskKey:
    return assignment.run, assignment.task, assignment.attempt, assignment.delivery
