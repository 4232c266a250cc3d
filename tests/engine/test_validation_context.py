"""Documents are validated in their context: what was applied with them, and what a catalog answers."""

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.documents.lookups import Lookup, LookupAnswers, ResourceKey, ResourcesInNamespace
from perdure.kernel.documents.problems import Problem
from perdure.kernel.documents.validation import AppliedDocument, DeclaredResource, Validated, ValidationContext
from perdure.kernel.json_values import jsontext
from perdure.testing.drill import Drill


class Chain(Drill):
    """A language for tests: each thing names the next one, and the last one names nobody."""

    name = "chain"

    def __init__(self) -> None:
        super().__init__()
        self.judgements = 0

    def recognizes(self, text: bytes) -> bool:
        return text.startswith(b"{")

    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        body = jsontext.decode(text)
        return [DeclaredResource("Link", "", body["metadata"]["name"], body)]

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        assert around is not None
        self.judgements += 1
        links = [jsontext.decode(text)]
        while (following := links[-1].get("next")) is not None:
            link = around.find("Link", "", following)
            if link is None:
                return Validated(None, [Problem("CHAIN", f"there is no link {following!r}")])
            links.append(link)
        return Validated(len(links), [], jsontext.encode(links))


def link(name: str, following: str | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "next": following}


class Shelf:
    """A catalog that counts how often it is asked."""

    def __init__(self, *links: dict[str, Any]) -> None:
        self.links = {link["metadata"]["name"]: link for link in links}
        self.asked: list[Sequence[Lookup]] = []

    async def fetch(self, asked: Sequence[Lookup]) -> LookupAnswers:
        self.asked.append(asked)
        return {
            key: self.links.get(key.name) if isinstance(key, ResourceKey) else list(self.links.values())
            for key in asked
        }


async def test_what_a_language_asks_for_is_fetched_until_nothing_is_open() -> None:
    shelf, chain = Shelf(link("b", "c"), link("c")), Chain()
    judged = await DocumentValidator({"chain": chain}, shelf.fetch).validate(chain, jsontext.encode(link("a", "b")))

    assert (judged.program, judged.problems) == (3, [])
    assert shelf.asked == [[ResourceKey("Link", "", "b")], [ResourceKey("Link", "", "c")]]
    assert jsontext.decode(judged.pinned) == [link("a", "b"), link("b", "c"), link("c")]


async def test_what_was_applied_comes_before_the_catalog() -> None:
    shelf, chain = Shelf(link("b", "nowhere")), Chain()
    applied = [AppliedDocument("b.json", jsontext.encode(link("b")).decode())]
    judging = DocumentValidator({"chain": chain}, shelf.fetch)

    assert (await judging.validate(chain, jsontext.encode(link("a", "b")), applied)).program == 2
    assert shelf.asked == []
    around = ValidationContext(
        judging.declared(applied, ""), answers={ResourcesInNamespace("Link", ""): [link("b", "nowhere"), link("a")]}
    )
    assert around.list_resources("Link", "") == [link("a"), link("b")]


async def test_absence_is_an_answer_and_a_problem_is_not_kept() -> None:
    shelf, chain = Shelf(), Chain()
    judging = DocumentValidator({"chain": chain}, shelf.fetch)
    text = jsontext.encode(link("a", "b"))

    assert (await judging.validate(chain, text)).problems[0].message == "there is no link 'b'"
    shelf.links["b"] = link("b")
    assert (await judging.validate(chain, text)).program == 2


async def test_a_text_is_judged_again_only_when_its_surroundings_changed() -> None:
    shelf, chain = Shelf(link("b")), Chain()
    judging = DocumentValidator({"chain": chain}, shelf.fetch)
    text = jsontext.encode(link("a", "b"))
    first = await judging.validate(chain, text)
    before = chain.judgements

    assert await judging.validate(chain, text) is first
    assert chain.judgements == before
    shelf.links |= {"b": link("b", "c"), "c": link("c")}
    assert (await judging.validate(chain, text)).program == 3
    applied = [AppliedDocument("b.json", jsontext.encode(link("b")).decode())]
    assert (await judging.validate(chain, text, applied)).program == 2


async def test_a_hundred_who_ask_at_once_have_it_judged_once() -> None:
    chain = Chain()

    class SlowShelf(Shelf):
        async def fetch(self, asked: Sequence[Lookup]) -> LookupAnswers:
            await asyncio.sleep(0)
            return await super().fetch(asked)

    shelf = SlowShelf(link("b", "c"), link("c"))
    judging = DocumentValidator({"chain": chain}, shelf.fetch)
    text = jsontext.encode(link("a", "b"))
    outcomes = await asyncio.gather(*[judging.validate(chain, text) for _ in range(100)])

    assert [outcome.program for outcome in outcomes] == [3] * 100
    assert chain.judgements == 3  # one round for each link that was asked for

    shelf.links["c"] = link("c", "d")
    shelf.links["d"] = link("d")
    outcomes = await asyncio.gather(*[judging.validate(chain, text) for _ in range(100)])

    assert [outcome.program for outcome in outcomes] == [4] * 100
    assert chain.judgements == 7
