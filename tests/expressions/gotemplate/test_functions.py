"""The functions of STY-201 and STY-203: all of them, and where they differ from Sprig on purpose."""

import re
from typing import Any

import pytest

from perdure.expressions.gotemplate import DETERMINISTIC, RUNTIME, EvaluationFault, compile_template

GO = "and or not eq ne lt le gt ge index slice len print printf println html js urlquery call"
SPRIG = """
date date_in_zone date_modify dateInZone dateModify duration durationRound htmlDate htmlDateInZone must_date_modify
mustDateModify mustToDate toDate unixEpoch abbrev abbrevboth trunc trim upper lower title untitle substr trimall trimAll
trimSuffix trimPrefix nospace initials snakecase camelcase kebabcase wrap wrapWith contains hasPrefix hasSuffix quote
squote cat indent nindent replace plural sha1sum sha256sum adler32sum toString atoi int64 int float64 toDecimal add1 add
sub div mod mul add1f addf subf divf mulf biggest max min maxf minf ceil floor round split splitList splitn toStrings
join sortAlpha default empty coalesce all any compact mustCompact fromJson toJson toPrettyJson toRawJson mustFromJson
mustToJson mustToPrettyJson mustToRawJson ternary typeOf typeIs typeIsLike kindOf kindIs deepEqual base dir clean ext
isAbs osBase osClean osDir osExt osIsAbs b64enc b64dec b32enc b32dec tuple list dict get hasKey pluck keys pick omit
values append push mustAppend mustPush prepend mustPrepend first mustFirst rest mustRest last mustLast initial
mustInitial reverse mustReverse uniq mustUniq without mustWithout has mustHas slice mustSlice concat dig semver
semverCompare fail
"""
STORY = "len hash_of type_of exists sample"
CHANCE = "now randAlpha randAlphaNum randAscii randNumeric randInt uuidv4"


def test_exactly_the_listed_functions_exist() -> None:
    repeatable = set(f"{GO} {SPRIG} {STORY}".split()) - {"and", "or"}

    assert set(DETERMINISTIC.functions) == repeatable
    assert set(RUNTIME.functions) == repeatable | set(CHANCE.split())


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("len nil", "0"),
        ('len "é"', "2"),
        ("len (dict `a` 1)", "1"),
        ('hash_of "a"', "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ('type_of "a"', "string"),
        ("type_of 1", "number"),
        ("type_of 1.5", "number"),
        ("type_of true", "bool"),
        ("type_of (dict)", "object"),
        ("type_of (list)", "array"),
        ("type_of nil", "null"),
        ("exists nil", "false"),
        ("exists false", "true"),
        ("sample 5", "5"),
        # numbers are numbers (STY-206)
        ("typeOf (add 1 2)", "int"),
        ("deepEqual (list 1 2) (list 1.0 2)", "true"),
        ("has 1.0 (list 1)", "true"),
        ("add 9223372036854775807 1", "-9223372036854775808"),
        ("duration 95", "1m35s"),
        ('plural "one" "many" 1.0', "one"),
        # maps come in the order of their keys
        ('keys (dict "b" 1 "a" 2)', "[a b]"),
        ('values (dict "b" 1 "a" 2)', "[2 1]"),
        ("toJson nil", "null"),
        ('toJson (toDate "2006-01-02" "2024-02-29")', '"2024-02-29T00:00:00Z"'),
        ('round 123.5555 3', "123.556"),
        ('toDate "2006-01-02" "2024-02-29"', "2024-02-29 00:00:00 +0000 UTC"),
        ('eq (toDate "2006" "2024") (toDate "06" "24")', "true"),
        ('eq (toDate "15 -07 2006" "12 +02 2024") (toDate "15 2006" "10 2024")', "true"),
        ('lt (toDate "2006" "2023") (toDate "06" "24")', "true"),
        ('dateInZone "15:04 MST" 1700000000 "Local"', "22:13 UTC"),
        ('slice "héllo" 1 3', "é"),
        ("rest (list)", "[]"),
        ('(semver "1.2.3-rc.1").Prerelease', "rc.1"),
        ('trunc 2 "héllo"', "h\ufffd"),
        ('trunc 3 "héllo"', "hé"),
    ],
)  # fmt: skip
def test_a_function_gives(call: str, result: str) -> None:
    assert compile_template(f"{{{{ {call} }}}}").render_text({}) == result


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("len 3", "len: an integer has no length"),
        ("hash_of nil", "hash_of: only a string has a hash, not nil"),
        ("hash_of 1", "hash_of: only a string has a hash, not an integer"),
        ('date "2006" "today"', "date: a string is neither a time nor seconds since the epoch"),
        ('dateInZone "2006" 0 "Mars/Base"', "dateInZone: 'Mars/Base' is not a time zone"),
        ('mustToDate "2006Z07:00" "0001+14:00"', "mustToDate: this instant is not between the years 1 and 9999"),
        ("splitn `,` 1e30 `a,b`", "splitn: its argument 2 has more than 64 bits"),
        ("upper", "upper: it takes 1 argument, not 0"),
        ('b64dec "%"', "b64dec: this is not base64"),
        ("first `abc`", "first: its argument 1 must be a list, not a string"),
        ("int 1e300", "int: 1e+300 is not in the range of 64-bit integers"),
        ("toJson (divf 1 0)", "divf: division by zero"),
        ('ternary 1 2 "x"', "ternary: its argument 3 must be a bool, not a string"),
    ],
)
def test_a_function_refuses(call: str, message: str) -> None:
    with pytest.raises(EvaluationFault, match=re.escape(message)):
        compile_template(f"{{{{ {call} }}}}!").render({})


def test_arguments_are_never_changed() -> None:
    data: dict[str, Any] = {"inputs": {"l": [3, 1, 1], "m": {"b": 1, "a": 2}}}

    compile_template(
        "{{ append inputs.l 4 }}{{ reverse inputs.l }}{{ uniq inputs.l }}{{ sortAlpha inputs.l }}"
        "{{ omit inputs.m `a` }}{{ concat inputs.l inputs.l }}{{ prepend inputs.l 0 }}"
    ).render(data)

    assert data == {"inputs": {"l": [3, 1, 1], "m": {"b": 1, "a": 2}}}
