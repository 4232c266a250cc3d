"""Tokens of an identity provider (SRV-025), against a real one on loopback that signs with real keys."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from perdure.server import oidc
from perdure.server.limits import BadServerSettings, OidcRole, OidcTable
from perdure.server.oidc import OidcProvider
from perdure.views.api_errors import NotAuthenticated, NotReady
from tests.server.serving import RETURNS, WAITS, Api, Server

RSA = rsa.generate_private_key(65_537, 2_048)
CURVE = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(65_537, 2_048)


def public(key: Any, name: str, algorithm: str) -> dict[str, Any]:
    entry: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return entry | {"kid": name, "use": "sig", "alg": algorithm}


class IdentityProvider(ThreadingHTTPServer):
    """Discovery and keys; what it answers can be changed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.issuer = f"http://127.0.0.1:{self.server_port}/realm"
        self.keys = [public(RSA, "one", "RS256")]
        self.named = self.issuer
        self.asked = 0
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def token(self, key: Any = RSA, algorithm: str = "RS256", kid: str = "one", **claims: Any) -> str:
        now = time.time()
        token = {"iss": self.issuer, "aud": "perdure", "sub": "alice", "iat": now, "exp": now + 600} | claims
        kept = {name: value for name, value in token.items() if value is not None}
        return jwt.encode(kept, key, algorithm, headers={"kid": kid})


