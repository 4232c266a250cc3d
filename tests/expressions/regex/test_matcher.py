"""RE2 patterns: what matches, what is refused, what a search costs."""

import pytest

from perdure.expressions.regex import BadPattern, compile_pattern, price_of_compiling


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
        (r"\p{Greek}", "\\p{Greek} is not supported"),
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


@pytest.mark.parametrize(
    ("pattern", "at_least"),
    [
        ("(?i)" + "".join(f"[{chr(at)}-{chr(at + 500)}]" for at in range(256, 316)), 60 * 500),
        (r"(?i)[\x{100}-\x{2fe}]" * 60, 60 * 500),
        (r"(?s-U:x(?mi:" + r"[\400-\x{2fe}]" * 60 + "))", 60 * 500),
        ("(a{10}){100}", 1_000),
        ("(?:ab|cd){1000}", 4_000),
        ("[a-z]{1,1000}", 1_000),
    ],
)
def test_compiling_is_paid_for_by_the_size_that_the_pattern_grows_to(pattern: str, at_least: int) -> None:
    """Invariant 29: an instruction or a folded character is about 20 steps."""
    assert price_of_compiling(pattern) >= 20 * at_least


def test_a_plain_pattern_is_cheap_to_compile() -> None:
    assert price_of_compiling(r"^\d{4}-\d{2}-\d{2}$") < 2_000
    assert price_of_compiling("(?i)^[a-z0-9._-]+@[a-z0-9-]+$") < 8_000


def test_more_ranges_regardless_of_case_than_can_be_folded_soon_are_refused() -> None:
    """Invariant 29: with 1,500 ranges of 500 characters it took half a second."""
    compile_pattern("(?i)" + "".join(f"[{chr(at)}-{chr(at + 500)}]" for at in range(256, 316)))
    with pytest.raises(BadPattern, match="too large"):
        compile_pattern("(?i)" + "".join(f"[{chr(at)}-{chr(at + 500)}]" for at in range(256, 1_756)))
    with pytest.raises(BadPattern, match="too large"):
        compile_pattern("(?i)[" + "".join(f"{chr(at)}-{chr(at + 500)}" for at in range(256, 52_000, 600)) + "]")
