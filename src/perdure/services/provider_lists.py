"""The providers that a language brings, by name: nothing is imported before one is used."""

from collections.abc import Mapping


class ProviderList:
    """What the tasks of one language may call, besides the providers that every language has.

    `modules`: by name, the module whose `PROVIDER` is meant. `prefixes`: how names begin that only the engine of the
    language calls; their arguments say what it has validated, for example which places are references to secrets, and
    a document, or data, must not say it. `code`: those that run code which a document brings along, or programs which
    it names. `replaceable`: those that give way to a user's provider of the same name.
    """

    def __init__(
        self,
        language: str,
        *,
        prefixes: tuple[str, ...],
        modules: Mapping[str, str],
        code: frozenset[str] = frozenset(),
        replaceable: frozenset[str] = frozenset(),
    ) -> None:
        self.language = language
        self.prefixes = prefixes
        self.modules = modules
        self.code = code
        self.replaceable = replaceable
