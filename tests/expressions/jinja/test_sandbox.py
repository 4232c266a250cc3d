"""No access to Python behind the data, no change of data, no escape (PBK-147)."""

import copy
from typing import Any

import pytest

from perdure.expressions.jinja import Guard, TemplateError, compile_text

ROOTS: dict[str, Any] = {"ctx": {"d": {"k": 1}, "list": [1, 2], "text": "x", "__class__": "data", "none": None}}

ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ctx.list.__class__ }}",
    "{{ ctx.list.__class__() }}",
    "{{ ctx['list']['__class__'] }}",
    "{{ ctx.text | attr('__class__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ [''] | selectattr('__class__') | list }}",
    "{{ [''] | groupby('__class__') | list }}",
    "{{ [''] | sort(attribute='__class__') | list }}",
    "{{ [''] | sum(attribute='__class__') }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ ('{0.__class__}' | string).format('') }}",
    "{{ ('{0.__class__}' | e).format('') }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ cycler('a').__init__ }}",
    "{{ joiner().__init__.__globals__ }}",
    "{{ namespace().__class__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ dict.__base__ }}",
    "{{ range.__class__ }}",
    "{{ range.mro() }}",
    "{{ dict.mro() }}",
    "{{ dict.fromkeys([1]) }}",
    "{{ lipsum.__globals__ }}",
    "{{ self.__init__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ caller.__class__ }}",
    "{% macro m() %}{% endmacro %}{{ m.__call__ }}",
    "{% macro m() %}{% endmacro %}{{ m._environment }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{{ caller._environment }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% for x in [1] %}{{ loop._iterable }}{% endfor %}",
    "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop }}{% endfor %}",
    "{{ ctx.text.encode() }}",
    "{{ ctx.text.translate({}) }}",
    "{{ ctx.none.__class__ }}",
    "{{ (1).__class__ }}",
    "{{ (1).bit_length() }}",
    "{{ nowhere.__class__.x() }}",
    "{{ nowhere | attr('__init__') | attr('__globals__') }}",
    "{{ ''['__class__'] }}",
    "{{ 'x' | map('__class__') | list }}",
    "{{ ctx.d.items.__func__() }}",
    "{{ ctx.list | map('$method', 'append', 1) | list }}",
    "{{ ctx.list | attr('append') }}",
    "{{ environment }}",
    "{{ context }}",
    "{{ resolve('x') }}",
    "{{ undefined }}",
    "{{ _answer }}",
    "{{ range }}",
]

CHANGES = [
    "{{ ctx.list.append(3) }}",
    "{{ ctx.list.pop() }}",
    "{{ ctx.list.sort() }}",
    "{{ ctx.list.clear() }}",
    "{{ ctx.d.update({'a': 1}) }}",
    "{{ ctx.d.pop('k') }}",
    "{{ ctx.d.setdefault('a', 1) }}",
    "{{ ctx.d.clear() }}",
    "{{ ctx.d.__setitem__('a', 1) }}",
    "{{ ctx.list | indent }}",
    "{% set ctx.x = 1 %}",
    "{% set ctx.d.x = 1 %}",
    "{% do ctx.list.append(3) %}",
]


@pytest.mark.parametrize("text", ESCAPES + CHANGES)
def test_values_refuse_it(text: str) -> None:
    roots = copy.deepcopy(ROOTS)

    with pytest.raises(TemplateError):
        compile_text(text).render(roots)

    assert roots == ROOTS


@pytest.mark.parametrize("text", ESCAPES + CHANGES)
def test_guards_get_nothing_from_it(text: str) -> None:
    """Undefined is harmless in a guard, so some of these are only false."""
    roots = copy.deepcopy(ROOTS)
    try:
        answer = Guard(text).holds(roots)
    except TemplateError:
        answer = False

    assert answer is False or text in ("{{ range }}", "{{ ctx.list | attr('append') }}")
    assert roots == ROOTS


def test_a_member_may_have_any_name() -> None:
    assert compile_text("{{ ctx.__class__ }}").render(ROOTS) == "data"


@pytest.mark.parametrize("text", CHANGES[:8])
def test_the_refusal_of_a_change_says_so(text: str) -> None:
    with pytest.raises(TemplateError, match="would change data") as raised:
        compile_text(text).render(ROOTS)

    assert raised.value.code == "TEMPLATE-FORBIDDEN"
