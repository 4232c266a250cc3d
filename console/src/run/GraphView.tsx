import type { Graph } from "../api/shapes";
import { useAnswer } from "../api/use";
import GraphCanvas from "../graph/GraphCanvas";
import { Problem } from "../parts/Problem";
import { nameOfNode, nodeOf, type Shared } from "./selection";

export default function GraphView({ run, steps, at, version, selected, onSelect }: Shared) {
  const { answer, error } = useAnswer<"GET /api/v1/runs/{id}/graph", Graph>(
    "GET /api/v1/runs/{id}/graph",
    { path: { id: run.id }, query: { at } },
    version,
  );
  if (error) return <Problem error={error} />;
  if (!answer) return <p className="loading">…</p>;
  return (
    <GraphCanvas
      graph={answer}
      label={`Graph of ${run.name.slice(0, 80)}`}
      selected={nodeOf(selected, answer.nodes, steps)?.id}
      onSelect={(node) => onSelect(nameOfNode(node.id, steps))}
    />
  );
}
