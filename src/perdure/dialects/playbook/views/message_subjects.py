"""What control messages to a Playbook set."""

from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext

ControlMessage = i.Signal | i.Steer | i.Reopen


def subjects(message: ControlMessage) -> frozenset[str]:
    match message:
        case i.Steer("patch", body):
            return frozenset(f"ctx.{name}" for name in _members(body))
        case i.Steer("pause" | "resume"):
            return frozenset({"pause"})
        case _:
            return frozenset()


def phrase(message: ControlMessage) -> str:
    match message:
        case i.Steer("patch", body):
            return f"patch of {', '.join(sorted(subjects(message))[:5])}" if _members(body) else "patch"
        case i.Steer(verb):
            return verb
        case i.Signal(name):
            return f"signal {name!r}"
        case _:
            return "redrive"


def _members(body: object) -> list[str]:
    document = jsontext.decode(body) if isinstance(body, bytes) else None
    members = document.get("ctx") if isinstance(document, dict) else None
    return list(members) if isinstance(members, dict) else []
