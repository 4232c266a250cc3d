"""The failure of an Engram, with the members of a StepRun's structured error."""

from typing import Any

from perdure.providers.failure import ProviderFailure

CODE = "Engram.Failed"


class EngramError(ProviderFailure):
    """Every member reaches `status.error` of the StepRun; missing ones are derived from the others.

    `exit_class` is one of success, retry, terminal, rateLimited, unknown and decides whether the step is retried;
    without it `retryable` decides, and without that the class of `exit_code`.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str | None = None,
        exit_code: int | None = None,
        exit_class: str | None = None,
        retryable: bool | None = None,
        code: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        members = {
            "type": type,
            "exitCode": exit_code,
            "exitClass": exit_class,
            "retryable": retryable,
            "code": code,
            "details": details,
        }
        report = {name: value for name, value in members.items() if value is not None}
        super().__init__(CODE, message, retryable, report or None)
