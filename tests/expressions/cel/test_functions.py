"""Conversions and the extension libraries, by example. The conformance suite has the official ones."""

import math

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of

from perdure.expressions.cel import Uint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int('-12')", -12),
        ("int('+7')", 7),
        ("int(3.99)", 3),
        ("uint('7')", Uint(7)),
        ("double('1e3')", 1000.0),
        ("double('-Infinity')", -math.inf),
        ("string(1000000.0)", "1e+06"),
        ("string(123456.0)", "123456"),
        ("string(0.00001)", "1e-05"),
        ("string(-0.0)", "-0"),
        ("string(1.0 / 0.0)", "Infinity"),
        ("string(true)", "true"),
        ("string(b'\\xc3\\xa9')", "é"),
        ("bytes('é').size()", 2),
        ("size('é😀')", 2),
        ("bool('True')", True),
        ("'%s %d %.2f %x %b %o %e'.format(['a', 1, 2.345, 255, 5, 8, 1500.0])", "a 1 2.35 ff 101 10 1.500000e+03"),
        ("'%d %d'.format([2.0, 2.5])", "2 2.5"),
        ("'%s'.format([[1, 'a', null, {'b': 1.5, 'a': true}]])", "[1, a, null, {a: true, b: 1.5}]"),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("'abc'.split('')", ["a", "b", "c"]),
        ("'abc'.split('', 2)", ["a", "bc"]),
        ("'aXbX'.replace('X', '', 1)", "abX"),
        ("'abc'.reverse()", "cba"),
        ("strings.quote('a\"\\n')", '"a\\"\\n"'),
        ("lists.range(4)", [0, 1, 2, 3]),
        ("[1, 2, 3, 4].slice(1, 3)", [2, 3]),
        ("[1, [2, [3]]].flatten()", [1, 2, [3]]),
        ("[1, [2, [3]]].flatten(9)", [1, 2, 3]),
        ("[1, 1.0, 'a', 1u, true, [1], [1.0], 'a'].distinct()", [1, "a", True, [1]]),
        ("[3, 1, 2].sort()", [1, 2, 3]),
        ("[2.5, 1, 2u].sort()", [1, 2, 2.5]),
        ("['b', 'a'].sort().reverse()", ["b", "a"]),
        ("[1, 2].first().value() + [1, 2].last().value()", 3),
        ("[].first().hasValue()", False),
        ("sets.contains([1, 2, 3], [3.0, 1])", True),
        ("sets.equivalent([1, 1, 2], [2u, 1])", True),
        ("sets.intersects([1], [2])", False),
        ("math.greatest([1, 2.5, 2u])", 2.5),
        ("math.round(-2.5)", -3.0),
        ("math.bitShiftRight(-1024, 3)", 2305843009213693824),
        ("math.sqrt(9.0)", 3.0),
        ("base64.encode(b'hi') + string(base64.decode('aGk'))", "aGk=hi"),
        ("optional.unwrap([optional.of(1), optional.none()])", [1]),
        ("optional.of(1).orValue(1 / 0)", 1),
        ("optional.ofNonZeroValue('').orValue('x')", "x"),
        ("'abc'.matches('^a.c$') && matches('xyz', 'y')", True),
    ],
)
def test_a_function_gives(text: str, value: object) -> None:
    result = value_of(text)

    assert result == value
    assert isinstance(result, list) or type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int('1.5')", "'1.5' is not an int"),
        ("int(' 1')", "' 1' is not an int"),
        ("int('9223372036854775808')", "int overflow"),
        ("int(1e19)", "the double does not fit in an int"),
        ("int(0.0 / 0.0)", "the double does not fit in an int"),
        ("uint(-1)", "uint overflow"),
        ("uint('-1')", "'-1' is not a uint"),
        ("double('1e999')", "'1e999' is too large for a double"),
        ("double('0x10')", "'0x10' is not a double"),
        ("string(b'\\xff')", "the bytes are not UTF-8"),
        ("bool('yes')", "'yes' is not a bool"),
        ("int(true)", "no such overload: int(bool)"),
        ("size(1)", "no such overload: size(int)"),
        ("'a'.startsWith(1)", "no such overload: string.startsWith(int)"),
        ("'abc'.substring(2, 1)", "a substring cannot end at 1 before its start at 2"),
        ("'abc'.charAt(4)", "position 4 is out of range: the string has 3 code points"),
        ("[1].join()", "join() needs a list of strings, this one holds int"),
        ("'%q'.format([1])", "unknown formatting clause '%q'"),
        ("'%d'.format([])", "there is no argument for '%d'"),
        ("'%d'.format(['a'])", "%d does not take string"),
        ("[1, 'a'].sort()", "int and string have no order"),
        ("[0.0 / 0.0, 1.0].sort()", "NaN cannot be ordered"),
        ("[1, 2].slice(1, 3)", "a slice from 1 to 3 is out of range: the list has 2 elements"),
        ("lists.range(-1)", "a range cannot have -1 elements"),
        ("math.greatest([])", "math.greatest() of an empty list"),
        ("math.greatest('a')", "no such overload: math.greatest(string)"),
        ("math.bitShiftLeft(1, -1)", "a shift by -1 is negative"),
        ("base64.decode('!')", "'!' is not base64"),
        ("optional.none().value()", "optional.none() has no value"),
        ("'a'.matches('(')", "invalid regular expression: missing ) (at character 2)"),
        ("nope(1)", "there is no function `nope`"),
        ("'a'.nope()", "there is no method `nope`"),
    ],
)
def test_a_function_without_a_result_faults(text: str, message: str) -> None:
    assert fault_of(text).message == message
