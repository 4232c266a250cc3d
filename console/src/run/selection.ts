// One selection for all views: a step, by the path that the API gives it; or a node of the graph that is no step.
import type { GraphNode, Step } from "../api/shapes";
import type { RunAnswer } from "../api/types";

export interface Shared {
  run: RunAnswer;
  steps: Step[];
  at: number | undefined;
  version: number;
  selected: string;
  onSelect(step: string): void;
}

/** The step that a name means: its path, its name, its place in the document, or what it is inside of. */
export function stepOf(name: string, steps: Step[]): Step | undefined {
  if (!name) return undefined;
  return (
    steps.find((step) => step.step === name) ??
    steps.find((step) => `/${step.place.join("/")}` === name) ??
    steps.find((step) => step.name === name) ??
    steps.find((step) => name.startsWith(`${step.step}/`) && !name.startsWith("/"))
  );
}

/** What is selected when a node is chosen. */
export function nameOfNode(node: string, steps: Step[]): string {
  const step = stepOf(node, steps);
  return step && !isInside(node, step) ? step.step : node;
}

function isInside(node: string, step: Step): boolean {
  return node !== step.step && node.startsWith(`${step.step}/`);
}

export function isSelected(node: string, selected: string, steps: Step[]): boolean {
  return selected !== "" && (node === selected || nameOfNode(node, steps) === selected);
}

export function nodeOf(selected: string, nodes: GraphNode[], steps: Step[]): GraphNode | undefined {
  return nodes.find((node) => node.id === selected) ?? nodes.find((node) => nameOfNode(node.id, steps) === selected);
}
