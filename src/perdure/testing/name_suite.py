"""What every store must do with the names and namespaces of runs; a part of `StoreSuite`."""

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from perdure.kernel.ids import RunName
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import Committed, Message, RunSummary, Transition
from perdure.stores.protocol import RunFilter, Store
from perdure.testing.transitions import created

ENDED = RunSummary(Status.SUCCEEDED, False, None, 5)


def claim(name: str, child: str) -> tuple[RunName, RunId]:
    return RunName("drill", "n", name), RunId(child)


def disowning(run: str, home: int, *children: str, seq: int = 2) -> Transition:
    return Transition(RunId(run), home, seq, row=b"x", disowned=[RunId(child) for child in children])


class NameSuite(ABC):
    """Invariant 6. Names are written `n/NAME`; runs below others have their ids."""

    @abstractmethod
    def open(self, folder: Path) -> Store: ...

    @abstractmethod
    async def commit(self, store: Store, *batch: Transition) -> Committed: ...

    async def create(self, store: Store, home: int, *runs: str) -> list[str]:
        """Create runs in one commit, `RUN` or `RUN=NAME`; those that were refused."""
        pairs = [(run, name) for run, _, name in (pair.partition("=") for pair in runs)]
        changes = [
            created(run, home, ENDED, parent=run.rpartition(".")[0] or None, named=("n", name) if name else None)
            for run, name in pairs
        ]
        return sorted((await self.commit(store, *changes)).refused)

    async def test_runs_are_found_in_their_namespaces_only(self, tmp_path: Path) -> None:
        """Invariant 34."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(
            store,
            created("alpha", home, at=1, name="pay", labels={"customer": "17"}),
            created("alps", home, at=2, namespace="shop", name="pay/late"),
            created("beta", home, ENDED, at=3, namespace="shop", labels={"customer": "17", "x": "al"}),
            created("beta.1", home, at=4, namespace="shop", parent="beta"),
            created("gamma", home, at=5, namespace="ops", name="al%_*"),
        )

        async def found(**filters: Any) -> list[str]:
            return [row.id for row in await store.search(RunFilter(**filters))]

        assert [row.namespace for row in await store.search(RunFilter())] == ["ops", "shop", "shop", "shop", "default"]
        assert await found(namespaces=["shop"]) == ["beta.1", "beta", "alps"]
        assert await found(namespaces=["ops", "default"]) == ["gamma", "alpha"]
        assert await found(namespaces=[]) == []
        assert await found(namespaces=["shop", "ops"], limit=2, behind=(5, RunId("gamma"))) == ["beta.1", "beta"]
        open_and_ended = [Status.SUCCEEDED, Status.WAITING]
        both = {"namespaces": ["shop", "ops"], "statuses": open_and_ended, "behind": (2**62, RunId(""))}
        assert await found(**both, limit=3) == ["gamma", "beta.1", "beta"]
        assert await found(text="al") == ["gamma", "beta", "alps", "alpha"]
        assert await found(text="al", namespaces=["shop"]) == ["beta", "alps"]
        assert await found(text="pay") == ["alps", "alpha"]
        assert await found(text="ay") == await found(text="%") == await found(text="customer") == []
        assert await found(text="17") == ["beta", "alpha"]
        assert await found(text="1") == []
        assert sorted(await store.find_by_prefix("al")) == ["alpha", "alps"]
        assert await store.find_by_prefix("al", ["shop"]) == ["alps"]
        assert await store.find_by_prefix("al", []) == []
        assert (await store.load([RunId("gamma")]))[0].row.namespace == "ops"
        await store.close()

    async def test_one_name_is_one_run_s_as_long_as_it_is_there(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p")
        await self.commit(store, created("p.1", home, parent="p", named=("n", "x")))
        await self.commit(store, Transition(RunId("p"), home, 2, row=b"x", messages=[Message(RunId("q"), 1, b"start")]))
        ((position),) = [entry.position for entry in await store.inbox([home], 10)]
        answer = await self.commit(
            store,
            created("q", home, named=("n", "x"), consumes=[position]),
            created("r", home, named=("other", "x")),
            created("s", home, named=("n", "y")),
            created("t", home, named=("n", "y")),
        )

        assert answer.refused == {"q", "t"}
        assert await store.find(RunId("q")) is None
        assert [entry.position for entry in await store.inbox([home], 10)] == [
            position
        ]  # its sender is still to be told
        assert await store.run_named("drill", "n", "x") == "p.1"
        assert await store.run_named("drill", "other", "x") == "r"
        assert await store.run_named("story", "n", "x") is None
        assert await self.create(store, home, "s=z") == ["s"]  # it is there, under its own name
        assert await store.run_named("drill", "n", "z") is None
        await store.close()

    async def test_removed_and_pruned_runs_give_their_names_back(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "a=x", "b=y")
        await store.remove([RunId("a")])

        assert await self.create(store, home, "c=x", "d=y") == ["d"]
        assert await store.prune(10, 10)
        assert await self.create(store, home, "e=x", "f=y") == []
        await store.close()

    async def test_the_name_of_a_disowned_child_is_never_a_stranger_s(self, tmp_path: Path) -> None:
        """STY-091, STY-183: from the commit that disowns it until the next child has it, and all below likewise."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p")
        await self.create(store, home, "p.1=x", "p.11=z")
        await self.create(store, home, "p.1.2=y")
        await self.commit(store, disowning("p", home, "p.1"))
        assert await self.create(store, home, "q=x", "r=y") == ["q", "r"]
        assert await store.run_named("drill", "n", "x") == "p"

        assert await store.remove([RunId("p.1.2"), RunId("p.1")]) == ["p.1.2", "p.1"]
        assert await self.create(store, home, "q=x", "r=y", "p.3=z") == ["p.3", "q", "r"]
        assert await self.create(store, home, "p.2=x") == []
        assert await self.create(store, home, "q=x", "r=y") == ["q", "r"]
        assert await self.create(store, home, "p.2.1=y") == []
        assert (await store.run_named("drill", "n", "x"), await store.run_named("drill", "n", "y")) == ("p.2", "p.2.1")
        await store.close()

    async def test_what_is_disowned_takes_no_name_from_what_follows_it(self, tmp_path: Path) -> None:
        """A child whose start was on its way, and one that the disowned child starts meanwhile."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p")
        await self.commit(store, Transition(RunId("p"), home, 2, row=b"x", name_claims=[claim("x", "p.1")]))
        await self.create(store, home, "p.2=y")
        await self.commit(store, disowning("p", home, "p.1", "p.2", seq=3))

        assert await self.create(store, home, "p.1=x") == ["p.1"]
        assert await self.create(store, home, "p.2.1=deep") == []
        assert await self.create(store, home, "p.3=x", "p.4=y") == []
        assert await self.create(store, home, "p.4.1=deep") == []
        assert await store.run_named("drill", "n", "deep") == "p.4.1"
        await store.close()

    async def test_names_of_several_lives_go_to_the_last_one(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "g=g")
        await self.create(store, home, "g.1=p")
        await self.create(store, home, "g.1.1=x")
        await self.commit(store, disowning("g.1", home, "g.1.1"))
        await self.commit(store, disowning("g", home, "g.1"))
        assert await self.create(store, home, "q=x", "g.1.2=x") == ["q"]  # below what is disowned: without a name
        assert await store.remove([RunId("g.1.1"), RunId("g.1.2"), RunId("g.1")]) == ["g.1.1", "g.1.2", "g.1"]

        assert await self.create(store, home, "q=x", "r=p") == ["q", "r"]
        assert await self.create(store, home, "g.2=p") == []
        assert await self.create(store, home, "g.2.1=x") == []
        assert await store.run_named("drill", "n", "x") == "g.2.1"
        await store.close()

    async def test_what_a_run_kept_for_a_child_is_free_when_it_is_gone(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p")
        await self.create(store, home, "p.1=x")
        change = disowning("p", home, "p.1")
        change.name_claims = [claim("y", "p.2")]  # which is never born
        await self.commit(store, change)
        await store.remove([RunId("p.1")])
        assert await self.create(store, home, "q=x", "r=y") == ["q", "r"]
        assert await store.remove([RunId("p")]) == ["p"]

        assert await self.create(store, home, "q=x", "r=y", "s=p") == []
        await store.close()

    async def test_a_claimed_name_is_the_child_s_from_the_commit_that_starts_it(self, tmp_path: Path) -> None:
        """Of a transition that claims what another has nothing is written; the rest of the batch is."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p", "o=o", "other=taken")
        wants = Transition(
            RunId("p"),
            home,
            2,
            row=b"x",
            messages=[Message(RunId("p.1"), 1, b"start")],
            name_claims=[claim("free", "p.1"), claim("taken", "p.2")],
        )
        answer = await self.commit(
            store, wants, Transition(RunId("o"), home, 2, row=b"o", name_claims=[claim("own", "o.1")])
        )

        assert answer.rivals == {"p": {claim("taken", "p.2"): "other"}} and not answer.refused
        assert await store.history(RunId("p")) == [(1, b"first")]
        assert await store.history(RunId("o")) == [(1, b"first"), (2, b"o")]
        assert await store.inbox([home], 10) == []
        assert await store.run_named("drill", "n", "free") is None
        assert await store.run_named("drill", "n", "own") == "o.1"
        assert await self.create(store, home, "q=own", "r=free") == ["q"]
        assert await self.create(store, home, "o.1=own") == []
        await store.close()

    async def test_of_claims_of_one_name_the_first_wins(self, tmp_path: Path) -> None:
        """In one transition, and between those of one batch, where one that is refused takes nothing from others."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "a=a", "b=b", "c=c", "other=taken")
        both = Transition(RunId("c"), home, 2, row=b"x", name_claims=[claim("same", "c.1"), claim("same", "c.2")])
        answer = await self.commit(store, both)
        assert answer.rivals == {"c": {claim("same", "c.2"): "c.1"}}

        answer = await self.commit(
            store,
            Transition(RunId("b"), home, 2, row=b"x", name_claims=[claim("both", "b.1"), claim("taken", "b.2")]),
            Transition(RunId("a"), home, 2, row=b"x", name_claims=[claim("both", "a.1")]),
            Transition(RunId("c"), home, 2, row=b"x", name_claims=[claim("both", "c.9")]),
        )
        assert answer.rivals == {"b": {claim("taken", "b.2"): "other"}, "c": {claim("both", "c.9"): "a.1"}}
        assert await store.run_named("drill", "n", "both") == "a.1"
        await store.close()

    async def test_a_claim_takes_over_what_the_same_commit_disowns(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p")
        await self.create(store, home, "p.1=x")
        change = disowning("p", home, "p.1")
        change.name_claims = [claim("x", "p.2")]

        assert not (await self.commit(store, change)).rivals
        assert await store.run_named("drill", "n", "x") == "p.2"
        assert await self.create(store, home, "q=x") == ["q"]
        await store.close()

    async def test_a_run_that_is_not_created_claims_nothing(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "a=x")
        answer = await self.commit(store, created("b", home, named=("n", "x"), name_claims=[claim("y", "b.1")]))
        assert answer.refused == {"b"} and await store.run_named("drill", "n", "y") is None

        answer = await self.commit(store, created("c", home, named=("n", "z"), name_claims=[claim("x", "c.1")]))
        assert answer.rivals == {"c": {claim("x", "c.1"): "a"}} and not answer.refused
        assert await store.find(RunId("c")) is None and await store.run_named("drill", "n", "z") is None
        await self.commit(store, created("d", home, named=("n", "z"), name_claims=[claim("y", "d.1")]))
        assert (await store.run_named("drill", "n", "z"), await store.run_named("drill", "n", "y")) == ("d", "d.1")
        await store.close()

    async def test_a_run_without_a_name_gives_none_to_those_below_it(self, tmp_path: Path) -> None:
        """A fork does what its source did, beside it."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.create(store, home, "p=p", "fork")
        await self.create(store, home, "p.1=x")

        assert await self.create(store, home, "fork.1=x") == []
        change = created("fork.2", home, parent=RunId("fork"), named=("n", "x"), name_claims=[claim("x", "fork.2.1")])
        answer = await self.commit(store, change)
        assert not answer.refused and not answer.rivals
        assert await self.create(store, home, "fork.2.1=x") == []
        assert await store.run_named("drill", "n", "x") == "p.1"
        await store.close()

    async def test_of_two_processes_that_want_one_name_one_has_it(self, tmp_path: Path) -> None:
        """By creating a run, or by claiming it for a child: the commit decides, nobody looks before."""
        first, second = self.open(tmp_path), self.open(tmp_path)
        homes = [await first.claim(), await second.claim()]
        await self.create(first, homes[0], "p=p")
        for at in range(20):
            claiming = Transition(RunId("p"), homes[0], at + 2, row=b"x", name_claims=[claim(f"x{at}", f"p.{at}")])
            claimed, made = await asyncio.gather(
                self.commit(first, claiming), self.create(second, homes[1], f"q{at}=x{at}")
            )
            holder = await first.run_named("drill", "n", f"x{at}")

            assert (bool(claimed.rivals), bool(made)) in ((True, False), (False, True))
            assert holder == (f"q{at}" if claimed.rivals else f"p.{at}")
        await first.close()
        await second.close()
