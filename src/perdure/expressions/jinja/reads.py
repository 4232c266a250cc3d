"""What a template reads: its free names, and the members it reads of each (PBK-230, PBK-184).

Found by analysing the template, not by running it, so a branch that is never taken counts too. When in doubt more is
reported, never less.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from jinja2 import nodes


class TemplateReads(msgspec.Struct, frozen=True):
    """Free names. A name maps to the members read of it, or to None when all of it may be read."""

    members: Mapping[str, frozenset[str] | None] = msgspec.field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.members)

    def touches(self, name: str, member: str) -> bool:
        """Whether a change of `name.member` may change the result."""
        if name not in self.members:
            return False
        members = self.members[name]
        return members is None or member in members

    def __or__(self, other: "TemplateReads") -> "TemplateReads":
        return all_reads((self, other))


NOTHING = TemplateReads()


def all_reads(parts: Iterable[TemplateReads]) -> TemplateReads:
    """What several templates read. Each is looked at once: a document may have thousands."""
    together: dict[str, set[str] | None] = {}
    for part in parts:
        for name, members in part.members.items():
            known = together.setdefault(name, set())
            if members is None:
                together[name] = None
            elif known is not None:
                known |= members
    return TemplateReads({name: None if members is None else frozenset(members) for name, members in together.items()})


def find_reads(tree: nodes.Template, builtin: frozenset[str]) -> TemplateReads:
    """The free names of a parsed template, without those that templates always have."""
    scope = _Scope(builtin)
    scope.walk_all(tree.body, set())
    return TemplateReads(
        {name: None if members is None else frozenset(members) for name, members in sorted(scope.found.items())}
    )


class _Scope:
    def __init__(self, builtin: frozenset[str]) -> None:
        self._builtin = builtin
        self.found: dict[str, set[str] | None] = {}

    def walk_all(self, body: list[nodes.Node], bound: set[str]) -> None:
        for node in body:
            self.walk(node, bound)

    def walk(self, node: nodes.Node, bound: set[str]) -> None:
        """Visit `node`; names that it binds for what follows are added to `bound`."""
        match node:
            case nodes.Name(name=name, ctx="load"):
                self._read(name, None, bound)
            case nodes.Getattr(node=nodes.Name(name=name), attr=member):
                self._read(name, member, bound)
            case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=str(member))):
                self._read(name, member, bound)
            case nodes.Call(
                node=nodes.Getattr(node=nodes.Name(name=name), attr="get"), args=[nodes.Const(value=str(member)), *rest]
            ):
                self._read(name, member, bound)
                self.walk_all([*rest, *node.kwargs, *filter(None, (node.dyn_args, node.dyn_kwargs))], bound)
            case nodes.Call(node=nodes.Getattr(node=nodes.Name() as owner)):
                self._read(owner.name, None, bound)
                self._walk_children(node, bound, leaving_out=node.node)
            case nodes.For():
                self.walk(node.iter, bound)
                inner = bound | _targets(node.target) | {"loop"}
                self.walk_all([*([node.test] if node.test else ()), *node.body], inner)
                self.walk_all(node.else_, set(bound))
            case nodes.If():
                self.walk(node.test, bound)
                for branch in (node.body, node.elif_, node.else_):
                    self.walk_all(list(branch), set(bound))
            case nodes.Assign():
                self.walk(node.node, bound)
                bound |= _targets(node.target)
            case nodes.AssignBlock():
                self.walk_all([*([node.filter] if node.filter else ()), *node.body], set(bound))
                bound |= _targets(node.target)
            case nodes.With():
                self.walk_all(list(node.values), bound)
                self.walk_all(node.body, bound.union(*map(_targets, node.targets)))
            case nodes.Macro():
                self.walk_all(list(node.defaults), bound)
                bound.add(node.name)
                self.walk_all(node.body, self._parameters(node, bound))
            case nodes.CallBlock():
                self.walk_all([node.call, *node.defaults], bound)
                self.walk_all(node.body, self._parameters(node, bound))
            case nodes.FilterBlock():
                self.walk(node.filter, bound)
                self.walk_all(node.body, set(bound))
            case _:
                self._walk_children(node, bound)

    def _walk_children(self, node: nodes.Node, bound: set[str], leaving_out: nodes.Node | None = None) -> None:
        for child in node.iter_child_nodes():
            if child is not leaving_out:
                self.walk(child, bound)

    def _read(self, name: str, member: str | None, bound: set[str]) -> None:
        if name in bound or name in self._builtin:
            return
        members = self.found.setdefault(name, set())
        if member is None:
            self.found[name] = None
        elif members is not None:
            members.add(member)

    def _parameters(self, node: nodes.Macro | nodes.CallBlock, bound: set[str]) -> set[str]:
        return bound | {arg.name for arg in node.args} | {"caller", "varargs", "kwargs"}


def _targets(target: nodes.Node) -> set[str]:
    return set(_names(target))


def _names(target: nodes.Node) -> Iterator[str]:
    if isinstance(target, nodes.Name):
        yield target.name
    elif isinstance(target, nodes.Tuple | nodes.List):
        for item in target.items:
            yield from _names(item)
