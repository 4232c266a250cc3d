"""Every error belongs to one family, which an exit code or an HTTP status is chosen by."""

import pytest

from perdure.kernel.errors import Conflict, EngineStopped, InvalidDocument, RunNotFound, StartRefused, UnfitInput
from perdure.stores.errors import StoreAccessDenied, StoreFull, StoreInUse, StoreMissing
from perdure.views.errors import BadRequest, ErrorFamily, ProviderNotFound, family_of


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (EngineStopped("x"), ErrorFamily.ENGINE_ERROR),
        (StoreFull("x"), ErrorFamily.ENGINE_ERROR),
        (ValueError("x"), ErrorFamily.ENGINE_ERROR),
        (BadRequest("x"), ErrorFamily.USAGE),
        (UnfitInput("x"), ErrorFamily.USAGE),
        (InvalidDocument("x"), ErrorFamily.INVALID_DOCUMENT),
        (RunNotFound("x"), ErrorFamily.NOT_FOUND),
        (StoreMissing("x"), ErrorFamily.NOT_FOUND),
        (ProviderNotFound("x"), ErrorFamily.NOT_FOUND),
        (Conflict("x"), ErrorFamily.CONFLICT),
        (StoreInUse("x"), ErrorFamily.CONFLICT),
        (StartRefused("x"), ErrorFamily.NOT_ALLOWED),
        (StoreAccessDenied("x"), ErrorFamily.NOT_ALLOWED),
    ],
)
def test_an_error_has_a_family(error: Exception, family: ErrorFamily) -> None:
    assert family_of(error) is family
