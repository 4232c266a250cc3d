"""Dependencies between the steps of a Story, from `needs` and from templates (STY-026, 027, 054, 055).

Works on the plain data of `spec`, valid or not: items that are not steps are skipped here and reported by
admission. Branches of a parallel step are not nodes: reading one means waiting for its parent (STY-095).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story.plan.inline_stories import without_stories
from perdure.dialects.story.steps import branches_member, kinds_in
from perdure.expressions.gotemplate import RUNTIME, BadStructure, Environment, References, Structure
from perdure.expressions.gotemplate.aliases import alias_of

BLOCKS = ("steps", "compensations", "finally")
"""In the order in which they run; a block sees itself and those before it."""

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
    """What one step waits for: known names in story order, and unknown names as written."""

    needs: tuple[str, ...]
    implied: tuple[str, ...]
    unknown: tuple[str, ...]  # from `needs`
    unknown_reads: tuple[str, ...]  # from templates
    needs_itself: bool = False  # it names itself in `needs`; the field `needs` leaves that out

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.needs, *self.implied)))


class StepGraph:
    """The three blocks of a Story."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, str] = {}  # branch: its parallel step
        self._streams = spec.get("pattern") in ("streaming", "realtime")
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
        """The steps and branches that templates in a block may name, each with the step to wait for."""
        return self._visible_by_block[block]

    def find(self, block: str, name_in_template: str) -> str | None:
        """As `find_aliased`, for templates in a block."""
        visible = self._visible_by_block[block]
        return name_in_template if name_in_template in visible else self._aliases_by_block[block].get(name_in_template)

    @cached_property
    def _aliases_by_block(self) -> dict[str, dict[str, str]]:
        return {
            block: {alias_of(name): name for name in sorted(visible, reverse=True)}
            for block, visible in self._visible_by_block.items()
        }

    @cached_property
    def _visible_by_block(self) -> dict[str, dict[str, str]]:
        return {block: self._visible_in(block) for block in BLOCKS}

    def _visible_in(self, block: str) -> dict[str, str]:
        blocks = BLOCKS[: BLOCKS.index(block) + 1]
        visible = {name: name for name, node in self.nodes.items() if node.block in blocks}
        visible.update((branch, parent) for branch, parent in self.parents.items() if parent in visible)
        return visible

    @cached_property
    def waits(self) -> dict[str, StepDependencies]:
        return {name: self._wait(node, self.visible(node.block)) for name, node in self.nodes.items()}

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.nodes)}

    def _wait(self, node: Node, visible: Mapping[str, str]) -> StepDependencies:
        order = self._order
        needs: set[str] = set()
        unknown: list[str] = []
        needed_names = needs_of(node.step)
        for needed in needed_names:
            if needed == node.name:
                continue
            if needed in order and needed in visible:
                needs.add(needed)
            else:
                unknown.append(needed)
        implied: set[str] = set()
        unknown_reads: set[str] = set()
        for read_name in references_of(node.step).steps:
            target = self.find(node.block, read_name)
            if target is None:
                unknown_reads.add(read_name)
            elif not (self._streams and node.block == "steps"):  # there only `needs` makes edges (STR-127)
                implied.add(visible[target])
        return StepDependencies(
            tuple(sorted(needs, key=order.__getitem__)),
            tuple(sorted(implied, key=order.__getitem__)),
            tuple(dict.fromkeys(unknown)),
            tuple(sorted(unknown_reads)),
            node.name in needed_names,
        )

    def is_upstream(self, name: str, other: str) -> bool:
        """Whether `name` waits for `other`, directly or indirectly."""
        waits = self.waits.get(name)
        return waits is not None and (other in waits.all or self._reaches(self._upstream, name, other))

    def is_needed(self, name: str, other: str) -> bool:
        """Whether `name` waits for `other` through `needs` alone, directly or indirectly (STY-038)."""
        waits = self.waits.get(name)
        return waits is not None and (other in waits.needs or self._reaches(self._needed, name, other))

    def _reaches(self, reached: dict[str, int], name: str, other: str) -> bool:
        return bool(reached[name] >> self._order[other] & 1)

    @cached_property
    def _upstream(self) -> dict[str, int]:
        return self._closure({name: waits.all for name, waits in self.waits.items()})

    @cached_property
    def _needed(self) -> dict[str, int]:
        return self._closure({name: waits.needs for name, waits in self.waits.items()})

    def _closure(self, edges: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """For each step those that it reaches, as bits; sets would take a time that grows with the square."""
        bits = {name: 1 << position for name, position in self._order.items()}
        reached: dict[str, int] = {}
        for component in components(edges):
            inside = set(component)
            closure = 0
            for name in component:
                for other in edges[name]:
                    closure |= bits[other] if other in inside else bits[other] | reached[other]
            reached.update(dict.fromkeys(component, closure))
        return reached

    def cycle(self, block: str | None = None) -> tuple[str, ...]:
        """The sorted names of steps that wait for themselves, of one block or of all."""
        return tuple(sorted(name for name in self._in_cycles if block in (None, self.nodes[name].block)))

    @cached_property
    def _in_cycles(self) -> set[str]:
        edges = {name: waits.all for name, waits in self.waits.items()}
        return {
            name for component in components(edges) for name in component if len(component) > 1 or name in edges[name]
        }

    def refusal(self) -> str | None:
        """Why a run of this graph cannot start (STY-055)."""
        unknown = [
            f"{name}->{missing}"
            for name, wait in self.waits.items()
            for missing in dict.fromkeys((*wait.unknown, *wait.unknown_reads))
        ]
        if unknown:
            return f"Invalid story dependency graph: unknown step dependencies: {', '.join(sorted(unknown))}"
        if cycle := {*self.cycle(), *(name for name, wait in self.waits.items() if wait.needs_itself)}:
            listed = ", ".join(sorted(cycle))
            return f"Invalid story dependency graph: dependency cycle detected involving step(s): {listed}"
        return None


def block_id(block: str) -> str:
    """How a drawing and what is shown in it name a block; no step has such a name."""
    return f"spec/{block}"


def components(edges: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Steps that wait for each other, together; each after those that it waits for (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for root in edges:
        visits = [] if root in number else [(root, iter(edges[root]))]
        while visits:
            name, left = visits[-1]
            if name not in number:
                number[name] = lowest[name] = len(number)
                path.append(name)
                on_path.add(name)
            for other in left:
                if other not in number:
                    visits.append((other, iter(edges[other])))
                    break
                if other in on_path:
                    lowest[name] = min(lowest[name], lowest[other])
            else:
                visits.pop()
                if visits:
                    before = visits[-1][0]
                    lowest[before] = min(lowest[before], lowest[name])
                if lowest[name] == number[name]:
                    start = len(path) - 1
                    while path[start] != name:
                        start -= 1
                    component, path[start:] = path[start:], []
                    on_path.difference_update(component)
                    yield component


def steps_of(block: Any) -> list[Mapping[str, Any]]:
    """The items of a block; an item that is not a step counts as an empty one, so that positions stay correct."""
    return [item if isinstance(item, dict) else {} for item in block] if isinstance(block, list) else []


def branches_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The branches of a step whose kind has branches."""
    with_block, member = step.get("with"), branches_member(step)
    return steps_of(with_block.get(member)) if member and isinstance(with_block, dict) else []


def name_of(step: Mapping[str, Any]) -> str | None:
    name = step.get("name")
    return name if isinstance(name, str) and name else None


def needs_of(step: Mapping[str, Any]) -> list[str]:
    needs = step.get("needs")
    return [name for name in needs if isinstance(name, str)] if isinstance(needs, list) else []


def references_of(step: Mapping[str, Any]) -> References:
    """What the templates that create dependencies read: `if` of every step, `with` for some kinds, and branches."""
    references = references_in(step.get("if"))
    if any(kind.makes_edges for kind in kinds_in(step)):
        references |= references_in(without_stories(step.get("with")))
    for branch in branches_of(step):
        references |= references_in(branch.get("if")) | references_in(without_stories(branch.get("with")))
    return references


def references_in(value: Any) -> References:
    """What the templates in a value read; invalid templates are skipped."""
    if value is None:
        return NO_REFERENCES
    try:
        return Structure(value, _ANYWHERE).references
    except BadStructure:
        if isinstance(value, dict):
            return _references_of_all(value.values())
        return _references_of_all(value) if isinstance(value, list) else NO_REFERENCES


def _references_of_all(values: Iterable[Any]) -> References:
    references = NO_REFERENCES
    for value in values:
        references |= references_in(value)
    return references
