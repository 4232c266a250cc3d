"""Database values as JSON: no digit is lost, and every value has a form."""

import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.kernel.json_values import jsontext
from perdure.providers.databases.values import plain, unique


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("12.10"), 12.1),
        (Decimal("12.00"), 12),
        (Decimal("1E+3"), 1000),
        (Decimal("0.1234567890123456789"), "0.1234567890123456789"),
        (Decimal("NaN"), "NaN"),
        (Decimal("Infinity"), "Infinity"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(1, 2, 3), "01:02:03"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=5))), "2026-01-01T22:00:00Z"),
        (timedelta(0), "PT0S"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4.5), "P1DT2H3M4.5S"),
        (timedelta(seconds=-90), "PT-1M-30S"),
        (b"\x00\xff", "AP8="),
        (memoryview(b"ab"), "YWI="),
        ([1, (Decimal("2.5"), None)], [1, [2.5, None]]),
        ({1: {"a": b""}}, {"1": {"a": ""}}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (ip_address("10.0.0.1"), "10.0.0.1"),
    ],
)
def test_every_value_has_a_form(value: Any, expected: Any) -> None:
    result = plain(value)

    assert result == expected and type(result) is type(expected)


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_decimal_says_the_same_as_json(value: Decimal) -> None:
    text = jsontext.encode(plain(value)).decode().strip('"')

    assert Decimal(text) == value


def test_a_row_has_room_for_columns_of_one_name() -> None:
    assert unique(["id", "id", "id_2", "id", "a"]) == ["id", "id_2", "id_2_2", "id_3", "a"]
