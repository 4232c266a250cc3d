"""What a template reads and calls, found in its tree: the steps it depends on, its roots, its functions.

A reference counts wherever it occurs, also in a branch that will not be taken.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.expressions.gotemplate.aliases import find_aliased
from perdure.expressions.gotemplate.paths import Steps, indexed_path, known_path
from perdure.expressions.gotemplate.syntax import (
    ActionNode,
    CommandNode,
    ConditionNode,
    Name,
    Path,
    Pipeline,
    Range,
    Tree,
    Variable,
)


class References(msgspec.Struct, frozen=True):
    """`paths` begin with a root; `("steps",)` alone means that any step may be read."""

    paths: frozenset[Steps] = frozenset()
    functions: frozenset[str] = frozenset()

    def __or__(self, other: "References") -> "References":
        return self if not other.paths and not other.functions else all_references((self, other))

    @property
    def roots(self) -> frozenset[str]:
        return frozenset(str(path[0]) for path in self.paths if path)

    @property
    def steps(self) -> frozenset[str]:
        """Names under `steps`, as written; `steps_among` maps aliases back."""
        return self.members("steps")

    def members(self, root: str) -> frozenset[str]:
        """Names under a root, as written."""
        return frozenset(str(path[1]) for path in self.paths if len(path) > 1 and path[0] == root)

    @property
    def reads_any_step(self) -> bool:
        """Whether a step is chosen by a computed name, or all of them are read."""
        return ("steps",) in self.paths or () in self.paths

    def steps_among(self, known: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The steps referred to, and the names that match none of the `known` ones (STY-054, STY-196)."""
        names = dict.fromkeys(known)
        steps: set[str] = set()
        unknown: set[str] = set()
        for step in self.steps:
            name = find_aliased(names, step)
            (unknown if name is None else steps).add(step if name is None else name)
        return frozenset(steps), frozenset(unknown)

    def without_roots(self, names: Iterable[str]) -> "References":
        """What is left when the template itself binds these roots."""
        bound = frozenset(names)
        return References(frozenset(path for path in self.paths if not path or path[0] not in bound), self.functions)


def all_references(parts: Iterable[References]) -> References:
    """Those of several templates. Each is looked at once: a value may contain thousands."""
    paths: set[Steps] = set()
    functions: set[str] = set()
    for part in parts:
        paths |= part.paths
        functions |= part.functions
    return References(frozenset(paths), frozenset(functions))


class Mention(msgspec.Struct, frozen=True):
    """One path or function, and where it occurs."""

    subject: Steps | str
    offset: int


def find_mentions(tree: Tree) -> list[Mention]:
    """Every constant path (a tuple) and every function (a name), in source order."""
    mentions: list[Mention] = []
    _visit(tree.body, True, mentions)
    return mentions


def collect(mentions: Iterable[Mention]) -> References:
    mentions = list(mentions)
    return References(
        frozenset(mention.subject for mention in mentions if isinstance(mention.subject, tuple)),
        frozenset(mention.subject for mention in mentions if isinstance(mention.subject, str)),
    )


def _visit(node: Any, dot_is_root: bool, mentions: list[Mention]) -> None:
    match node:
        case tuple():
            for part in node:
                _visit(part, dot_is_root, mentions)
        case ActionNode(pipeline=pipeline):
            _visit(pipeline, dot_is_root, mentions)
        case ConditionNode(keyword=keyword, arms=arms, otherwise=otherwise):
            for condition, body in arms:
                _visit(condition, dot_is_root, mentions)
                _visit(body, dot_is_root and keyword == "if", mentions)
            _visit(otherwise, dot_is_root, mentions)
        case Range(pipeline=pipeline, body=body, otherwise=otherwise):
            _visit(pipeline, dot_is_root, mentions)
            _visit(body, False, mentions)
            _visit(otherwise, dot_is_root, mentions)
        case Pipeline(commands=commands):
            _visit(commands, dot_is_root, mentions)
        case CommandNode(operands=words):
            if (indexed := indexed_path(node, dot_is_root)) is not None:
                mentions.append(Mention("index", node.start))
                mentions.append(Mention(indexed[0], words[1].start))
                words = indexed[1]
            _visit(words, dot_is_root, mentions)
        case Name(name=name, start=start):
            mentions.append(Mention(name, start))
        case Path() | Variable():
            path = known_path(node, dot_is_root)
            if path is not None:
                mentions.append(Mention(path, node.start))
            if isinstance(node, Path) and not isinstance(node.receiver, Variable):
                _visit_receiver(node, dot_is_root, mentions)
        case _:
            if (path := known_path(node, dot_is_root)) is not None:
                mentions.append(Mention(path, node.start))


def _visit_receiver(node: Path, dot_is_root: bool, mentions: list[Mention]) -> None:
    """Functions inside the receiver count; its paths only when the whole is not a longer one."""
    inner: list[Mention] = []
    _visit(node.receiver, dot_is_root, inner)
    is_known = known_path(node, dot_is_root) is not None
    mentions.extend(mention for mention in inner if isinstance(mention.subject, str) or not is_known)
