"""Optional libraries, and the failure when one is missing."""

import importlib
from typing import Any

from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import EXTRAS


def import_library(provider: str, prefix: str) -> Any:
    """The library of a provider, or a failure that names the extra to install."""
    library, extra = EXTRAS[provider]
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        message = f"{library} is not installed here: pip install 'perdure[{extra}]'"
        raise ProviderFailure(f"{prefix}.MissingExtra", message, False, {"library": library, "extra": extra}) from None
