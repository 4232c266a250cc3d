"""From RE2 patterns to a tree. Groups only group; laziness is accepted and has no effect when nothing is extracted."""

import re
from typing import NoReturn

from perdure.expressions.regex.charset import (
    EVERYTHING,
    EXCEPT_NEWLINE,
    PERL_CLASSES,
    POSIX_CLASSES,
    SMALL_RANGE,
    BadPattern,
    CharSet,
    Range,
    joined,
    named_class,
    single,
    unicode_class,
)
from perdure.expressions.regex.tree import (
    LARGEST_PROGRAM,
    Assertion,
    Char,
    Tree,
    choice,
    repeat,
    sequence,
)
from perdure.kernel.lazy_regex import lazy_regex

_LARGEST_REPEAT = 1000  # RE2's own bound
_DEEPEST = 100
LONGEST = 20_000
LARGEST_FOLDING = 32_768  # characters of ranges that are case-insensitive


Flags = frozenset[str]


def parse(pattern: str) -> Tree:
    """Of a pattern that has at most `LONGEST` characters."""
    return _Parser(pattern).parse()


_COUNTS = lazy_regex(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_NAME = lazy_regex(r"\?P?<([A-Za-z_][A-Za-z0-9_]*)>")
_FLAGS = lazy_regex(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_SIMPLE_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._folding = 0

    def parse(self) -> Tree:
        tree, _ = self._choice(frozenset())
        if self._at < len(self._text):
            self._fail("unexpected )")
        return tree

    def _choice(self, flags: Flags) -> tuple[Tree, Flags]:
        """Branches up to `)` or the end. A flag group like `(?i)` holds from there to the end of its group."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail("nested too deeply")
        branches: list[Tree] = []
        while True:
            branch, flags = self._sequence(flags)
            branches.append(branch)
            if not self._accept("|"):
                break
        self._depth -= 1
        return branches[0] if len(branches) == 1 else choice(branches), flags

    def _sequence(self, flags: Flags) -> tuple[Tree, Flags]:
        parts: list[Tree] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._accept("\\Q"):
                parts += [self._char(char, flags) for char in self._quoted()]
            elif self._text[self._at] == "(":
                part, flags = self._group(flags)
                parts += [] if part is None else [part]
            else:
                parts.append(self._atom(flags))
            if parts:
                parts[-1] = self._repeated(parts[-1])
        return sequence(parts), flags

    def _repeated(self, part: Tree) -> Tree:
        start = self._at
        counts = self._counts()
        if counts is None:
            return part
        self._accept("?")
        middle = self._at
        if self._counts() is not None:
            self._at = start
            self._fail(f"bad repetition operator: {self._text[start : middle + 1]}")
        self._at = middle
        repeated = repeat(part, *counts)
        if repeated.size > LARGEST_PROGRAM:
            self._fail("the pattern is too large")
        return repeated

    def _counts(self) -> tuple[int, int | None] | None:
        char = self._text[self._at : self._at + 1]
        if char in ("*", "+", "?"):
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        match = _COUNTS.match(self._text, self._at)
        if match is None:
            return None
        if max(len(match[1]), len(match[3] or "")) > 6:
            self._fail(f"invalid repetition size: {match[0][:20]}")
        fewest = int(match[1])
        most = fewest if not match[2] else int(match[3]) if match[3] else None
        if max(fewest, most or 0) > _LARGEST_REPEAT or (most is not None and most < fewest):
            self._fail(f"invalid repetition size: {match[0]}")
        self._at = match.end()
        return fewest, most

    def _group(self, flags: Flags) -> tuple[Tree | None, Flags]:
        """A group, or None with the new flags when it only sets flags."""
        self._at += 1
        inner = flags
        if name := _NAME.match(self._text, self._at):
            self._at = name.end()
        elif match := _FLAGS.match(self._text, self._at):
            if match[0] in ("?)", "?-)"):
                self._fail("missing flags in (?")
            inner = (flags | set(match[1])) - set(match[2] or "")
            self._at = match.end()
            if match[3] == ")":
                return None, inner
        elif self._text.startswith("?", self._at):
            self._fail(f"invalid group syntax: ({self._text[self._at : self._at + 3]}")
        tree, _ = self._choice(inner)
        if not self._accept(")"):
            self._fail("missing )")
        return tree, flags

    def _atom(self, flags: Flags) -> Tree:
        char = self._text[self._at]
        match char:
            case "[":
                return Char(self._bracket(flags))
            case ".":
                self._at += 1
                return Char(CharSet(EVERYTHING if "s" in flags else EXCEPT_NEWLINE))
            case "^":
                self._at += 1
                return Assertion("begin_line" if "m" in flags else "begin_text")
            case "$":
                self._at += 1
                return Assertion("end_line" if "m" in flags else "end_text")
            case "*" | "+" | "?" | "{" if self._counts() is not None:
                self._fail(f"no argument for repetition operator: {char}")
            case "\\":
                return self._escape(flags)
        self._at += 1
        return self._char(char, flags)

    def _escape(self, flags: Flags) -> Tree:
        kind = self._text[self._at + 1 : self._at + 2]
        assertion = {"A": "begin_text", "z": "end_text", "b": "word", "B": "not_word"}.get(kind)
        if assertion is not None:
            self._at += 2
            return Assertion(assertion)
        charset = self._class_escape(flags)
        if charset is not None:
            return Char(charset.folded() if "i" in flags and charset.categories else charset)
        return self._char(self._escaped_char(), flags)

    def _class_escape(self, flags: Flags) -> CharSet | None:
        r"""`\d`, `\pL`, `\p{Lu}` and similar, inside and outside brackets."""
        kind = self._text[self._at + 1 : self._at + 2]
        if kind.lower() in PERL_CLASSES:
            self._at += 2
            return named_class(PERL_CLASSES[kind.lower()], negated=kind.isupper(), folds="i" in flags)
        if kind not in ("p", "P"):
            return None
        end = self._at + 3
        if self._text[self._at + 2 : self._at + 3] == "{":
            end = self._text.find("}", self._at) + 1
        name = self._text[self._at + 2 : end].strip("{}")
        if end == 0 or not name:
            self._fail("invalid character class range: \\" + kind)
        self._at = end
        return unicode_class(name, is_member=kind == "p")

    def _escaped_char(self) -> str:
        rest = self._text[self._at + 1 : self._at + 12]
        if not rest:
            self._fail("trailing \\")
        if rest[0] in _SIMPLE_ESCAPES:
            self._at += 2
            return _SIMPLE_ESCAPES[rest[0]]
        if octal := re.match(r"0[0-7]{0,2}|[1-7][0-7]{1,2}", rest):
            self._at += 1 + octal.end()
            return chr(int(octal[0], 8))
        if hexadecimal := re.match(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\})", rest):
            code = int(hexadecimal[1] or hexadecimal[2], 16)
            if code <= 0x10FFFF:
                self._at += 1 + hexadecimal.end()
                return chr(code)
        elif rest[0] < "\x80" and not rest[0].isalnum() and rest[0] != "_":
            self._at += 2
            return rest[0]
        self._fail(f"invalid escape sequence: \\{rest[0]}")

    def _bracket(self, flags: Flags) -> CharSet:
        start = self._at
        self._at += 1
        negated = self._accept("^")
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or not self._accept("]"):
            is_first = False
            if self._at >= len(self._text):
                self._at = start
                self._fail("missing ]")
            charset = self._bracket_class(flags)
            if charset is not None:
                ranges += charset.ranges
                categories += charset.categories
            else:
                ranges.append(self._range())
        # Without `s`, a negated class still accepts a newline: RE2 does so unless an option says otherwise.
        accepted = CharSet(joined(ranges), tuple(dict.fromkeys(categories)), negated)
        return self._folded(accepted) if "i" in flags else accepted

    def _folded(self, charset: CharSet) -> CharSet:
        self._folding += sum(high - low + 1 for low, high in charset.ranges if high - low <= SMALL_RANGE)
        if self._folding > LARGEST_FOLDING:
            self._fail("the pattern is too large")
        return charset.folded()

    def _bracket_class(self, flags: Flags) -> CharSet | None:
        if posix := re.compile(r"\[:(\^?)([a-z]+):\]").match(self._text, self._at):
            if posix[2] not in POSIX_CLASSES:
                self._fail(f"invalid character class: {posix[0]}")
            self._at = posix.end()
            return named_class(POSIX_CLASSES[posix[2]], negated=bool(posix[1]), folds="i" in flags)
        return self._class_escape(flags) if self._text[self._at] == "\\" else None

    def _range(self) -> Range:
        start = self._at
        low = self._bracket_char()
        rest = self._text[self._at : self._at + 2]
        if rest[:1] != "-" or rest in ("-", "-]"):
            return ord(low), ord(low)
        self._at += 1
        high = self._bracket_char()
        if high < low:
            self._fail(f"invalid character class range: {self._text[start : self._at]}")
        return ord(low), ord(high)

    def _bracket_char(self) -> str:
        if self._at >= len(self._text):
            self._fail("missing ]")
        if self._text[self._at] == "\\":
            return self._escaped_char()
        self._at += 1
        return self._text[self._at - 1]

    def _quoted(self) -> str:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return quoted

    def _char(self, char: str, flags: Flags) -> Tree:
        return Char(single(char).folded() if "i" in flags else single(char))

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _fail(self, why: str) -> NoReturn:
        raise BadPattern(f"{why} (at character {self._at + 1})")
