"""Hypothesis strategies for RE2 patterns, mostly valid, and texts they have a chance to match."""

from hypothesis import strategies as st

_ATOMS = st.sampled_from(
    [
        *("a", "b", "c", "é", "-", "1", " ", "_", ".", "[ab]", "[^a]", "[a-c1]", "[^\\n]", "\\d", "\\D", "\\w", "\\W"),
        *(
            "\\s",
            "\\S",
            "\\b",
            "\\B",
            "^",
            "$",
            "\\A",
            "\\z",
            "[[:alpha:]]",
            "[[:^digit:]x]",
            "\\pL",
            "\\p{Lu}",
            "\\PN",
        ),
        *("\\x61", "\\x{e9}", "\\141", "\\.", "\\Qa.b\\E", "[\\d\\-]", "[]a]", "(?i)", "(?s)", "(?m)", "\\n", "[a-]"),
        *("(?i:B)", "(?i:[^b])", "(?i:k)", "[\\w-]", "", "{", "a{,2}", "x{2", "]", "}"),
    ]
)
_REPEATS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{0}", "{2,3}?", "**", "{3,2}"])


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(lambda *parts: "".join(parts), inner, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("(?:{}){}".format, inner, _REPEATS),
        st.builds("{}{}".format, _ATOMS, _REPEATS),
        st.builds("(?P<g>{})".format, inner),
        st.builds("(?{}:{})".format, st.sampled_from(["i", "s", "m", "-i", "ims", "U", "i-s"]), inner),
    )


patterns: st.SearchStrategy[str] = st.recursive(_ATOMS, _grow, max_leaves=8)
texts: st.SearchStrategy[str] = st.text(alphabet="abcABCkK\u212aéÉ1 -_.\nxy", max_size=12)
noise: st.SearchStrategy[str] = st.text(alphabet="ab()[]{}|*+?^$\\.-,:PpQEdwsbBAz<>0129imsU=!", max_size=14)
