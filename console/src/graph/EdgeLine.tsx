import { BaseEdge, getSmoothStepPath, type Edge, type EdgeProps } from "@xyflow/react";
import type { Line } from "./layout";

export type LineEdge = Edge<{ line: Line | null }>;

/** An edge along the line that was laid for it; between frames, the shortest way. */
export function EdgeLine({ data, label, markerEnd, ...ends }: EdgeProps<LineEdge>) {
  const [path, x, y] = data?.line ? [data.line.path, data.line.label.x, data.line.label.y] : getSmoothStepPath(ends);
  return <BaseEdge path={path} label={label} labelX={x} labelY={y} markerEnd={markerEnd} labelBgPadding={[4, 1]} />;
}
