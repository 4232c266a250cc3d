import { useMemo } from "react";
import type { Graph, GraphNode, Step } from "../api/shapes";
import { useAnswer } from "../api/use";
import GraphCanvas from "../graph/GraphCanvas";
import { Problem } from "../parts/Problem";
import { nameOfNode, nodeOf, stepOf, type Shared } from "./selection";

export default function GraphView({ run, steps, at, version, selected, onSelect }: Shared) {
  const { answer, error } = useAnswer<"GET /api/v1/runs/{id}/graph", Graph>(
    "GET /api/v1/runs/{id}/graph",
    { path: { id: run.id }, query: { at } },
    version,
  );
  const graph = useMemo(() => answer && { ...answer, nodes: answer.nodes.map((node) => withItems(node, steps)) }, [answer, steps]);
  if (error) return <Problem error={error} />;
  if (!graph) return <p className="loading">…</p>;
  return (
    <GraphCanvas
      graph={graph}
      label={`Graph of ${run.name.slice(0, 80)}`}
      selected={nodeOf(selected, graph.nodes, steps)?.id}
      onSelect={(node) => onSelect(nameOfNode(node.id, steps))}
    />
  );
}

/** What a step does for many items is counted in the step: of a map, the graph has no nodes that are visited. */
function withItems(node: GraphNode, steps: Step[]): GraphNode {
  const step = stepOf(node.id, steps);
  const items = step && nameOfNode(node.id, steps) === step.step ? step.items : null;
  if (!items || (node.runs ?? 0) > 1) return node;
  const { total, done, failed } = items;
  return { ...node, count: { done, failed, open: node.ended_at ? 0 : total - done - failed } };
}
