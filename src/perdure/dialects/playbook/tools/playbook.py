"""`playbook`: another run, which is waited for and holds no worker meanwhile (section 15)."""

from typing import Any

from perdure.dialects.playbook import lending
from perdure.dialects.playbook.applied import find, handed_on
from perdure.dialects.playbook.durations import BOUND_RANK
from perdure.dialects.playbook.errors import Error, error
from perdure.dialects.playbook.tools.kind import Call, Kind, Landed, brief, seconds
from perdure.dialects.playbook.values import Reader
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.values import SECOND

DEEPEST = 16  # PBK-204


def _start(call: Call) -> None:
    turn, fields = call.turn, call.fields
    path = str(fields["path"])
    depth = int(jsontext.decode(turn.state.options).get("depth", 0)) + 1
    if depth > DEEPEST:
        call.fail(error("limit", f"playbooks call each other more than {DEEPEST} levels deep", "PLAYBOOK_DEPTH"))
        return
    given = fields.get("args") or {}
    if not isinstance(given, dict):
        call.fail(error("schema", "args must be a map: they are the child's workload", source="playbook"))
        return
    version = fields.get("version")
    document = find(turn.state.options, path, None if version is None else str(version))
    if document is None:
        message = f"there is no playbook {path!r}; apply it when the run is started"
        call.fail(error("not_found", message, "PLAYBOOK_NOT_FOUND", source="playbook"))
        return
    options: dict[str, Any] = {"depth": depth, "applied": handed_on(turn.state.options, document)}
    folder = jsontext.decode(turn.state.options).get("folder")
    if folder is not None:
        options["folder"] = folder
    if "iter" in call.makers:
        options["iter"] = call.makers["iter"](None)
    given = _with_bodies(call, given, options)
    detached = call.task.spec.get("detach") is True
    child = turn.start_child(
        "playbook", document, path, jsontext.encode(given), jsontext.encode(options), awaited=not detached
    )
    if detached:
        call.give(jsontext.encode({"execution_id": turn.execution.child_id(child), "status": "started"}))
    else:
        limit = seconds(call.task.spec.get("timeout"))
        call.began(child, 0 if limit is None else turn.set_timer(turn.now + int(limit * SECOND), BOUND_RANK))


def _with_bodies(call: Call, given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The child's workload, beside the bodies that it mentions."""
    lent = lending.lend(call.turn, given)
    if not lent:
        return given
    options["lent"] = True
    return {"workload": given, "references": lent}


def _land(outcome: Outcome, text: Reader) -> Landed:
    """A child of this language ends with its own envelope; any other one with its plain result."""
    match outcome:
        case Succeeded(value):
            said = jsontext.decode(text(value))
            if not lending.is_envelope(said):
                return Landed()
            seen, lent = lending.welcome(said)
            return Landed(None, jsontext.encode(seen), lent=tuple(lent), whole=said["result"])
        case Failed(code, message):
            return Landed(Error("child_failed", message, code, False, "playbook", brief(outcome.details)))
        case Cancelled(reason):
            return Landed(Error("child_failed", reason or "the child was cancelled", "cancelled", False, "playbook"))


KIND = Kind(_start, _land, required=(("path",),), fields=frozenset({"path", "version", "args"}))
