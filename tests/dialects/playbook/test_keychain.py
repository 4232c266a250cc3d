"""Keychains and secrets with the real worker: a real token server, real variables and real files."""

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from tests.dialects.playbook.world import playbook

SECRET = 'pa55-wörd"/+x'


class _Server(ThreadingHTTPServer):
    """Gives tokens. `asked` counts paths; `lifetime` is that of new tokens, `status` of their answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: Counter[str] = Counter()
        self.seen: list[dict[str, Any]] = []
        self.lifetime: float | None = 3600
        self.status = 200
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.asked[self.path.partition("?")[0]] += 1
            self.server.seen.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
        if self.path.startswith("/v1/projects"):
            self._answer(200, {"payload": {"data": "cGE1NS1nY3A="}})  # pa55-gcp
        elif self.path.startswith("/secrets/"):
            self._answer(200, {"value": "pa55-azure"})
        elif self.path.startswith("/login"):
            self._answer(200, {"session": {"id": "pa55-session"}, "expires_in": 60})
        elif self.path.startswith("/leak"):
            self._answer(500, {"you sent": self.headers.get("authorization")})
        else:
            self._answer(200, {"got": self.headers.get("authorization"), "path": self.path})

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        with self.server.lock:
            self.server.asked[self.path] += 1
            count = self.server.asked[self.path]
            self.server.seen.append(
                {"path": self.path, "body": text, **{k.lower(): v for k, v in self.headers.items()}}
            )
        if self.server.status != 200:
            self._answer(self.server.status, {"refused": parse_qs(text).get("client_secret", [""])[0]})
            return
        answer: dict[str, Any] = {"access_token": f"pa55-token-{count}", "token_type": "Bearer"}
        if self.server.lifetime is not None:
            answer["expires_in"] = self.server.lifetime
        self._answer(200, answer)

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


async def run(folder: Path, text: str, workload: Any = None, applied: tuple[str, ...] = ()) -> Any:
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        children = [AppliedDocument("kid.yaml", item) for item in applied]
        handle = await engine.start(text.encode(), workload, applied=children)
        await asyncio.wait_for(engine.wait(handle.id), 60)
        view = await handle.show()
        view["history"] = [*await handle.history(), *await handle.history(raw=True)]
    return view


ENDING = ["workflow.finished", "playbook.finished", "playbook.processed"]
SEEN = '{rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome }}"}}}}]}'


# Where secrets come from.


async def test_variables_and_files_become_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-180 PBK-181 PBK-184."""
    monkeypatch.setenv("PERDURE_SECRET_SHOP_TOKEN", SECRET)
    monkeypatch.setenv("PERDURE_SECRET_PIN", "pin-12345")
    monkeypatch.setenv("PERDURE_SECRETS_DIR", str(tmp_path))
    (tmp_path / "note").write_text("from the folder\n")
    (tmp_path / "other").write_text("from a path\n")
    text = playbook(f"""
keychain:
  - {{name: a, kind: secret_manager, provider: env, map: {{token: SHOP_TOKEN, pin: PIN}}}}
  - {{name: b, kind: secret_manager, provider: file, map: {{note: note, other: {tmp_path}/other}}}}
  - {{name: c, kind: bearer, token: "{{{{ keychain.a.token }}}}"}}
workflow:
  - step: s
    tool:
      kind: python
      args: {{a: "{{{{ keychain.a }}}}", b: "{{{{ keychain.b }}}}", c: "{{{{ keychain.c.token }}}}"}}
      code: |
        assert a == {{"token": c, "pin": "pin-12345"}}, "other"
        assert b == {{"note": "from the folder", "other": "from a path"}}
        result = [len(c), c, a]
""")

    view = await run(tmp_path, text)

    assert view["status"] == "success"
    assert view["result"] == [len(SECRET), "[redacted]", {"token": "[redacted]", "pin": "[redacted]"}]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{name: a, kind: secret_manager, provider: env, map: {t: ABSENT}}", "PERDURE_KEYCHAIN_ENV=ABSENT"),
        (
            '{name: a, kind: secret_manager, provider: env, map: {t: "{{ workload.name }}"}}',
            "data cannot choose a secret",
        ),
        (
            "{name: a, kind: secret_manager, provider: env, map: {t: \"{{ 'HOME_TOKEN' }}\"}}",
            "may not be read: set PERDURE_SECRET_HOME_TOKEN",
        ),
        ("{name: a, kind: secret_manager, provider: env, map: {t: PERDURE_DEBUG}}", "may not be read"),
        (
            "{name: a, kind: secret_manager, provider: file, map: {t: /etc/hostname}}",
            "PERDURE_KEYCHAIN_FILES=/etc/hostname",
        ),
        ("{name: a, kind: secret_manager, provider: file, map: {t: ../x}}", "PERDURE_SECRETS_DIR"),
        ("{name: a, kind: secret_manager, provider: aws, map: {t: x}}", "AWS"),
        ("{name: a, kind: secret_manager, provider: gcp, map: {t: projects/p/secrets/s}}", "access token"),
        ("{name: a, kind: credential_ref, ref: nobody}", "PERDURE_CREDENTIAL_nobody"),
        ("{name: a, kind: postgres_credential}", "PERDURE_CREDENTIAL_a"),
        ("{name: a, kind: static}", "a static entry needs `map`"),
        ("{name: a, kind: bearer}", "PERDURE_SECRET_a"),
        ("{name: a, kind: basic, username: x}", "password"),
        ("{name: a, kind: oauth2, endpoint: 'http://127.0.0.1:1/'}", "connection"),
        ('{name: a, kind: bearer, token: "{{ workload.absent }}"}', "absent"),
        ("{name: a, kind: bearer, auth: nobody}", "no credential 'nobody'"),
    ],
)
async def test_a_keychain_that_cannot_be_resolved_ends_the_execution_before_any_token(
    entry: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-180: code KEYCHAIN_RESOLUTION, and no token ever existed."""
    monkeypatch.setenv("HOME_TOKEN", "x" * 10)
    text = playbook(f"keychain: [{entry}]\nworkflow: [{{step: s, tool: {{kind: noop}}}}]")

    view = await run(tmp_path, text, {"name": "HOME_TOKEN"})

    assert (view["status"], view["code"]) == ("failed", "KEYCHAIN_RESOLUTION")
    events = [event.get("event_type") for event in view["history"] if "event_type" in event]
    assert view["steps"] == {} and events == ["playbook.execution.requested", "playbook.request.evaluated", *ENDING]
    (failure,) = view["failures"]
    assert message.lower() in failure["error"]["message"].lower(), failure


async def test_the_host_lists_what_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are not put aside for workflows are read only if they are listed, written or computed."""
    monkeypatch.setenv("HOME_TOKEN", "sesame-open")
    monkeypatch.setenv("AWAY_TOKEN", "sesame-shut")
    entry = 'keychain: [{name: a, kind: secret_manager, map: {t: "%s"}}]\n'
    step = 'workflow: [{step: s, tool: {kind: python, args: {t: "{{ keychain.a.t }}"}, code: "result = len(t)"}}]'
    monkeypatch.setenv("PERDURE_KEYCHAIN_ENV", "HOME_*")

    computed = "workload: {of: HOME}\n" + entry % "{{ workload.of }}_TOKEN"
    listed = await run(tmp_path, playbook(computed + step))
    other = await run(tmp_path, playbook(entry % "AWAY_TOKEN" + step))

    assert listed["result"] == len("sesame-open")
    assert other["code"] == "KEYCHAIN_RESOLUTION"


async def test_managers_over_http(tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-181: an entry's `auth` names an earlier entry, whose token the manager gets."""
    monkeypatch.setenv("PERDURE_SECRET_CLOUD", "pa55-cloud")
    text = playbook(f"""
keychain:
  - {{name: env, kind: secret_manager, map: {{token: CLOUD}}}}
  - {{name: gcp, kind: secret_manager, provider: gcp, auth: env, endpoint: "{server.address}", map: {{k: projects/p/secrets/s}}}}
  - {{name: azure, kind: secret_manager, provider: azure, auth: env, vault: "{server.address}", map: {{k: s}}}}
  - {{name: session, kind: http, endpoint: "{server.address}/login", auth: env, token_field: session.id}}
workflow:
  - step: s
    tool:
      kind: python
      args: {{k: "{{{{ keychain }}}}"}}
      code: result = k["gcp"]["k"] == "pa55-gcp" and k["azure"]["k"] == "pa55-azure" and k["session"]["access_token"] == "pa55-session"
""")  # noqa: E501

    view = await run(tmp_path, text)

    assert view["result"] is True, view["failures"]
    assert [item["authorization"] for item in server.seen] == ["Bearer pa55-cloud"] * 3
    assert server.seen[0]["path"] == "/v1/projects/p/secrets/s/versions/latest:access"
    assert server.seen[1]["path"] == "/secrets/s?api-version=7.4"


OAUTH = """
keychain:
  - {{name: client, kind: secret_manager, provider: env, map: {{id: CLIENT_ID, secret: CLIENT_SECRET}}}}
  - name: token
    kind: oauth2
    {more}
    endpoint: "{address}/token"
    data: {{grant_type: client_credentials, client_id: "{{{{ keychain.client.id }}}}", client_secret: "{{{{ keychain.client.secret }}}}"}}
"""  # noqa: E501


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SECRET_CLIENT_ID", "shop-client")
    monkeypatch.setenv("PERDURE_SECRET_CLIENT_SECRET", "pa55-client-secret")


def oauth(server: _Server, more: str, workflow: str) -> str:
    return playbook(OAUTH.format(more=more, address=server.address) + workflow)


async def test_oauth2(tmp_path: Path, server: _Server, client: None) -> None:
    """PBK-181 PBK-186: asked for once, used by a template and by name."""
    text = oauth(
        server,
        "scope: local",
        f"""
workflow:
  - step: s
    tool:
      - {{name: a, kind: http, url: "{server.address}/a", headers: {{Authorization: "Bearer {{{{ keychain.token.access_token }}}}"}}}}
      - {{name: b, kind: http, url: "{server.address}/b", auth: token}}
      - {{name: c, kind: http, url: "{server.address}/c", auth: {{type: bearer, token: "{{{{ keychain.token.access_token }}}}"}}}}
      - {{name: d, kind: http, url: "{server.address}/d", auth: "{{{{ keychain.token }}}}"}}
""",  # noqa: E501
    )

    view = await run(tmp_path, text)

    assert view["status"] == "success", view["failures"]
    assert server.asked["/token"] == 1
    form = next(item for item in server.seen if item["path"] == "/token")
    assert parse_qs(form["body"])["client_secret"] == ["pa55-client-secret"]
    sent = [item["authorization"] for item in server.seen if item["path"] in ("/a", "/b", "/c", "/d")]
    assert sent == ["Bearer pa55-token-1"] * 4
    assert view["result"]["data"]["got"] == "Bearer [redacted]"


async def test_twenty_tasks_renew_a_token_once(tmp_path: Path, server: _Server, client: None) -> None:
    """PBK-183: under a lock; those who wait get the same one."""
    server.lifetime = 0.3
    text = oauth(
        server,
        "auto_renew: true",
        f"""
workflow:
  - {{step: wait, tool: {{kind: shell, cmds: sleep 0.5}}, next: {{arcs: [{{step: all}}]}}}}
  - step: all
    loop: {{in: "{{{{ range(20) | list }}}}", iterator: n, spec: {{mode: parallel, max_in_flight: 20}}}}
    tool: {{kind: http, url: "{server.address}/a", auth: token}}
""",
    )
    first = asyncio.ensure_future(run(tmp_path, text))
    while server.asked["/token"] == 0:
        await asyncio.sleep(0.01)
    server.lifetime = 3600

    view = await first

    assert view["status"] == "success", view["failures"]
    assert server.asked["/token"] == 2
    sent = Counter(item["authorization"] for item in server.seen if item["path"] == "/a")
    assert sent == {"Bearer pa55-token-2": 20}


@pytest.mark.parametrize(
    ("more", "status", "code"), [("auto_renew: true", 503, None), ("auto_renew: false", 200, "KEYCHAIN_EXPIRED")]
)
async def test_a_token_that_has_ended(
    tmp_path: Path, server: _Server, client: None, more: str, status: int, code: str | None
) -> None:
    """PBK-183: a renewal that fails, and one that is not wanted, are errors of kind auth."""
    server.lifetime = 0.05
    text = oauth(
        server,
        more,
        f"""
workflow:
  - step: wait
    tool: {{kind: shell, cwd: "{tmp_path}", cmds: "touch began; until test -e go; do sleep 0.01; done"}}
    next: {{arcs: [{{step: use}}]}}
  - {{step: use, tool: {{kind: http, url: "{server.address}/a", auth: token, spec: {{policy: {SEEN}}}}}}}
""",
    )
    going = asyncio.ensure_future(run(tmp_path, text))
    while not (tmp_path / "began").exists():
        await asyncio.sleep(0.01)
    server.status = status
    await asyncio.sleep(server.lifetime)  # of a token that is there: after that it has ended
    (tmp_path / "go").touch()

    seen = (await going)["ctx"]["seen"]

    assert (seen["error"]["kind"], seen["error"]["code"]) == ("auth", code)
    assert "pa55" not in json.dumps(seen)
    assert server.asked["/a"] == 0 and server.asked["/token"] == (2 if status == 503 else 1)


# What `auth: name` means.


async def test_values_that_the_document_composes(tmp_path: Path, server: _Server) -> None:
    """PBK-181 PBK-185: kind `static`; the input that it contains is masked like any secret."""
    text = playbook(f"""
keychain:
  - {{name: shop, kind: static, map: {{client_secret: "{{{{ workload.key }}}}", client_id: us}}}}
workflow:
  - step: s
    tool:
      kind: http
      url: "{server.address}/x"
      headers: {{Authorization: "{{{{ keychain.shop.client_id }}}}:{{{{ keychain.shop.client_secret }}}}"}}
""")

    view = await run(tmp_path, text, {"key": "pa55-given"})

    assert [request["authorization"] for request in server.seen] == ["us:pa55-given"]
    assert view["status"] == "success"
    assert "pa55" not in json.dumps(view["history"])


@pytest.mark.parametrize(
    "auth", ["{type: bearer, credential: stored}", "{source: credential, tool: http, key: stored}"]
)
async def test_a_credential_may_be_named_in_a_map(
    tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:
    """PBK-186: as other releases write it."""
    monkeypatch.setenv("PERDURE_CREDENTIAL_STORED", json.dumps({"type": "bearer", "token": "pa55-stored"}))
    text = playbook(f"workflow: [{{step: s, tool: {{kind: http, url: '{server.address}/x', auth: {auth}}}}}]")

    view = await run(tmp_path, text)

    assert [request["authorization"] for request in server.seen] == ["Bearer pa55-stored"]
    assert "pa55" not in json.dumps(view)


async def test_named_credentials(tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-186: an entry first, then a stored credential; bearer, basic and API keys find their place in the request."""
    (tmp_path / "filed.json").write_text(
        json.dumps({"type": "basic", "data": {"username": "ada", "password": "pa55-ada"}})
    )
    monkeypatch.setenv("PERDURE_CREDENTIALS_DIR", str(tmp_path))
    monkeypatch.setenv("PERDURE_CREDENTIAL_STORED", json.dumps({"type": "bearer", "token": "pa55-stored"}))
    monkeypatch.setenv("PERDURE_CREDENTIAL_user", json.dumps({"type": "bearer", "token": "not this one"}))
    monkeypatch.setenv("PERDURE_SECRET_own", "pa55-own")
    text = playbook(f"""
keychain:
  - {{name: own, kind: bearer}}
  - {{name: user, kind: basic, username: bob, password: "{{{{ keychain.own.token }}}}"}}
  - {{name: key, kind: api_key, value: "{{{{ keychain.own.token }}}}", header: X-Key}}
  - {{name: query, kind: api_key, value: "{{{{ keychain.own.token }}}}", in: query, param: k}}
  - {{name: ref, kind: credential_ref, ref: filed}}
workflow:
  - step: s
    loop: {{in: [own, user, key, query, ref, stored, nobody], iterator: n, spec: {{reduce: {{seen: append}}}}}}
    tool: {{kind: http, url: "{server.address}/{{{{ iter.n }}}}", auth: "{{{{ iter.n }}}}", spec: {{policy: {SEEN}}}}}
""")

    view = await run(tmp_path, text)

    own, user, key, query, ref, stored = server.seen
    assert own["authorization"] == "Bearer pa55-own"
    assert user["authorization"] == "Basic Ym9iOnBhNTUtb3du"
    assert key["x-key"] == "pa55-own" and "authorization" not in key
    assert query["path"] == "/query?k=pa55-own"
    assert ref["authorization"] == "Basic YWRhOnBhNTUtYWRh"
    assert stored["authorization"] == "Bearer pa55-stored"
    entries = view["ctx"]["seen"]
    assert [item["status"] for item in entries] == ["ok"] * 6 + ["error"]
    assert (entries[-1]["error"]["kind"], entries[-1]["error"]["code"]) == ("auth", "AUTH_UNKNOWN")
    assert entries[1]["result"]["data"]["got"] == "Basic [redacted]"
    assert "pa55" not in json.dumps(view)


@pytest.mark.parametrize(
    ("workload", "keychain", "tool", "value", "is_open"),
    [
        ("{who: fine}", "", 'auth: "{{ workload.who }}"', {}, True),
        ("{who: fine}", "", 'auth: "{{ workload.who }}"', {"who": "grave"}, False),
        ("{who: fine}", "{name: grave, kind: credential_ref}", 'auth: "{{ workload.who }}"', {"who": "grave"}, True),
        ("{part: ine}", "", 'auth: "f{{ workload.part }}"', {}, True),
        ("{}", "", """auth: "{{ 'grave' if workload.at == 1 else 'fine' }}\"""", {"at": 1}, True),
        ("{part: ine}", "", 'auth: "{{ workload.letter }}rave"', {"letter": "g"}, False),
        ("{}", "{name: k, kind: credential_ref, ref: '{{ workload.who }}'}", "auth: k", {"who": "grave"}, False),
        ("{who: fine}", "{name: k, kind: credential_ref, ref: '{{ workload.who }}'}", "auth: k", {}, True),
        ("{}", "{name: k, kind: bearer, auth: '{{ workload.who }}'}", "auth: k", {"who": "grave"}, False),
        (
            "{}",
            "{name: k, kind: secret_manager, map: {token: '{{ workload.who }}'}}",
            "auth: k",
            {"who": "GRAVE"},
            False,
        ),
        ("{who: GRAVE}", "{name: k, kind: secret_manager, map: {token: '{{ workload.who }}'}}", "auth: k", {}, True),
    ],
)
async def test_data_choose_no_credential(
    tmp_path: Path,
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
    workload: str,
    keychain: str,
    tool: str,
    value: dict[str, Any],
    is_open: bool,
) -> None:
    """PBK-186, Invariant 28: a name counts where the document has it written out, or gives it by its own defaults."""
    monkeypatch.setenv("PERDURE_CREDENTIAL_fine", json.dumps({"type": "bearer", "token": "pa55-fine"}))
    monkeypatch.setenv("PERDURE_CREDENTIAL_grave", json.dumps({"type": "bearer", "token": "pa55-grave"}))
    monkeypatch.setenv("PERDURE_SECRET_GRAVE", "pa55-grave")
    text = playbook(f"""
workload: {workload}
keychain: [{keychain}]
workflow:
  - step: s
    tool: {{kind: http, url: "{server.address}/a", {tool}}}
""")

    view = await run(tmp_path, text, value)

    assert [item["authorization"][:11] for item in server.seen] == (["Bearer pa55"] if is_open else [])
    if not is_open:
        assert "data cannot choose" in json.dumps(view)


async def test_data_choose_no_secret_of_a_task(
    tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_SECRET_GRAVE", "pa55-grave")
    text = playbook(f"""
workflow:
  - step: s
    tool:
      - read: {{kind: secrets, name: "{{{{ workload.which }}}}"}}
      - send: {{kind: http, url: "{server.address}/a", headers: {{x-key: "{{{{ results.read }}}}"}}}}
""")

    view = await run(tmp_path, text, {"which": "GRAVE"})

    assert server.seen == [] and "data cannot choose" in json.dumps(view)


# Secrets read by a task.


async def test_a_secrets_task_gives_its_value_to_later_tasks_only(
    tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-100 PBK-155 PBK-077 PBK-078: rules, results of steps and arcs see a mark."""
    monkeypatch.setenv("PERDURE_SECRET_API", "pa55-api")
    text = playbook(f"""
workflow:
  - step: s
    tool:
      - read: {{kind: secrets, provider: env, key: API, spec: {{policy: {SEEN}}}}}
      - keep: {{kind: noop}}
      - use: {{kind: http, url: "{server.address}/use", headers: {{Authorization: "Bearer {{{{ _prev }}}}", X-Two: "{{{{ results.read }}}}"}}}}
      - both: {{kind: secrets, map: {{a: API, b: "A{{{{ 'PI' }}}}"}}, provider: env, spec: {{policy: {{rules: [{{else: {{then: {{do: continue}}}}}}]}}}}}}
      - code: {{kind: python, code: "result = [context['results']['read'] == 'pa55-api', len(context['results']['read'])]"}}
      - last: {{kind: secrets, key: API}}
    next: {{arcs: [{{step: t, args: {{given: "{{{{ event.result }}}}"}}}}]}}
  - step: t
    tool: {{kind: noop, result: ["{{{{ args.given }}}}", "{{{{ steps.s.result }}}}"]}}
""")  # noqa: E501

    view = await run(tmp_path, text)

    assert view["status"] == "success", view["failures"]
    assert view["result"] == ["[redacted]", "[redacted]"]
    assert view["ctx"]["seen"]["result"] == "[redacted]"
    (sent,) = [item for item in server.seen if item["path"] == "/use"]
    assert (sent["authorization"], sent["x-two"]) == ("Bearer pa55-api", "pa55-api")
    assert "pa55" not in json.dumps(view["history"])


async def test_a_secret_does_not_go_where_it_would_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-155: what the document does not show is caught when it happens."""
    monkeypatch.setenv("PERDURE_SECRET_API", "pa55-api")
    kid = playbook("workflow: [{step: c, tool: {kind: noop}}]").replace("tests/test", "kid")
    text = playbook(f"""
workflow:
  - step: s
    tool:
      - read: {{kind: secrets, key: API}}
      - all: {{kind: noop, result: "{{{{ results }}}}", spec: {{policy: {SEEN}}}}}
      - call: {{kind: playbook, path: kid, args: {{x: "{{{{ results.read }}}}"}}}}
""")

    view = await run(tmp_path, text, applied=(kid,))

    assert view["ctx"]["seen"]["result"] == {"read": "[redacted]"}
    assert view["failures"][0]["error"]["code"] == "SECRET_ESCAPES"
    assert "pa55" not in json.dumps(view)


async def test_failures_of_left_fields_are_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-092 PBK-147: rendered at the worker, with the same strictness and the same kind."""
    monkeypatch.setenv("PERDURE_SECRET_API", "pa55-api")
    text = playbook(f"""
keychain: [{{name: k, kind: secret_manager, map: {{a: API}}}}]
workflow:
  - step: s
    loop: {{in: [0, 1, 2], iterator: n, spec: {{reduce: {{seen: append}}}}}}
    tool:
      kind: python
      args: {{x: "{{{{ [keychain.k.absent, keychain.k.a + 1, ctx.none ~ keychain.k.a][iter.n] }}}}"}}
      code: result = 1
      spec: {{policy: {SEEN}}}
""")

    view = await run(tmp_path, text)

    assert [item["error"]["kind"] for item in view["ctx"]["seen"]] == ["template"] * 3
    assert "pa55" not in json.dumps(view)


# Children.


async def test_a_child_has_its_own_keychain_and_what_is_shared(
    tmp_path: Path, server: _Server, client: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-182 PBK-201: a shared entry is made once for the whole tree; a local one stays with its execution."""
    monkeypatch.setenv("PERDURE_SECRET_API", "pa55-api")
    kid = playbook(f"""
keychain: [{{name: mine, kind: secret_manager, map: {{a: API}}}}]
workflow:
  - step: c
    tool:
      - {{kind: http, url: "{server.address}/kid", auth: token, headers: {{X-Mine: "{{{{ keychain.mine.a }}}}"}}}}
      - {{name: other, kind: python, args: {{x: "{{{{ keychain.client is defined }}}}"}}, code: result = x}}
""").replace("tests/test", "kid")
    text = oauth(
        server,
        "scope: shared",
        "workflow: [{step: s, loop: {in: [1, 2], iterator: n}, tool: {kind: playbook, path: kid}}]",
    )

    view = await run(tmp_path, text, applied=(kid,))

    assert view["status"] == "success", view["failures"]
    assert [item["result"] for item in view["result"]["results"]] == [False, False]
    assert server.asked["/token"] == 1
    assert [item["authorization"] for item in server.seen if item["path"] == "/kid"] == ["Bearer pa55-token-1"] * 2


@pytest.mark.parametrize(("scope", "asked"), [("global", 2), ("local", 3), ("shared", 3)])
async def test_scopes_say_who_shares_a_value(
    tmp_path: Path, server: _Server, client: None, scope: str, asked: int
) -> None:
    """PBK-182, SRV-009: runs of another namespace share nothing."""
    text = oauth(
        server,
        f"scope: {scope}",
        f'workflow: [{{step: s, tool: {{kind: http, url: "{server.address}/a", auth: token}}}}]',
    )
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        for namespace in ("default", "default", "shop"):
            handle = await engine.start(text.encode(), namespace=namespace)
            await engine.wait(handle.id)
            assert (await handle.show())["status"] == "success"

    assert server.asked["/token"] == asked


# Other kinds, other words.


async def test_databases_and_providers_of_ones_own_get_the_credential_as_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-186 PBK-097: a refused connection names the host of the credential, and not its password."""
    credential = {
        "type": "postgres",
        "data": {"db_host": "127.0.0.1", "db_port": "1", "db_user": "u", "db_password": "pa55-pg"},
    }
    monkeypatch.setenv("PERDURE_CREDENTIAL_PG", json.dumps(credential))
    text = playbook(f"""
keychain: [{{name: pg, kind: postgres_credential}}]
workflow:
  - step: s
    tool:
      - db: {{kind: postgres, auth: pg, query: SELECT 1, spec: {{policy: {SEEN}}}}}
      - own: {{kind: echo, args: {{value: "{{{{ keychain.pg }}}}"}}}}
""")

    view = await run(tmp_path, text)

    seen = view["ctx"]["seen"]
    assert seen["error"]["kind"] == "db_connection" and "127.0.0.1" in seen["error"]["message"], seen
    assert view["result"]["db_password"] == "[redacted]" and view["result"]["db_user"] == "u"
    assert "pa55" not in json.dumps(view)


async def test_the_words_of_profile_io(tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-158 PBK-184: a bare name may mean an input that is a secret; rules do not get it."""
    monkeypatch.setenv("PERDURE_SECRET_API", "pa55-api")
    text = playbook(f"""
keychain: [{{name: k, kind: secret_manager, map: {{a: API}}}}]
workflow:
  - step: s
    tool:
      kind: http
      input: {{key: "{{{{ keychain.k.a }}}}", page: 7}}
      url: "{server.address}/io/{{{{ page }}}}"
      headers: {{X-Key: "{{{{ key }}}}"}}
      spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set: {{ctx.seen: "{{{{ output.data.data.path }}}}"}}}}}}}}]}}}}
""")  # noqa: E501

    view = await run(tmp_path, text)

    assert view["ctx"] == {"seen": "/io/7"}, view["failures"]
    assert server.seen[-1]["x-key"] == "pa55-api"
    assert "pa55" not in json.dumps(view)


async def test_a_bare_name_in_an_entry_is_the_workloads_in_profile_io(
    tmp_path: Path, server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-158 PBK-180: when entries are resolved there is nothing else; a scope's name stays the scope's."""
    monkeypatch.setenv("PERDURE_SECRET_API_EU", "pa55-eu")
    text = playbook(f"""
keychain:
  - {{name: k, kind: secret_manager, map: {{a: "API_{{{{ region }}}}"}}}}
  - {{name: t, kind: bearer, token: "{{{{ keychain.k.a }}}}-{{{{ workload.region }}}}"}}
workload: {{region: EU}}
workflow:
  - step: s
    tool:
      kind: http
      input: {{key: "{{{{ keychain.k.a }}}}"}}
      url: "{server.address}/io"
      auth: t
      headers: {{X-Key: "{{{{ key }}}}"}}
""")

    view = await run(tmp_path, text)

    assert view["status"] == "success", view["failures"]
    assert (server.seen[-1]["x-key"], server.seen[-1]["authorization"]) == ("pa55-eu", "Bearer pa55-eu-EU")
    assert "pa55" not in json.dumps(view)


# While the keychain is being resolved.


@pytest.mark.parametrize("bound", [True, False])
async def test_an_execution_can_end_before_its_keychain_is_resolved(tmp_path: Path, bound: bool) -> None:
    """PBK-193 PBK-190: by its own time limit, or by a cancel."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = playbook(f"""
executor: {{spec: {{policy: {{lifecycle: {{timeout_s: {0.2 if bound else 60}}}}}}}}}
keychain: [{{name: k, kind: http, endpoint: "http://127.0.0.1:{silent.getsockname()[1]}/"}}]
workflow: [{{step: s, tool: {{kind: noop}}}}]
""")
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            handle = await engine.start(text.encode())
            if not bound:
                assert (await handle.show())["status"] == "pending"
                await handle.cancel("enough")
            await asyncio.wait_for(engine.wait(handle.id), 60)
            view = await handle.show()

    assert (view["status"], view.get("code")) == (("failed", "EXECUTION_TIMEOUT") if bound else ("cancelled", None))
    assert view["steps"] == {}
