// Which nodes are shown: a frame that is folded is one node, and edges into it end at it. Pure.
import type { Graph, GraphEdge, GraphNode } from "../api/shapes";

export const MOST_UNFOLDED = 60; // parts of a frame that are shown unless somebody folds it

export function foldedAtFirst(graph: Graph): Set<string> {
  const folded = graph.nodes.filter((node) => (node.inside ?? 0) > MOST_UNFOLDED || node.folded);
  return new Set(folded.map((node) => node.id));
}

export function shownOf(graph: Graph, folded: ReadonlySet<string>): { nodes: GraphNode[]; edges: GraphEdge[] } {
  const parents = new Map(graph.nodes.map((node) => [node.id, node.parent ?? ""]));
  const isHidden = (id: string): boolean => {
    for (let parent = parents.get(id) ?? ""; parent; parent = parents.get(parent) ?? "") {
      if (folded.has(parent)) return true;
    }
    return false;
  };
  const nodes = graph.nodes.filter((node) => !isHidden(node.id));
  const shown = new Set(nodes.map((node) => node.id));
  const visible = (id: string): string => {
    let at = id;
    while (at && !shown.has(at)) at = parents.get(at) ?? "";
    return at;
  };
  const merged = new Map<string, GraphEdge>();
  for (const edge of graph.edges) {
    const from = visible(edge.from);
    const to = visible(edge.to);
    if (!from || !to || (from === to && edge.from !== edge.to)) continue;
    const key = JSON.stringify([from, to, edge.label ?? "", edge.exceptional ?? false]);
    const known = merged.get(key);
    merged.set(key, { ...edge, from, to, taken: (known?.taken ?? false) || (edge.taken ?? false) });
  }
  return { nodes, edges: [...merged.values()] };
}

/** Whether a node has parts that are shown inside it. */
export function framesOf(nodes: GraphNode[]): Set<string> {
  return new Set(nodes.map((node) => node.parent ?? "").filter(Boolean));
}
