"""RE2 patterns: what matches, what is refused, what it costs."""

import pytest

from perdure.expressions.regex import BadPattern, compile_pattern


def matches(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).search(text, lambda steps: None)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", ""),
        ("b", "abc"),
        ("^abc$", "abc"),
        ("a.c", "abc"),
        ("(?s)a.c", "a\nc"),
        ("(?m)^b$", "a\nb\nc"),
        ("a|b|", "z"),
        ("^(ab){2,3}$", "ababab"),
        ("^a{2,}$", "aaaa"),
        ("^a{0}$", ""),
        ("^[^a-c]+$", "xyz\n"),
        ("^[]a-]+$", "]a-"),
        (r"^[\d\-x]+$", "1-x"),
        ("^[[:alpha:]]+$", "abC"),
        ("^[[:^alpha:]]+$", "1-2"),
        (r"^\d+\s\w+\D$", "12 ab!"),
        (r"\bfoo\b", "a foo b"),
        (r"\Bo\B", "foob"),
        (r"^\pL+$", "aéß"),
        (r"^\p{Lu}\PN$", "Éx"),
        (r"^\p{^L}$", "1"),
        (r"\Qa.b\E", "a.b"),
        (r"\x41\x{1F600}\101\.", "A😀A."),
        ("(?i)straße", "STRAßE"),
        ("(?i)k", "\u212a"),
        ("(?i:A)b", "ab"),
        ("(?i)[^b]", "a"),
        ("a(?i)b", "aB"),
        ("(?P<name>a)(?<other>b)", "ab"),
        ("a*?b+?c??", "b"),
        ("x{2", "x{2"),
        ("a{,2}", "a{,2}"),
        ("(^a|b$)+", "zb"),
        (r"\A\z", ""),
    ],
)
def test_the_pattern_occurs_in_the_text(pattern: str, text: str) -> None:
    assert matches(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a.c", "a\nc"),
        ("^b$", "a\nb\nc"),
        ("a$", "a\n"),
        ("^a{3}$", "aa"),
        ("[^a]", "a"),
        (r"\w", "é"),
        (r"\bfoo\b", "afoo"),
        ("(?i:A)b", "aB"),
        (r"(?i)\W", "\u212a"),
        ("(?-i)a", "A"),
    ],
)
def test_the_pattern_does_not_occur_in_the_text(pattern: str, text: str) -> None:
    assert not matches(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing )"),
        (")", "unexpected )"),
        ("[a", "missing ]"),
        ("[b-a]", "invalid character class range: b-a"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("a{2}{3}", "bad repetition operator: {2}{"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("a{3,2}", "invalid repetition size: {3,2}"),
        (r"(a)\1", "invalid escape sequence: \\1"),
        (r"\Z", "invalid escape sequence: \\Z"),
        ("(?=a)", "invalid group syntax: (?=a"),
        ("(?<!a)", "invalid group syntax: (?<!"),
        ("(?P=name)", "invalid group syntax: (?P="),
        ("\\", "trailing \\"),
        ("[[:nope:]]", "invalid character class: [:nope:]"),
        (r"\p{Greek}", "\\p{Greek} is not known"),
        ("(a{100}){100}", "the pattern is too large"),
        ("(" * 200 + ")" * 200, "nested too deeply"),
        ("a" * 20_001, "it is longer than 20000 characters"),
    ],
)
def test_what_is_not_re2_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compile_pattern(pattern)

    assert str(refused.value).startswith(why)


def test_cost_grows_linearly_with_the_text() -> None:
    pattern = compile_pattern("(a|ab|b)*c")

    def cost(length: int) -> int:
        spent: list[int] = []
        pattern.search("ab" * length, spent.append)
        return sum(spent)

    assert cost(4000) < 2.1 * cost(2000) < 4.4 * cost(1000)


def test_a_full_memory_changes_no_answer() -> None:
    """More states than are remembered: the memory is emptied and the search goes on."""
    pattern = compile_pattern("(a|b)*a(a|b){12}c$")
    bits = "".join("ab"[i * i % 7 % 2] for i in range(3000))

    assert not pattern.search(bits, lambda steps: None)
    assert pattern.search(bits + "a" + "b" * 12 + "c", lambda steps: None)
