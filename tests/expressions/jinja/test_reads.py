"""Free names of a template, found without running it (PBK-064, PBK-184, PBK-230)."""

import pytest

from perdure.expressions.jinja import Guard, Template, TemplateReads, compile_text


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("no template", {}),
        ("{{ ctx.a }}", {"ctx": {"a"}}),
        ("{{ ctx['a'].b + ctx.c }}", {"ctx": {"a", "c"}}),
        ("{{ ctx.get('a', args.b) }}", {"ctx": {"a"}, "args": {"b"}}),
        ("{{ ctx }}", {"ctx": None}),
        ("{{ ctx.a }}{{ ctx | tojson }}", {"ctx": None}),
        ("{{ ctx[args.key] }}", {"ctx": None, "args": {"key"}}),
        ("{{ ctx.items() }}", {"ctx": None}),
        ("{{ ctx.a.items() }}", {"ctx": {"a"}}),
        ("{{ ctx.a is defined }}", {"ctx": {"a"}}),
        ("{{ steps.fetch.status == 'ok' }}", {"steps": {"fetch"}}),
        ("{{ 'ctx.a' }}", {}),
        ("{{ range(args.n) | list }}", {"args": {"n"}}),
        (
            "{% if ctx.a %}{{ args.b }}{% elif ctx.c %}{% else %}{{ event.d }}{% endif %}",
            {"ctx": {"a", "c"}, "args": {"b"}, "event": {"d"}},
        ),
        ("{% for ctx in args.list if ctx.x %}{{ ctx.y }}{{ loop.index }}{% endfor %}", {"args": {"list"}}),
        ("{% for x in args.list %}{% else %}{{ x.y }}{% endfor %}", {"args": {"list"}, "x": {"y"}}),
        ("{% set a = ctx.b %}{{ a.c }}", {"ctx": {"b"}}),
        ("{{ a.c }}{% set a = 1 %}", {"a": {"c"}}),
        ("{% if ctx.x %}{% set a = 1 %}{% endif %}{{ a }}", {"ctx": {"x"}, "a": None}),
        ("{% set a, b = ctx.p %}{{ a }}{{ b }}", {"ctx": {"p"}}),
        ("{% set a %}{{ ctx.t }}{% endset %}{{ a }}", {"ctx": {"t"}}),
        ("{% with a = ctx.x %}{{ a }}{% endwith %}{{ a }}", {"ctx": {"x"}, "a": None}),
        (
            "{% macro m(p, q=ctx.d) %}{{ p }}{{ q }}{{ ctx.e }}{% endmacro %}{{ m(args.x) }}",
            {"ctx": {"d", "e"}, "args": {"x"}},
        ),
        ("{% filter replace('a', ctx.r) %}{{ ctx.s }}{% endfilter %}", {"ctx": {"r", "s"}}),
        ("{{ ctx.a | default(workload.b) }}", {"ctx": {"a"}, "workload": {"b"}}),
        ("{{ keychain.token }}", {"keychain": {"token"}}),
    ],
)
def test_reads(text: str, members: dict[str, set[str] | None]) -> None:
    assert dict(compile_text(text).reads.members) == members


def test_a_guard_knows_what_could_change_its_answer() -> None:
    reads = Guard("{{ ctx.approved and steps.check.status == 'ok' }}").reads

    assert reads.names == {"ctx", "steps"}
    assert reads.touches("ctx", "approved")
    assert not reads.touches("ctx", "other")
    assert not reads.touches("workload", "approved")


def test_who_reads_all_is_touched_by_anything() -> None:
    assert Guard("{{ ctx | length > 3 }}").reads.touches("ctx", "anything")


def test_a_structure_reads_what_its_strings_read() -> None:
    reads = Template(["{{ ctx.a }}", {"k": "x {{ ctx.b }} {{ args }}"}]).reads

    assert dict(reads.members) == {"ctx": {"a", "b"}, "args": None}


def test_reads_add_up() -> None:
    item, other = (
        TemplateReads({"a": frozenset({"x"}), "b": None}),
        TemplateReads({"a": frozenset({"y"}), "b": frozenset({"z"})}),
    )

    assert dict((item | other).members) == {"a": {"x", "y"}, "b": None}
