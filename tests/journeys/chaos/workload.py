"""The runs of the chaos test: documents of the three languages, what is said to them, and what counts of their end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from perdure.engine.client import Client
from perdure.kernel.judging import Applied
from perdure.kernel.values import RunId

DOCUMENTS = Path(__file__).parent / "documents"
CHILDREN = "children.yaml"

Steer = Callable[[Client, RunId], Awaitable[None]]


async def _approve_story(client: Client, run: RunId) -> None:
    await client.steer(run, "gate", {"step": "approve", "state": "Approved"}, key="approve", by="chaos")


async def _approve_playbook(client: Client, run: RunId) -> None:
    await client.steer(run, "patch", {"ctx": {"approved": True}}, key="approve", by="chaos")


async def _say_go(client: Client, run: RunId) -> None:
    await client.signal(run, "listen.word", "go", key="go", by="chaos")


async def _cancel(client: Client, run: RunId) -> None:
    await client.cancel(run, "enough", "chaos")


STEERED: dict[str, Steer] = {
    "flow-cancelled": _cancel,
    "playbook-gate": _approve_playbook,
    "playbook-cancelled": _cancel,
    "story-gate": _approve_story,
    "story-signal": _say_go,
    "story-cancelled": _cancel,
}
"""What somebody outside says to a run of this document, sooner or later."""


@dataclass(frozen=True)
class Order:
    """One run to be: which document, under which token. The token is also what its tasks tell the receiver."""

    kind: str
    token: str

    @property
    def language(self) -> str:
        return self.kind.partition("-")[0]

    @property
    def steer(self) -> Steer | None:
        return STEERED.get(self.kind)

    async def start(self, client: Client) -> RunId:
        """The same order started again is the same run."""
        path = _path(self.kind)
        given = {"what": self.token}
        options = {"args": given} if self.language == "flow" and self.kind == "flow-cancelled" else {}
        applied = [Applied(str(one), one.read_text()) for one in (path, DOCUMENTS / CHILDREN)]
        handle = await client.start(
            path.read_bytes(),
            given,
            applied=applied if self.language == "story" else applied[1:],
            options=options,
            token=self.token,
            seed=7,
        )
        return handle.id


def kinds() -> list[str]:
    return sorted(path.stem for path in DOCUMENTS.iterdir() if path.name != CHILDREN)


def orders(count: int, seed: int) -> list[Order]:
    """Every kind equally often, in an order drawn from the seed."""
    every = kinds()
    drawn = [Order(every[number % len(every)], f"{every[number % len(every)]}-{number}") for number in range(count)]
    Random(seed).shuffle(drawn)
    return drawn


def _path(kind: str) -> Path:
    return next(path for path in DOCUMENTS.iterdir() if path.stem == kind)


def essence(language: str, shown: Any) -> Any:
    """How a run ended, without what may rightly differ: instants, and how often something was tried."""
    match language:
        case "flow":
            return shown
        case "playbook":
            return {name: _plain(shown[name]) for name in ("status", "ctx", "result", "branches", "stranded")}
        case _:
            status = shown["status"]
            phases = {name: state["phase"] for name, state in status["stepStates"].items()}
            return {"phase": status["phase"], "output": status.get("output"), "steps": phases}


def _plain(value: Any) -> Any:
    """Without the ids of children, which are numbered as they come."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name not in ("execution_id", "ref", "ctx_ref")}
    return [_plain(one) for one in value] if isinstance(value, list) else value