class _Answers(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_GET(self) -> None:
        answers: dict[str, Any] = {
            "/realm/.well-known/openid-configuration": {
                "issuer": self.server.named,
                "jwks_uri": f"{self.server.issuer}/keys",
            },
            "/realm/keys": {"keys": self.server.keys},
        }
        self.server.asked += self.path == "/realm/keys"
        text = json.dumps(answers.get(self.path, {})).encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class SlowAnswers(BaseHTTPRequestHandler):
    """A byte now and then."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(3_000):
                self.wfile.write(b" ")
                time.sleep(0.01)
        except OSError:
            pass

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def identity_provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running
        running.shutdown()


ROLES = [
    OidcRole("groups", "platform", "admin"),
    OidcRole("realm_access.roles", "shop-operator", "operator", ["shop"]),
    OidcRole("scope", "read", "viewer"),
]


def provider(identity: IdentityProvider) -> OidcProvider:
    return OidcProvider(OidcTable(identity.issuer, "perdure", ROLES))


def now() -> int:
    return int(time.time() * 1_000_000)


async def test_claims_give_a_role_and_namespaces(identity_provider: IdentityProvider) -> None:
    """The first entry that fits counts; `scope` is a list of words."""
    known = provider(identity_provider)
    admin = await known.caller(identity_provider.token(groups=["x", "platform"], scope="read"), now())
    assert (admin.name, admin.role, admin.via, admin.namespaces) == ("alice", "admin", "oidc", None)
    assert admin.issuer == identity_provider.issuer
    shop = await known.caller(identity_provider.token(realm_access={"roles": ["shop-operator"]}), now())
    assert (shop.role, shop.namespaces) == ("operator", ("shop",))
    assert (await known.caller(identity_provider.token(scope="openid read"), now())).role == "viewer"
    assert identity_provider.asked == 1


async def test_requests_that_come_together_wait_for_the_keys(identity_provider: IdentityProvider) -> None:
    known = provider(identity_provider)
    tokens = [identity_provider.token(groups=["platform"], sub=f"user-{number}") for number in range(8)]
    callers = await asyncio.gather(*(known.caller(token, now()) for token in tokens))
    assert [caller.name for caller in callers] == [f"user-{number}" for number in range(8)]
    assert identity_provider.asked == 1


BAD: dict[str, dict[str, Any]] = {
    "another audience": {"aud": "others"},
    "another issuer": {"iss": "https://id.example.org"},
    "no audience": {"aud": None},
    "no end": {"exp": None},
    "no subject": {"sub": None},
    "empty subject": {"sub": ""},
    "subject for a terminal": {"sub": "a\x1b[2J"},
    "expired": {"exp": time.time() - 61},
    "not yet": {"nbf": time.time() + 3_600},
    "no role": {"groups": ["others"]},
    "role as a part of a word": {"groups": "platform-readers"},
    "signed by a stranger": {"key": STRANGER},
    "unknown key": {"kid": "two"},
    "no signature": {"key": None, "algorithm": "none"},
    "the public key as a shared secret": {"key": "x" * 64, "algorithm": "HS256"},
}


@pytest.mark.parametrize("name", BAD)
async def test_what_is_wrong_is_refused(identity_provider: IdentityProvider, name: str) -> None:
    with pytest.raises(NotAuthenticated):
        await provider(identity_provider).caller(
            identity_provider.token(**({"groups": ["platform"]} | BAD[name])), now()
        )


async def test_clocks_may_differ_by_a_minute(identity_provider: IdentityProvider) -> None:
    known = provider(identity_provider)
    token = identity_provider.token(groups=["platform"], exp=time.time() - 30)
    assert (await known.caller(token, now())).name == "alice"
    with pytest.raises(NotAuthenticated, match="expired"):  # remembered tokens end too
        await known.caller(token, now() + 60_000_000)


async def test_new_keys_are_read_and_old_ones_are_forgotten(
    identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = provider(identity_provider)
    old = identity_provider.token(groups=["platform"])
    await known.caller(old, now())
    identity_provider.keys = [public(CURVE, "two", "ES256")]
    new = identity_provider.token(CURVE, "ES256", "two", groups=["platform"])
    with pytest.raises(NotAuthenticated):  # keys were read a moment ago: unknown names do not ask again and again
        await known.caller(new, now())
    assert identity_provider.asked == 1
    monkeypatch.setattr(oidc, "UNKNOWN_KEY", 0.0)
    assert (await known.caller(new, now())).role == "admin"
    with pytest.raises(NotAuthenticated):
        await known.caller(old, now())


async def test_a_provider_that_is_away_is_waited_for(
    identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that were read count for an hour; without keys nobody can say who it is, which is no refusal."""
    monkeypatch.setattr(oidc, "UNKNOWN_KEY", 0.0)
    known = provider(identity_provider)
    identity_provider.named = "https://somebody.example.org"
    token = identity_provider.token(groups=["platform"])
    with pytest.raises(NotReady, match="calls itself"):
        await known.caller(token, now())
    identity_provider.named = identity_provider.issuer
    await known.caller(token, now())
    identity_provider.shutdown()
    identity_provider.server_close()
    monkeypatch.setattr(oidc, "READ_AGAIN", 0.0)
    assert (await known.caller(token, now())).name == "alice"
    monkeypatch.setattr(oidc, "TRUSTED", 0.0)
    with pytest.raises(NotReady, match="does not answer"):
        await known.caller(token, now())


@pytest.mark.parametrize("issuer", ["http://id.example.org", "id.example.org", "file:///etc/passwd"])
def test_an_issuer_that_anybody_can_pretend_to_be_is_refused(issuer: str) -> None:
    with pytest.raises(BadServerSettings, match="https"):
        OidcProvider(OidcTable(issuer, "perdure", ROLES))


def test_a_server_takes_tokens_of_its_identity_provider(identity_provider: IdentityProvider, tmp_path: Path) -> None:
    """SRV-025: beside its own; who it was is in the audit log and the history, apart from a token of the same name."""
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f'[oidc]\nissuer = "{identity_provider.issuer}"\naudience = "perdure"\n'
        '[[oidc.roles]]\nclaim = "groups"\nvalue = "authors"\nrole = "author"\nnamespaces = ["shop"]\n'
    )
    server = Server.start(tmp_path, "--config", str(settings))
    try:
        alice = Api(server.url, identity_provider.token(groups=["authors"]))
        shown = alice("GET", "/api/v1/whoami").json
        assert shown["expires_at"] is not None
        assert {name: shown[name] for name in ("name", "role", "namespaces", "via", "issuer")} == {
            "name": "alice",
            "role": "author",
            "namespaces": ["shop"],
            "via": "oidc",
            "issuer": identity_provider.issuer,
        }
        run = alice.start(WAITS)
        assert server.admin("GET", f"/api/v1/runs/{run}").json["namespace"] == "shop"
        hidden = server.admin.start(RETURNS)
        assert alice("GET", f"/api/v1/runs/{hidden}").status == 404
        assert alice("GET", "/api/v1/tokens").problem == (403, "ACCESS-DENIED")
        assert alice("POST", f"/api/v1/runs/{run}/cancel").status in (200, 202)
        rows = server.admin("GET", f"/api/v1/audit?run={run}").json["items"]
        assert [row["who"] for row in rows] == [{"name": "alice", "via": "oidc"}] * 2
        events = server.admin("GET", f"/api/v1/runs/{run}/events").json["items"]
        who = {"name": "alice", "via": "oidc", "issuer": identity_provider.issuer}
        assert [event["by"] for event in events if event.get("who") == who and "by" in event] == ["oidc:alice"]
        stranger = Api(server.url, identity_provider.token(STRANGER, groups=["authors"]))
        assert stranger("GET", "/api/v1/whoami").problem == (401, "NOT-AUTHENTICATED")
        server.stop()
    finally:
        server.commands.end_all()


async def test_a_provider_that_answers_for_ever_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody else waited for its last byte, which never came."""
    monkeypatch.setattr(oidc, "SECONDS", 0.2)
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowAnswers) as slow:
        slow.daemon_threads = True
        threading.Thread(target=slow.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        table = OidcTable(f"http://127.0.0.1:{slow.server_port}", "perdure", ROLES)
        async with asyncio.timeout(20):  # it would take 30
            with pytest.raises(NotReady, match="does not answer"):
                await OidcProvider(table).caller("a.b.c", 0)
        slow.shutdown()


async def test_an_expiry_that_is_a_text_does_not_count(identity_provider: IdentityProvider) -> None:
    """The library takes digits in a text, which were then repeated a million times."""
    token = identity_provider.token(exp=str(int(time.time()) + 600), groups=["platform"])
    with pytest.raises(NotAuthenticated, match="not one of this server's"):
        await provider(identity_provider).caller(token, 0)
