"""Which step of a Story waits for which: written in `needs`, and read from the templates (STY-026, 027, 054, 055).

Works on the plain data of `spec`, valid or not: what has not the shape of a step is passed over here and
reported by admission. Branches of a parallel step are no nodes: to read one is to wait for its parent (STY-095).
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story.plan.inline_stories import without_stories
from perdure.dialects.story.steps import branches_member, kinds_in
from perdure.expressions.gotemplate import RUNTIME, BadStructure, Environment, References, Structure
from perdure.expressions.gotemplate.aliases import find_aliased

BLOCKS = ("steps", "compensations", "finally")
"""In the order they run; a block sees itself and those before it."""

NO_REFERENCES = References()
_ANYWHERE = Environment(library=RUNTIME)


class Node(msgspec.Struct, frozen=True):
    """A step in its block."""

    name: str
    block: str
    index: int
    step: Mapping[str, Any]

    @property
    def path(self) -> tuple[str | int, ...]:
        return ("spec", self.block, self.index)


class StepDependencies(msgspec.Struct, frozen=True):
    """What one step waits for: names it may, in story order, and names that lead nowhere, as written."""

    needs: tuple[str, ...]
    implied: tuple[str, ...]
    unknown: tuple[str, ...]  # from `needs`
    unknown_reads: tuple[str, ...]  # from templates
    needs_itself: bool = False  # it stands in its own `needs`, which are kept free of it

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.needs, *self.implied)))


class StepGraph:
    """The three blocks of one Story."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, str] = {}  # branch: the parallel step it stands in
        for block in BLOCKS:
            for index, step in enumerate(steps_of(spec.get(block))):
                name = name_of(step)
                if name is not None and name not in self.nodes:
                    self.nodes[name] = Node(name, block, index, step)
        for node in self.nodes.values():
            for branch in branches_of(node.step):
                name = name_of(branch)
                if name is not None and name not in self.nodes:
                    self.parents.setdefault(name, node.name)

    def visible(self, block: str) -> Mapping[str, str]:
        """What templates in a block may name, steps and branches, each with the step to wait for."""
        return self._visible_by_block[block]

    @cached_property
    def _visible_by_block(self) -> dict[str, dict[str, str]]:
        return {block: self._visible_in(block) for block in BLOCKS}

    def _visible_in(self, block: str) -> dict[str, str]:
        seen = BLOCKS[: BLOCKS.index(block) + 1]
        found = {name: name for name, node in self.nodes.items() if node.block in seen}
        found.update((branch, parent) for branch, parent in self.parents.items() if parent in found)
        return found

    @cached_property
    def waits(self) -> dict[str, StepDependencies]:
        return {name: self._wait(node, self.visible(node.block)) for name, node in self.nodes.items()}

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.nodes)}

    def _wait(self, node: Node, visible: Mapping[str, str]) -> StepDependencies:
        order = self._order
        needs: set[str] = set()
        unknown: list[str] = []
        written = needs_of(node.step)
        for needed in written:
            if needed == node.name:
                continue
            if needed in order and needed in visible:
                needs.add(needed)
            else:
                unknown.append(needed)
        implied: set[str] = set()
        unread: set[str] = set()
        for read in references_of(node.step).steps:
            meant = find_aliased(visible, read)
            if meant is None:
                unread.add(read)
            else:
                implied.add(visible[meant])
        return StepDependencies(
            tuple(sorted(needs, key=order.__getitem__)),
            tuple(sorted(implied, key=order.__getitem__)),
            tuple(dict.fromkeys(unknown)),
            tuple(sorted(unread)),
            node.name in written,
        )

    def upstream(self, name: str) -> frozenset[str]:
        """Everything `name` waits for, at any distance; itself only if it waits for itself."""
        found: set[str] = set()
        waiting = list(self.waits[name].all)
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.waits[one].all
        return frozenset(found)

    def needed(self, name: str) -> frozenset[str]:
        """Everything `name` waits for by `needs` alone, at any distance (STY-038)."""
        found: set[str] = set()
        waiting = list(self.waits[name].needs)
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.waits[one].needs
        return frozenset(found)

    def cycle(self, block: str | None = None) -> tuple[str, ...]:
        """The steps that wait for themselves by way of others or of templates, sorted; of one block, or of all."""
        inside = [name for name, node in self.nodes.items() if block in (None, node.block)]
        return tuple(sorted(name for name in inside if name in self.upstream(name)))

    def refusal(self) -> str | None:
        """Why a run of this graph cannot start (STY-055)."""
        loose = [
            f"{name}->{missing}"
            for name, wait in self.waits.items()
            for missing in dict.fromkeys((*wait.unknown, *wait.unknown_reads))
        ]
        if loose:
            return f"Invalid story dependency graph: unknown step dependencies: {', '.join(sorted(loose))}"
        if cycle := {*self.cycle(), *(name for name, wait in self.waits.items() if wait.needs_itself)}:
            listed = ", ".join(sorted(cycle))
            return f"Invalid story dependency graph: dependency cycle detected involving step(s): {listed}"
        return None


def steps_of(block: Any) -> list[Mapping[str, Any]]:
    """The items of a block; what is not a step counts as an empty one, so that positions stay right."""
    return [item if isinstance(item, dict) else {} for item in block] if isinstance(block, list) else []


def branches_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The branches of a step whose kind has some."""
    given, member = step.get("with"), branches_member(step)
    return steps_of(given.get(member)) if member and isinstance(given, dict) else []


def name_of(step: Mapping[str, Any]) -> str | None:
    name = step.get("name")
    return name if isinstance(name, str) and name else None


def needs_of(step: Mapping[str, Any]) -> list[str]:
    needs = step.get("needs")
    return [name for name in needs if isinstance(name, str)] if isinstance(needs, list) else []


def references_of(step: Mapping[str, Any]) -> References:
    """What the templates that make edges read: `if` of any step, `with` where its kind says so, and of branches."""
    found = references_in(step.get("if"))
    if any(kind.makes_edges for kind in kinds_in(step)):
        found |= references_in(without_stories(step.get("with")))
    for branch in branches_of(step):
        found |= references_in(branch.get("if")) | references_in(without_stories(branch.get("with")))
    return found


def references_in(value: Any) -> References:
    """What the templates in a value read, as far as they are templates: broken ones are passed over."""
    if value is None:
        return NO_REFERENCES
    try:
        return Structure(value, _ANYWHERE).references
    except BadStructure:
        if isinstance(value, dict):
            return _references_of_all(value.values())
        return _references_of_all(value) if isinstance(value, list) else NO_REFERENCES


def _references_of_all(values: Iterable[Any]) -> References:
    found = NO_REFERENCES
    for value in values:
        found |= references_in(value)
    return found
