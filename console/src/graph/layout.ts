// Places nodes: dagre lays out what is directly inside each frame, the innermost frames first. Pure; runs in a worker.
import { Graph, layout } from "@dagrejs/dagre";
import type { GraphEdge, GraphNode } from "../api/shapes";

export interface Box {
  id: string;
  parent: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

export const NODE = { width: 196, height: 54 };
const HEAD = 42; // of a frame, above what is in it
const PAD = 14;

/** `apart`: pixels between neighbours; labels of edges need some. */
export function place(nodes: GraphNode[], edges: GraphEdge[], apart: number): Box[] {
  const parents = new Map(nodes.map((node) => [node.id, node.parent ?? ""]));
  const inside = new Map<string, GraphNode[]>();
  for (const node of nodes) {
    const parent = parents.has(node.parent ?? "") ? (node.parent ?? "") : "";
    parents.set(node.id, parent);
    inside.set(parent, [...(inside.get(parent) ?? []), node]);
  }
  const boxes: Box[] = [];
  const lay = (frame: string): { width: number; height: number } => {
    const members = inside.get(frame) ?? [];
    const graph = new Graph({ multigraph: false, compound: false });
    graph.setGraph({ rankdir: "TB", nodesep: apart, ranksep: 40, marginx: 0, marginy: 0 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of members) {
      const size = inside.has(node.id) ? framed(lay(node.id)) : NODE;
      graph.setNode(node.id, { ...size });
    }
    for (const edge of edges) {
      const from = ancestorIn(edge.from, frame, parents);
      const to = ancestorIn(edge.to, frame, parents);
      if (from && to && from !== to) graph.setEdge(from, to);
    }
    layout(graph);
    let width = 0;
    let height = 0;
    for (const node of members) {
      const at = graph.node(node.id) as { x: number; y: number; width: number; height: number };
      const x = at.x - at.width / 2 + (frame ? PAD : 0);
      const y = at.y - at.height / 2 + (frame ? HEAD : 0);
      boxes.push({ id: node.id, parent: frame, x, y, width: at.width, height: at.height });
      width = Math.max(width, at.x + at.width / 2);
      height = Math.max(height, at.y + at.height / 2);
    }
    return { width, height };
  };
  lay("");
  return boxes;
}

function framed(size: { width: number; height: number }): { width: number; height: number } {
  return { width: Math.max(NODE.width, size.width + 2 * PAD), height: size.height + HEAD + PAD };
}

/** The node directly inside the frame that an end of an edge is, or is inside of. */
function ancestorIn(id: string, frame: string, parents: Map<string, string>): string {
  let at = id;
  for (let depth = 0; depth < 100 && parents.has(at); depth += 1) {
    const parent = parents.get(at) ?? "";
    if (parent === frame) return at;
    at = parent;
  }
  return "";
}
