"""How a provider says that it failed. It knows nothing of tasks, retries or languages."""

from typing import Any

from perdure.kernel.outcomes import Code


class ProviderFailure(Exception):
    """Raised by a provider on purpose; every member reaches the workflow as it is given here.

    `code` is what handlers match, so keep it stable. `retryable` is an opinion the
    provider may leave out. `details` must have a JSON form.
    """

    def __init__(self, code: str, message: str = "", retryable: bool | None = None, details: Any = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details


class Exhausted(ProviderFailure):
    """The process in which it happened is of no further use: it lacks memory, or something in it does not stop."""


class EffectInDoubt(ProviderFailure):
    """Raised inside an effect by who cannot say whether it happened: a connection that broke before the answer, say.

    Any other exception says that it did not happen. One in doubt is performed again only under the same idempotency
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
