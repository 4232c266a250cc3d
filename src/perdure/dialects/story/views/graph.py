"""A Story as a graph: steps and their dependencies, branches inside their parallel step, and the blocks as frames.

A Story with one block has no frame around it. With several, edges between the frames say when a block runs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.plan.step_graph import BLOCKS, StepGraph, block_id, name_of, steps_of
from perdure.dialects.story.steps import STEP_KINDS, kinds_in
from perdure.kernel.graphs.graph import Edge, Graph, Node, Role

_NOTES = {"compensations": "after a failure, to undo what was done", "finally": "at the end, in any case"}


def draw(program: Program) -> Graph:
    graph = Graph(program.name)
    plan = program.plan
    blocks = [block for block in BLOCKS if plan.blocks[block]]
    for block in blocks:
        frame = block_id(block) if len(blocks) > 1 else ""
        if frame:
            graph.nodes.append(Node(frame, block, "", (_NOTES[block],) if block in _NOTES else ()))
        for name in plan.blocks[block]:
            _add_step(graph, program, program.steps[name], frame)
    for step, block in plan.block_of.items():
        for needed in plan.waits.get(step, ()):
            if plan.block_of[needed] == block:  # whatever is in a block before has ended when this one begins
                graph.edges.append(Edge(needed, step))
    graph.edges += _block_edges(blocks)
    return graph


def _block_edges(blocks: list[str]) -> Iterator[Edge]:
    for at, block in enumerate(blocks[1:], 1):
        is_cleanup = block == "compensations"
        label = "if it failed" if is_cleanup else "always"
        for before in blocks[:at]:
            yield Edge(block_id(before), block_id(block), label, is_exceptional=is_cleanup)


def _add_step(graph: Graph, program: Program, step: Step, parent: str) -> None:
    kind = STEP_KINDS[step.kind]
    graph.nodes.append(Node(step.name, step.name, step.kind, tuple(_notes(program, step)), parent, kind.role))
    for branch in step.branches:
        _add_step(graph, program, branch, step.name)
    for stage, spec in kind.inner_stories(step).items():
        _add_story(graph, spec, f"{step.name}/{stage}", stage, step.name)


def _add_story(graph: Graph, spec: Mapping[str, Any], frame: str, label: str, parent: str) -> None:
    """A Story that is written inside a step; it runs as a child, which has a graph of its own."""
    graph.nodes.append(Node(frame, label, "", ("a run of its own for each item",) if label == "map" else (), parent))
    inner = StepGraph(spec)
    for block in BLOCKS:
        for step in steps_of(spec.get(block)):
            name, kinds = name_of(step), kinds_in(step)
            if name is not None:
                role = kinds[0].role if kinds else Role.STEP
                kind = str(step.get("type") or "engram")
                graph.nodes.append(Node(f"{frame}/{name}", name, kind, (), frame, role))
    for name, wait in inner.waits.items():
        for needed in wait.all:
            graph.edges.append(Edge(f"{frame}/{needed}", f"{frame}/{name}"))


def _notes(program: Program, step: Step) -> list[str]:
    notes = [STEP_KINDS[step.kind].note(program, step)]
    if condition := step.condition.strip().removeprefix("{{").removesuffix("}}").strip():
        notes.append(f"if {condition}")
    if step.allows_failure:
        notes.append("may fail")
    return notes
