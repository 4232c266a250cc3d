"""How a provider reports a failure. Independent of tasks, retries and languages."""

from typing import Any

from perdure.kernel.outcomes import Code


class ProviderFailure(Exception):
    """Raised by a provider on purpose; every member reaches the workflow unchanged.

    `code` is what handlers match, so keep it stable. `retryable` is optional. `details` must have a JSON form.
    """

    def __init__(self, code: str, message: str = "", retryable: bool | None = None, details: Any = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details


class Exhausted(ProviderFailure):
    """The process in which it happened cannot be used again: it lacks memory, or something in it does not stop."""


class EffectInDoubt(ProviderFailure):
    """Raised inside an effect if it is not known whether it happened, e.g. when a connection broke before the response.

    Any other exception means that it did not happen. One in doubt is performed again only under the same idempotency
    key, or held for an operator where the step asks for that.
    """

    def __init__(self, message: str = "", details: Any = None) -> None:
        super().__init__(Code.EFFECT_IN_DOUBT, message or "it is unknown whether the effect happened", None, details)


class BadArguments(Exception):
    """A task's arguments do not fit the function's parameters.

    It carries no code: only the provider that was called knows its prefix.
    """

    def __init__(self, message: str, parameter: str, path: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.path = path or parameter
