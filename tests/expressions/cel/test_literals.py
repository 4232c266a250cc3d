"""Literals: numbers of 64 bits, strings and bytes with every escape."""

import pytest
from tests.expressions.cel.evaluation import refusal_of, value_of

from perdure.expressions.cel import Uint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'\a\b\f\n\r\t\v\\\?\"\'\`'", "\a\b\f\n\r\t\v\\?\"'`"),
        (r"'\x41\X42\101\u0043\U00000044'", "ABACD"),
        (r"r'\n'", "\\n"),
        ("'''a'b''c'''", "a'b''c"),
        ('"""a\n"b"""', 'a\n"b'),
        ("'😀'", "😀"),
        (r"b'\xff\377\n'", b"\xff\xff\n"),
        ("b'é'", "é".encode()),
        (r"br'\x'", b"\\x"),
        ("''", ""),
        ("18446744073709551615u", Uint(2**64 - 1)),
        ("0x10u", Uint(16)),
        ("1.5e-3", 0.0015),
    ],
)
def test_a_literal_has_its_value(text: str, value: object) -> None:
    result = value_of(text)

    assert (type(value), value) == (type(result), result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9223372036854775808", "this int does not fit in 64 bits"),
        ("-9223372036854775809", "this int does not fit in 64 bits"),
        ("18446744073709551616u", "this uint does not fit in 64 bits"),
        ("1" * 10_000, "this int does not fit in 64 bits"),
        (r"'\ud800'", "0xd800 is not a Unicode code point"),
        (r"'\U00110000'", "0x110000 is not a Unicode code point"),
        (r"b'\u0041'", "\\u and \\U are for strings; bytes take \\x and octal escapes"),
        (r"'\8'", "unknown escape '\\\\8'"),
        ("'a\nb'", "this string is not closed"),
    ],
)
def test_a_literal_without_a_value_is_refused(text: str, message: str) -> None:
    assert message == refusal_of(text)[0].message
