"""`status.conditions`: the canonical record of a phase (STY-108, STY-109)."""

from typing import Any

from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.state.phases import Phase
from perdure.dialects.story.state.step_errors import LONGEST_CONDITION
from perdure.kernel.secret_masking import cut
from perdure.kernel.values import Instant

_DEGRADED = (Phase.FAILED, Phase.TIMEOUT, Phase.ABORTED)


def conditions(
    phase: Phase, reason: str, message: str, since: Instant, ended: Instant | None, degraded: str = ""
) -> list[dict[str, Any]]:
    """Of something that began to be at `since`; each condition changes at most once, at the end."""
    is_ready = phase is Phase.SUCCEEDED
    is_degraded = phase in _DEGRADED or bool(degraded)
    last = since if ended is None else ended

    def one(kind: str, holds: bool, changed: bool, why: str = "") -> dict[str, Any]:
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": str(why or reason),
            "message": cut(message, LONGEST_CONDITION),
            "lastTransitionTime": timestamp(last if changed else since),
            "observedGeneration": 1,
        }

    return [
        one("Ready", is_ready, is_ready),
        one("Progressing", not phase.is_terminal, phase.is_terminal),
        one("Degraded", is_degraded, is_degraded, degraded),
    ]
