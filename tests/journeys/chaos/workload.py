"""The runs of the chaos test: documents of the three languages, what is said to them, and what counts of their end."""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from perdure.engine.client import Client
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values.values import RunId

DOCUMENTS = Path(__file__).parent / "documents"
CHILDREN = "children.yaml"


@dataclass(frozen=True)
class Word:
    """What somebody outside says to a run. The log names it by its kind and key, whether it counts or not."""

    kind: str
    key: str
    given: Any

    async def say(self, client: Client, run: RunId) -> None:
        match self.kind, self.given:
            case "cancel", reason:
                await client.cancel(run, reason, "chaos")
            case "signal", (name, value):
                await client.signal(run, name, value, key=self.key, by="chaos")
            case _, (verb, body):
                await client.steer(run, verb, body, key=self.key, by="chaos")


_CANCEL = (Word("cancel", "", "enough"),)
_APPROVED = ("gate", {"step": "approve", "state": "Approved"})
_PATCHED = ("patch", {"ctx": {"approved": True}})

WORDS: dict[str, tuple[Word, ...]] = {
    "flow-cancelled": _CANCEL,
    "playbook-gate": (Word("steer", "approve", _PATCHED), Word("steer", "again", _PATCHED)),
    "playbook-cancelled": _CANCEL,
    "story-gate": (Word("steer", "approve", _APPROVED), Word("steer", "again", _APPROVED)),
    "story-signal": (Word("signal", "go", ("listen.word", "go")), Word("signal", "noise", ("listen.noise", "psst"))),
    "story-cancelled": _CANCEL,
}
"""What is said to a run of this document, at any moment: what it waits for, and what may come too late."""


@dataclass(frozen=True)
class Order:
    """One run to be: which document, under which token. The token is also what its tasks tell the receiver."""

    kind: str
    token: str

    @property
    def language(self) -> str:
        return self.kind.partition("-")[0]

    @property
    def words(self) -> tuple[Word, ...]:
        return WORDS.get(self.kind, ())

    async def start(self, client: Client) -> RunId:
        """The same order started again is the same run."""
        path = _path(self.kind)
        arguments = {"what": self.token}
        options = {"args": arguments} if self.language == "flow" and self.kind == "flow-cancelled" else {}
        applied = [AppliedDocument(str(file), file.read_text()) for file in (path, DOCUMENTS / CHILDREN)]
        handle = await client.start(
            path.read_bytes(),
            arguments,
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
        return {
            name: _plain(member) for name, member in value.items() if name not in ("execution_id", "ref", "ctx_ref")
        }
    return [_plain(element) for element in value] if isinstance(value, list) else value
