// What the server says of a document: problems, findings with an example each, the graph. Pure.
import type { Graph, GraphNode, Problem } from "../api/shapes";

export interface Finding {
  kind: string;
  certainty: string;
  step: string | null;
  line: number | null;
  message: string;
  hint: string;
  trace: { step: string; choice: string }[];
}

export interface Checked {
  language: string | null;
  valid: boolean;
  problems: Problem[];
  warnings: Problem[];
  findings: Finding[];
  graph: Graph | null;
}

export interface Listed extends Problem {
  finding?: Finding;
}

/** Problems first, then what goes wrong in runs of a document that is in order. */
export function listedOf(checked: Checked | undefined): Listed[] {
  if (!checked) return [];
  const findings = checked.findings.map((finding) => ({
    code: `${finding.kind}, ${finding.certainty}`,
    message: finding.message,
    line: finding.line ?? undefined,
    hint: finding.hint,
    severity: finding.certainty === "will" ? "error" : "warning",
    finding,
  }));
  return [...checked.problems, ...checked.warnings, ...findings];
}

/** The names of the steps, for who has to choose one. */
export function stepsOf(graph: Graph | null | undefined): string[] {
  return [...new Set((graph?.nodes ?? []).map((node) => node.label))];
}

/** The node of a step as findings name it: its name, or `Flow/step` where names repeat. */
export function nodeOfStep(graph: Graph, step: string): GraphNode | undefined {
  const last = step.slice(step.lastIndexOf("/") + 1);
  const first = step.slice(0, Math.max(0, step.lastIndexOf("/")));
  return (
    graph.nodes.find((node) => node.id === step) ??
    graph.nodes.find((node) => node.label === step) ??
    graph.nodes.find((node) => node.label === last && (first === "" || node.id.includes(first)))
  );
}

/** The graph with the example of a finding: which nodes it visits in which order, and the edges between them. */
export function withExample(graph: Graph, finding: Finding): Graph {
  const visited: { node: string; choice: string }[] = [];
  for (const { step, choice } of finding.trace) {
    const node = nodeOfStep(graph, step)?.id;
    if (!node) continue;
    const before = visited.at(-1);
    if (before?.node === node) before.choice = `${before.choice}, ${choice}`;
    else visited.push({ node, choice });
  }
  const places = new Map<string, number[]>();
  visited.forEach(({ node }, index) => places.set(node, [...(places.get(node) ?? []), index + 1]));
  const taken = new Set(visited.slice(1).map(({ node }, index) => JSON.stringify([visited[index]?.node, node])));
  for (const { step, choice } of finding.trace) {
    const [from, to] = [step, choice.startsWith("→ ") ? choice.slice(2) : ""].map((name) => (name ? nodeOfStep(graph, name)?.id : undefined));
    if (from && to) taken.add(JSON.stringify([from, to]));
  }
  const at = finding.step ? nodeOfStep(graph, finding.step)?.id : undefined;
  return {
    ...graph,
    nodes: graph.nodes.map((node) => ({
      ...node,
      ...(places.has(node.id) ? { visited: places.get(node.id) } : {}),
      ...(node.id === at ? { status: finding.certainty === "will" ? "failed" : "partial" } : {}),
    })),
    edges: graph.edges.map((edge) => ({ ...edge, taken: taken.has(JSON.stringify([edge.from, edge.to])) })),
  };
}

/** The line of a text on which a step begins: where an item has this name, or a member is called so; the outermost. */
export function lineOfStep(text: string, label: string): number | undefined {
  const name = label.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const named = new RegExp(`^(\\s*(?:-\\s+)*)\\{?\\s*["']?(?:name|step)["']?\\s*:\\s*["']?${name}["']?\\s*(?:[,}#]|$)`);
  const member = new RegExp(`^(\\s*)["']?${name}["']?\\s*:`);
  let found: { line: number; depth: number } | undefined;
  text.split("\n").forEach((line, index) => {
    const depth = (named.exec(line) ?? member.exec(line))?.[1]?.length;
    if (depth !== undefined && (!found || depth < found.depth)) found = { line: index + 1, depth };
  });
  return found?.line;
}
