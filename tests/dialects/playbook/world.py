"""A scripted world with one Playbook's run in it; see `tests.dialects.universe`."""

from itertools import chain
from typing import Any

from perdure.dialects.playbook import Playbook
from perdure.dialects.playbook.views.history import expand
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.execution import Execution, Limits
from perdure.kernel.json_values import jsontext
from tests.dialects.universe import ENOUGH, START, Answer, Life, Universe, Work

__all__ = ["START", "Answer", "Work", "World", "playbook"]


class World(Universe):
    """One run. `children` are Playbooks that it may start, by name."""

    def __init__(
        self,
        document: str | bytes,
        workload: Any = None,
        *,
        options: dict[str, Any] | None = None,
        work: dict[str, Work] | None = None,
        children: dict[str, str] | None = None,
        crash: bool = False,
        seed: int | None = None,
        slots: int = ENOUGH,
        limits: Limits | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        work = work or {}
        self.dialect = Playbook(work.__contains__, lambda: tuple(work))
        super().__init__(
            {"playbook": self.dialect},
            work=work,
            crash=crash,
            seed=seed,
            slots=slots,
            limits=limits,
            variables=variables,
        )
        self.text = document if isinstance(document, bytes) else document.encode()
        settings = {"applied": applied(children or {}), **(options or {})}
        self.life: Life = super().start("playbook", self.text, workload, settings)

    def run(self) -> Any:
        """Until the end."""
        while not self.is_over:
            assert self.queue, f"stuck: {self.show()}"
            self._next()
        self._compare_with_unfolded()
        return self.show()

    def _compare_with_unfolded(self) -> None:
        """Events that stand for several leave the state that those would leave, one by one."""
        turns = [turn for row in self.rows for turn in decode_turns(self.dialect, row)]
        evolve, body = self.dialect.evolve, self.dialect.begin(None)
        for event in chain.from_iterable(expand(event) for _, events in turns for event in events):
            evolve(body, event)
        assert self.dialect.freeze(body) == self.dialect.freeze(self.execution.body)

    def settle(self, until: int | None = None) -> Any:
        super().settle(until)
        return self.show()

    def pass_time(self, seconds: float) -> Any:
        super().pass_time(seconds)
        return self.show()

    def patch(self, ctx: dict[str, Any], **rest: Any) -> Any:
        return self.tell(i.Steer("patch", jsontext.encode({"ctx": ctx, **rest}), by="operator"))

    def tell(self, input: i.Input) -> Any:
        return self.ask(self.life, input)

    @property
    def is_over(self) -> bool:
        return self.life.is_over

    @property
    def execution(self) -> Execution:
        return self.life.execution

    @property
    def events(self) -> list[e.Event]:
        return self.life.events

    @property
    def moves(self) -> int:
        return self.life.moves

    @property
    def rows(self) -> list[bytes]:
        return self.life.rows

    @property
    def cancelled(self) -> list[int]:
        return self.life.cancelled

    def show(self) -> Any:
        return self.life.show()

    def names(self) -> list[str]:
        """Of what happened, one fact at a time."""
        return [type(event).__name__ for event in chain.from_iterable(map(expand, self.events))]


def applied(children: dict[str, str]) -> list[dict[str, Any]]:
    """Playbooks that a run may start, as its record of them."""
    return [
        {"names": [name, _path(text)], "language": "playbook", "text": text, "calls": True}
        for name, text in children.items()
    ]


def _path(text: str) -> str:
    (declared,) = Playbook().declares(text.encode())
    return declared.name


HEAD = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: test, path: tests/test}
"""
EXTENSION = "executor: {requires: {features: [cursor]}}"  # of cursor loops (PBK-114)


def playbook(body: str) -> str:
    return HEAD + body
