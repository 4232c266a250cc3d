"""SQL text split into statements, and which values belong to which placeholder."""

from typing import Any

import pytest

from perdure.providers.databases.statements import DUCKDB, POSTGRES, SQLITE, BadStatement, Grammar, bind, split


def texts(text: str, grammar: Grammar) -> list[str]:
    return [statement.text for statement in split(text, grammar)]


@pytest.mark.parametrize(
    ("grammar", "text", "expected"),
    [
        (POSTGRES, "select 1; select 2;", ["select 1", "select 2"]),
        (POSTGRES, " ; ;\n", []),
        (POSTGRES, "-- nothing; here\n/* nor; here */", []),
        (POSTGRES, "select ';'; select 2", ["select ';'", "select 2"]),
        (POSTGRES, "select 'it''s; fine', \"a;b\"", ["select 'it''s; fine', \"a;b\""]),
        (POSTGRES, r"select E'a\';b'; x", [r"select E'a\';b'", "x"]),
        (POSTGRES, r"select 'a\'; x", [r"select 'a\'", "x"]),
        (POSTGRES, "do $$ begin; end $$; x", ["do $$ begin; end $$", "x"]),
        (POSTGRES, "select $tag$ a $$ ; b $tag$; x", ["select $tag$ a $$ ; b $tag$", "x"]),
        (POSTGRES, "select /* a /* b; */ c; */ 1; x", ["select /* a /* b; */ c; */ 1", "x"]),
        (SQLITE, "select /* a /* b; */ 1; x", ["select /* a /* b; */ 1", "x"]),
        (SQLITE, "select [a;b], `c;d`; x", ["select [a;b], `c;d`", "x"]),
        (DUCKDB, "select [1, 2]; x", ["select [1, 2]", "x"]),
        (
            SQLITE,
            "create trigger t after insert on a begin update b set n = case when 1 then 2 end; delete from c; end; x",
            [
                "create trigger t after insert on a begin update b set n = case when 1 then 2 end; delete from c; end",
                "x",
            ],
        ),
        (
            POSTGRES,
            "create function f() returns int begin atomic select 1; select 2; end; x",
            ["create function f() returns int begin atomic select 1; select 2; end", "x"],
        ),
        (POSTGRES, "select 'never closed; x", ["select 'never closed; x"]),
    ],
)
def test_statements_end_where_the_grammar_says(grammar: Grammar, text: str, expected: list[str]) -> None:
    assert texts(text, grammar) == expected


@pytest.mark.parametrize(
    ("grammar", "text", "values", "expected"),
    [
        (POSTGRES, "select %s, %s", [1, 2], [("select $1, $2", [1, 2])]),
        (POSTGRES, "a %s; b %s", [1, 2], [("a $1", [1]), ("b $1", [2])]),
        (POSTGRES, "a $2; b $1, $2, $1", [1, 2], [("a $1", [2]), ("b $1, $2, $1", [1, 2])]),
        (POSTGRES, "a %(x)s, %(y)s, %(x)s", {"x": 1, "y": 2, "z": 3}, [("a $1, $2, $1", [1, 2])]),
        (POSTGRES, "like 'a%' and x = %s -- %s", [1], [("like 'a%' and x = $1 -- %s", [1])]),
        (POSTGRES, "x::int = %s and a ? 'b'", [1], [("x::int = $1 and a ? 'b'", [1])]),
        (SQLITE, "a ?, ?; b ?", [1, 2, 3], [("a ?1, ?2", [1, 2]), ("b ?1", [3])]),
        (SQLITE, "a :x, @y, $x", {"x": 1, "y": 2}, [("a ?1, ?2, ?1", [1, 2])]),
        (SQLITE, "a ?2, ?1", [1, 2], [("a ?1, ?2", [2, 1])]),
        (DUCKDB, "a $x, {'k': 1}, b::int", {"x": 1}, [("a $1, {'k': 1}, b::int", [1])]),
        (DUCKDB, "a ?", [None], [("a $1", [None])]),
        (POSTGRES, "select '%s' % 2", None, [("select '%s' % 2", [])]),
    ],
)
def test_values_stand_where_the_text_wants_them(grammar: Grammar, text: str, values: Any, expected: Any) -> None:
    bound = bind(split(text, grammar), values, grammar)

    assert [(sent, value) for _, sent, value in bound] == expected


@pytest.mark.parametrize(
    ("text", "values", "problem"),
    [
        ("select %s, %s", [1], "value number 2, but there are 1"),
        ("select %s", [1, 2], "no placeholder uses params number 2"),
        ("select %(x)s", {"y": 1}, "params lack 'x'"),
        ("select %(x)s", [1], "needs a map"),
        ("select %s", {"x": 1}, "needs a list"),
        ("select $0", [1], "value number 0"),
    ],
)
def test_values_that_do_not_fit_are_refused(text: str, values: Any, problem: str) -> None:
    with pytest.raises(BadStatement, match=problem):
        bind(split(text, POSTGRES), values, POSTGRES)


@pytest.mark.parametrize(
    ("text", "is_control"),
    [
        ("begin", True),
        ("START TRANSACTION", True),
        ("commit work", True),
        ("rollback", True),
        ("rollback to savepoint a", False),
        ("savepoint a", False),
        ("end", True),
        ("prepare transaction 'x'", True),
        ("prepare plan as select 1", False),
        ("create table beginning(a int)", False),
    ],
)
def test_what_would_end_the_transaction_is_recognised(text: str, is_control: bool) -> None:
    [statement] = split(text, POSTGRES)

    assert statement.is_transaction_control is is_control
