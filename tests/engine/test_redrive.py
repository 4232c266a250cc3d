"""A redrive goes on at what failed; a crash at any of its commits does not change how the run ends (invariant 20)."""

from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.dialects.playbook import Playbook
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed
from tests.dialects.flow.documents import call, cleanup, flow, inner, retry, returns, task, timeout
from tests.dialects.flow.world import Described
from tests.dialects.playbook.world import playbook
from tests.dialects.played import NEVER, Stage
from tests.dialects.universe import Answer, Work
from tests.sampling import Sample
from tests.storing import open_file, worlds_on

pytestmark = pytest.mark.every_store(postgres15=10, postgres18=5)


class Shop:
    """Tasks of a run that fails: `two` is broken until it is mended, and charges a card before it fails."""

    def __init__(self) -> None:
        self.broken = {1, 3}
        self.made: list[tuple[str, Any]] = []

    def work(self) -> dict[str, Work]:
        return {"one": self._one, "two": self._two, "tidy": self._one}

    def _one(self, arguments: dict[str, Any]) -> Any:
        self.made.append(("one", arguments.get("n")))
        return arguments.get("n")

    def _two(self, arguments: dict[str, Any]) -> Any:
        n = arguments["n"]
        self.made.append(("two", n))
        failure = Failed("Provider.Call.X.Broken", "no") if n in self.broken else None
        return Answer(n, failure, does={"charge": n})


def a_flow() -> bytes:
    item = inner(
        {
            "a": call(task("one", n="{{ step.input }}"), "b", assign={"n": "{{ step.input }}"}),
            "b": call(task("two", n="{{ vars.n }}"), "c", middleware=[timeout("PT1H"), retry(2)]),
            "c": returns("{{ vars.n }}"),
        }
    )
    gather = {
        "action": "Gather",
        "over": "{{ [0, 1, 2, 3] }}",
        "call": {"flow": "item"},
        "concurrency": 2,
        "next": "done",
    }
    steps = {"g": gather, "done": returns("{{ step.input }}")}
    return jsontext.encode(flow(steps, flows={"item": item}, middleware=[cleanup(task("tidy"))]))


def a_playbook() -> bytes:
    return playbook(
        """
executor: {spec: {final_step: report}}
workflow:
  - step: items
    loop: {in: "{{ [0, 1, 2, 3] }}", iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      - a: {kind: one, n: "{{ iter.n }}"}
      - b: {kind: two, n: "{{ iter.n }}"}
    next: {arcs: [{step: after, when: "{{ event.name == 'loop.done' }}"}]}
  - {step: after, tool: {kind: one, n: after}}
  - {step: report, tool: {kind: tidy, n: report}}
"""
    ).encode()


def languages(work: dict[str, Work]) -> dict[str, Dialect]:
    known = Flow(lambda name: Described() if name in work else None, lambda: tuple(work))
    return {"flow": known, "playbook": Playbook(work.__contains__, lambda: tuple(work))}


async def play(language: str, folder: Path, **options: Any) -> tuple[Stage, Shop, int]:
    """Also how many commits there were before the redrive."""
    shop = Shop()
    work = shop.work()
    stage = Stage(folder, languages(work), work, **options)
    await stage.world.boot()
    await stage.begin(language, a_flow() if language == "flow" else a_playbook())
    await stage.settle()
    before = stage.commits
    shop.broken.clear()
    await stage.tell(i.Reopen(key="redrive"))
    await stage.settle()
    return stage, shop, before


async def check(stage: Stage, language: str) -> None:
    shown = await stage.show()
    if language == "flow":
        assert shown == {"type": "success", "value": [0, 1, 2, 3]}
    else:
        assert (shown["status"], shown["failures"]) == ("success", [])
        assert shown["steps"]["items"]["done"] == 1
        assert [name for name, _, _ in shown["order"]].count("report") == 4, "the final step ran at both ends"
    effects = (await stage.world.engine.execution("run")).state.effects  # type: ignore[union-attr, arg-type]
    assert len(effects) == 4
    assert all(effect.is_completed for effect in effects.values())


@pytest.mark.parametrize("language", ["flow", "playbook"])
async def test_a_crash_at_any_commit_of_a_redrive_changes_nothing(
    language: str, tmp_path: Path, sample: Sample
) -> None:
    (tmp_path / "calm").mkdir()
    with worlds_on(open_file):
        stage, shop, before = await play(language, tmp_path / "calm")
        await check(stage, language)
        finished = [n for name, n in shop.made if name == "one"]
        assert all(finished.count(n) == 1 for n in range(4)), "what had finished is not done again"
        total = stage.commits
        await stage.world.close()
    assert total > before + 2
    moments = [(at, after) for at in range(before, total + 1) for after in (False, True)]
    for at, after in [(NEVER, False), *sample.take(moments)]:
        place = tmp_path / f"{at}-{after}"
        place.mkdir()
        stage, _, _ = await play(language, place, crash_at=at, after=after)
        await check(stage, language)
        await stage.world.close()
