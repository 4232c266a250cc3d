"""The password of a store is in no message, however its address is misspelt."""

import secrets

import pytest

from perdure.engine.clock import SystemClock
from perdure.stores.errors import StoreError
from perdure.stores.store_urls import without_password
from perdure.wiring import open_admin, open_store


@pytest.mark.parametrize(
    "form",
    [
        "host=db user=u password={} dbname=x",
        "{}@h/db",
        "postgresql:/u:{}@h/db",
        "postgresql:u:{}@h/db",
        "sqlite:u:{}@h/db",
        "mysql://u:{}@h/db",
        "postgresql://u:{} x@h/db",
        "postgresql://u:{}/x@h/db",
        "postgresql://u:x/{}@h/db",
        "postgresql://u:x?{}@h/db",
        "postgresql://u@h/db?password={}&nothing=x",
    ],
)
def test_a_misspelt_address_is_refused_without_its_password(form: str) -> None:
    password = secrets.token_hex(8)

    for open_it in (open_store, open_admin):
        with pytest.raises(StoreError) as refused:
            opened = open_it(form.format(password), SystemClock())
            opened.statistics()  # type: ignore[union-attr]
        assert password not in str(refused.value)


@pytest.mark.parametrize("name", ["password", "sslpassword", "SSLPassword"])
def test_passwords_among_parameters_are_not_shown(name: str) -> None:
    password = secrets.token_hex(8)

    shown = without_password(f"postgresql://u@h/db?a=1&{name}={password}&b=2")

    assert shown == f"postgresql://u@h/db?a=1&{name}=***&b=2"
