"""What every store must do with tokens, the audit log and idempotency keys of requests; a part of `StoreSuite`."""

from abc import ABC, abstractmethod
from hashlib import sha256
from pathlib import Path
from typing import Any

from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.access import (
    AccessTokenRow,
    Act,
    AuditRow,
    AuditSeal,
    RequestKey,
    RequestKeyRow,
    RequestKeyTaken,
    SessionRow,
)
from perdure.stores.commit_types import Committed, Message, Transition
from perdure.stores.protocol import Store
from perdure.testing.transitions import created


class AccessSuite(ABC):
    now: Instant = 1_000

    @abstractmethod
    def open(self, folder: Path) -> Store: ...

    @abstractmethod
    async def commit(self, store: Store, *batch: Transition) -> Committed: ...

    def token(self, name: str, **more: Any) -> AccessTokenRow:
        digest = sha256(str(more.pop("secret", name)).encode()).digest()
        return AccessTokenRow(name, digest, "viewer", more.pop("namespaces", None), ("gpu",), self.now, "store", **more)

    def audit_row(self, name: str, run: str | None = None) -> AuditRow:
        return AuditRow(name, self.now, run, f'{{"verb":"{name}"}}'.encode())

    def seal(self, rows: Any, last: AuditSeal | None) -> AuditSeal:
        return AuditSeal.over(rows, last, "here", self.now)

    async def test_a_token_is_found_by_its_digest_and_keeps_what_it_allows(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        ada = self.token("ada", namespaces=("red", "blue"), expires_at=5_000)
        assert await store.add_token(ada)
        assert await store.add_token(self.token("bob"))

        assert await store.find_token(ada.digest) == ada
        assert await store.find_token(b"nobody's") is None
        assert [token.name for token in await store.tokens()] == ["ada", "bob"]
        await store.close()

    async def test_a_session_is_seen_and_ended_and_a_code_counts_once(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        session, code = SessionRow(b"s", "ada", 100, 100), SessionRow(b"c", "ada", 100, 100, is_code=True)
        for row in (session, code):
            await store.add_session(row, expired=0)
        assert await store.find_session(b"s") == session
        await store.see_session(b"s", 300)
        await store.see_session(b"s", 200)
        seen = await store.find_session(b"s")
        assert seen is not None and seen.seen_at == 300
        assert await store.take_code(b"s", 0) is None, "a session is not a code"
        assert await store.take_code(b"c", 101) is None, "it is too old"
        assert [await store.take_code(b"c", 100) for _ in range(2)] == ["ada", None]
        await store.add_session(SessionRow(b"t", "ada", 900, 900), expired=500)
        assert await store.find_session(b"s") is None, "rows from before are removed"
        await store.end_session(b"t")
        assert await store.find_session(b"t") is None
        await store.close()

    async def test_a_name_of_a_token_is_used_once_also_after_it_was_revoked(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        assert await store.add_token(self.token("ada"))
        assert await store.revoke_token("ada", 2_000)
        assert await store.revoke_token("ada", 3_000)  # what was is not changed

        assert not await store.revoke_token("nobody", 2_000)
        assert not await store.add_token(self.token("ada", secret="another"))
        assert [token.revoked_at for token in await store.tokens()] == [2_000]
        await store.close()

    async def test_the_first_token_is_made_once(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        assert await store.add_token(self.token("admin"), only_first=True)
        assert not await store.add_token(self.token("other"), only_first=True)

        assert [token.name for token in await store.tokens()] == ["admin"]
        await store.close()

    async def test_seals_hold_the_rows_of_the_audit_log_in_a_chain(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        assert await store.seal_audit(self.seal) is None
        await store.add_audit_rows([self.audit_row("b", "run"), self.audit_row("a")])
        first = await store.seal_audit(self.seal)
        await store.add_audit_rows([self.audit_row("c", "run")])
        second = await store.seal_audit(self.seal)

        assert first is not None and second is not None
        assert (first.number, first.rows, second.number, second.previous) == (1, 2, 2, first.hash)
        assert await store.audit_seals() == [first, second]
        assert await store.audit_seals(after=1) == [second]
        assert await store.last_audit_seal() == second
        assert [(row.id, row.seal) for row in await store.rows_of_seals(1, 2)] == [("a", 1), ("b", 1), ("c", 2)]
        assert AuditSeal.over(await store.rows_of_seals(1, 1), None, "here", self.now) == first
        await store.close()

    async def test_the_audit_log_is_read_by_page_the_latest_first_and_by_run(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        await store.add_audit_rows([self.audit_row(name, "run" if name in "ac" else None) for name in "abcd"])

        assert [row.id for row in await store.audit_rows(limit=2)] == ["d", "c"]
        assert [row.id for row in await store.audit_rows(before="c")] == ["b", "a"]
        assert [row.id for row in await store.audit_rows(run="run")] == ["c", "a"]
        await store.close()

    async def test_old_seals_are_dropped_whole_and_the_last_one_dropped_is_kept(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        for name in "abc":
            await store.add_audit_rows([self.audit_row(name)])
            await store.seal_audit(self.seal)
            self.now += 100
        assert await store.drop_audit(before=self.now - 100) == 2

        assert [seal.number for seal in await store.audit_seals()] == [2, 3]
        assert [row.id for row in await store.audit_rows()] == ["c"]
        await store.close()

    def act(self, name: str, digest: bytes = b"") -> Act:
        """An act with a record of this name; with a digest, under the key `k`."""
        key = RequestKey("ada", "k", RequestKeyRow(digest, self.now)) if digest else None
        return Act(lambda act: self.audit_row(name), key)

    async def test_an_act_is_written_with_its_record_and_its_key_or_not_at_all(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        first, nothing, second = self.act("1", b"first"), self.act("2", b"none"), self.act("3", b"second")
        assert await store.acting(first).add_token(self.token("ada"))
        assert first.is_recorded
        assert not await store.acting(nothing).add_token(self.token("ada"))
        assert await store.acting(nothing).send(Message(RunId("nobody"), 1, b"")) is None
        assert not nothing.is_recorded
        try:
            await store.acting(second).add_token(self.token("bob"))
            raise AssertionError("the key was used for something else")
        except RequestKeyTaken:
            pass

        assert [token.name for token in await store.tokens()] == ["ada"]
        assert [row.id for row in await store.audit_rows()] == ["1"]
        assert await store.request_key("ada", "k") == RequestKeyRow(b"first", self.now)
        assert await store.request_key("bob", "k") is None
        await store.close()

    async def test_an_act_of_several_transactions_has_one_record(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        acting = store.acting(self.act("1", b"first"))
        assert await acting.add_token(self.token("ada")) and await acting.revoke_token("ada", self.now)

        assert [row.id for row in await store.audit_rows()] == ["1"]
        await store.close()

    async def test_the_acts_of_a_commit_are_written_with_their_runs(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        for name in "12":  # the second time it exists
            change = created("a", home)
            change.acts = [self.act(name, name.encode()).record()]
            other = created(f"other-{name}", home)
            other.acts = [self.act(f"other-{name}").record()]
            await self.commit(store, change, other)

        assert [row.id for row in await store.audit_rows()] == ["other-2", "other-1", "1"]
        known = await store.request_key("ada", "k")
        assert known is not None and known.digest == b"1"
        await store.close()

    async def test_a_request_key_keeps_its_answer_for_a_while(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        assert await store.acting(self.act("1", b"first")).add_token(self.token("ada"))
        await store.answer_request_key("ada", "k", 200, b"{}")

        assert await store.request_key("ada", "k") == RequestKeyRow(b"first", self.now, 200, b"{}")
        assert await store.drop_request_keys(self.now) == 0
        assert await store.drop_request_keys(self.now + 1) == 1
        assert await store.request_key("ada", "k") is None
        await store.close()
