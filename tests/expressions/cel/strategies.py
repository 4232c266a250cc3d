"""Hypothesis strategies for mostly valid CEL expressions, and data to evaluate them on."""

from typing import Any

from hypothesis import strategies as st

DATA: dict[str, Any] = {
    "n": 7,
    "d": 2.5,
    "s": "héllo wörld",
    "b": True,
    "nothing": None,
    "xs": [3, 1, 2],
    "ds": [1.5, -2.0, 1e3],
    "words": ["apple", "Banana", "", "cherry pie"],
    "m": {"a": 1, "b": "two", "c": [1, 2.0, None], "d": {"e": False}},
    "rows": [{"id": 1, "name": "x", "ok": True}, {"id": 2, "name": "y", "ok": False}, {"id": 3, "name": "z"}],
}


def _choice(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def _format(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda *chosen: template.format(*chosen), *parts)


Kinds = dict[str, st.SearchStrategy[str]]

_LEAVES: Kinds = {
    "int": st.one_of(
        st.integers(-20, 20).map(str),
        _choice("9223372036854775807", "-9223372036854775808", "4611686018427387904", "9007199254740993", "n", "m.a"),
    ),
    "uint": _choice("0u", "1u", "7u", "18446744073709551615u"),
    "double": _choice("0.0", "-0.0", "1.5", "2.5", "-7.25", "1e300", "1e-300", "d", "9007199254740992.0"),
    "string": _choice(
        *("''", "'a'", "'apple'", "'é'", "'😀 x'", "s", "words[1]", "m.b", r"'a\nb'", "'42'", "'-1.5'", "'true'")
    ),
    "bool": _choice("true", "false", "b", "has(m.a)", "has(m.zzz)", "m.d.e"),
    "list": _choice("[]", "xs", "ds", "words", "[1, 2u, 3.0]", "m.c", "['a', 'b']", "[[1], [2]]", "[null, true]"),
    "map": _choice("{}", "m", "{'a': 1}", "{1: 'x', 2u: 'y', false: 'z'}", "rows[0]"),
    "time": _choice("timestamp('2020-02-29T12:30:45.5Z')", "timestamp(0)", "timestamp('1969-12-31T23:59:59.999Z')"),
    "span": _choice("duration('1h30m')", "duration('-2.5s')", "duration('0')", "duration('3ms')"),
    "odd": _choice("null", "nothing", "b'xy'", "timestamp('x')", "unknown", "m.zzz", "(1 / 0)", "xs[9]"),
}


def _grow(inner: Kinds) -> Kinds:
    """Expressions one level deeper, by the type they should have; one operand in many is of any type."""
    anything = st.one_of(*inner.values())

    def mostly(kind: str) -> st.SearchStrategy[str]:
        return st.integers(0, 15).flatmap(lambda draw: anything if draw == 0 else inner[kind])

    order = _choice("<", "<=", ">", ">=", "==", "!=")
    arithmetic = _choice("+", "-", "*", "/", "%")
    loops = _choice("all", "exists", "exists_one")
    grown: Kinds = {
        "int": st.one_of(
            _format("({0} {1} {2})", mostly("int"), arithmetic, mostly("int")),
            _format("size({0})", st.one_of(inner["string"], inner["list"], inner["map"])),
            _format("int({0})", st.one_of(inner["double"], inner["uint"], inner["string"], inner["time"])),
            _format("(-({0}))", mostly("int")),
            _format("{0}.{1}({2})", inner["string"], _choice("indexOf", "lastIndexOf"), mostly("string")),
            _format("{0}.{1}()", inner["time"], _choice("getHours", "getMonth", "getDayOfYear", "getMilliseconds")),
            _format("{0}.{1}()", inner["span"], _choice("getHours", "getMinutes", "getSeconds")),
            _format("math.{0}({1}, {2})", _choice("greatest", "least"), inner["int"], inner["double"]),
            _format("math.{0}({1})", _choice("abs", "sign"), mostly("int")),
            _format("xs[{0}]", mostly("int")),
        ),
        "uint": st.one_of(
            _format("({0} {1} {2})", mostly("uint"), arithmetic, mostly("uint")),
            _format("uint({0})", st.one_of(inner["double"], inner["int"], inner["string"])),
        ),
        "double": st.one_of(
            _format("({0} {1} {2})", mostly("double"), _choice("+", "-", "*", "/"), mostly("double")),
            _format("double({0})", st.one_of(inner["int"], inner["uint"], inner["string"])),
            _format("math.{0}({1})", _choice("abs", "sign", "ceil", "floor", "round", "trunc"), mostly("double")),
        ),
        "string": st.one_of(
            _format("({0} + {1})", mostly("string"), mostly("string")),
            _format("string({0})", st.one_of(inner["int"], inner["uint"], inner["bool"], inner["string"])),
            _format("{0}.{1}()", mostly("string"), _choice("trim", "lowerAscii", "upperAscii")),
            _format("{0}.substring({1})", mostly("string"), inner["int"]),
            _format("{0}.charAt({1})", mostly("string"), inner["int"]),
            _format("{0}.replace({1}, {2})", mostly("string"), inner["string"], inner["string"]),
            _format("{0}.split(' ').join({1})", inner["string"], inner["string"]),
            _format("base64.encode(bytes({0}))", mostly("string")),
            _format("'%s|%x'.format([{0}, {1}])", st.one_of(inner["int"], inner["list"]), inner["int"]),
        ),
        "bool": st.one_of(
            _format("({0} {1} {2})", anything, _choice("==", "!="), anything),
            *(_format("({0} {1} {2})", mostly(kind), order, mostly(kind)) for kind in ("int", "string", "span")),
            _format("({0} {1} {2})", inner["int"], order, st.one_of(inner["double"], inner["uint"])),
            _format("({0} {1} {2})", mostly("bool"), _choice("&&", "||"), mostly("bool")),
            _format("(!{0})", mostly("bool")),
            _format("({0} in {1})", anything, st.one_of(inner["list"], inner["map"])),
            _format("{0}.{1}({2})", mostly("string"), _choice("contains", "startsWith", "endsWith"), mostly("string")),
            _format("{0}.{1}(x, x {2} {3})", mostly("list"), loops, order, anything),
            _format("bool({0})", inner["string"]),
        ),
        "list": st.one_of(
            _format("({0} + {1})", mostly("list"), mostly("list")),
            _format("[{0}, {1}]", anything, anything),
            _format("{0}.filter(x, x {1} {2})", mostly("list"), _choice("==", "!="), anything),
            _format("{0}.map(x, [x, {1}])", mostly("list"), anything),
            _format("xs.map(x, x {0} {1})", arithmetic, inner["int"]),
            _format("{0}.split({1})", inner["string"], _choice("' '", "'a'", "','")),
            _choice("rows.filter(r, r.ok)", "rows.filter(q, has(q.ok)).map(r, r.name)", "rows.map(r, r.id)"),
            _format("cel.bind(v, {0}, [v, {1}])", anything, anything),
        ),
        "map": st.one_of(_format("{{'k': {0}, 'l': {1}}}", anything, anything)),
        "time": _format("({0} {1} {2})", mostly("time"), _choice("+", "-"), mostly("span")),
        "span": st.one_of(
            _format("({0} {1} {2})", mostly("span"), _choice("+", "-"), mostly("span")),
            _format("({0} - {1})", mostly("time"), mostly("time")),
        ),
        "odd": st.one_of(
            _format("{0}[{1}]", mostly("map"), anything),
            _format("{0}[{1}]", mostly("list"), anything),
            _format("optional.of({0}).orValue({1})", anything, anything),
            _format("m[?{0}].orValue({1})", anything, anything),
        ),
    }
    chosen = {kind: _format("({0} ? {1} : {2})", mostly("bool"), inner[kind], inner[kind]) for kind in grown}
    return {kind: st.one_of(inner[kind], grown[kind], grown[kind], chosen[kind]) for kind in grown}


expressions: st.SearchStrategy[str] = st.one_of(*_grow(_grow(_LEAVES)).values())
