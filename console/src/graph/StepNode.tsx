import { Handle, Position, type NodeProps } from "@xyflow/react";
import type { Counts, GraphNode } from "../api/shapes";
import { familyOf, StatusIcon, statusWord } from "../parts/Status";
import { between, oneLine } from "../words";

export interface NodeData extends Record<string, unknown> {
  node: GraphNode;
  isFrame: boolean;
  canUnfold: boolean;
  onSelect(): void;
  onFold(): void;
}

export function StepNode({ data, selected }: NodeProps & { data: NodeData }) {
  const { node, isFrame, canUnfold } = data;
  const family = familyOf(node.status);
  const classes = ["node", `is-${family}`, isFrame ? "is-frame" : "", node.visited ? "is-visited" : "", selected ? "is-selected" : "", `role-${node.role}`];
  const total = node.count ? node.count.done + node.count.failed + node.count.open : 0;
  return (
    <div className={classes.join(" ")} data-testid="node" data-node={node.id}>
      <Handle type="target" position={Position.Top} isConnectable={false} />
      <button
        type="button"
        className="node-main nodrag"
        onClick={data.onSelect}
        aria-pressed={selected}
      >
        <span className="node-title">
          {node.status !== undefined && <StatusIcon status={node.status} />}
          <bdi title={node.label.length > 22 ? oneLine(node.label, 200) : undefined}>{oneLine(node.label, 60)}</bdi>
        </span>
        <span className="node-note">{oneLine(noteOf(node), 60)}</span>
        <span className="unseen">{statusWord(node.status)}</span>
      </button>
      {node.visited && (
        <span className="node-visits" data-testid="visit" aria-label={`number ${node.visited.join(", ")} of the example`} role="img">
          {node.visited.slice(0, 3).join(", ")}
          {node.visited.length > 3 ? "…" : ""}
        </span>
      )}
      {(isFrame || canUnfold) && (
        <button
          type="button"
          className="node-fold nodrag"
          aria-expanded={isFrame}
          aria-label={`${isFrame ? "Fold" : "Unfold"} ${node.label}`}
          data-testid="fold"
          onClick={data.onFold}
        >
          {isFrame ? "−" : `+${node.inside}`}
        </button>
      )}
      {node.count && total > 1 && <Progress counts={node.count} />}
      <Handle type="source" position={Position.Bottom} isConnectable={false} />
    </div>
  );
}

function noteOf(node: GraphNode): string {
  const total = node.count ? node.count.done + node.count.failed + node.count.open : 0;
  if (node.count && total > 1) {
    const failed = node.count.failed ? `, ${node.count.failed} failed` : "";
    const open = node.count.open ? `, ${node.count.open} open` : "";
    return `${node.count.done.toLocaleString("en")} of ${total.toLocaleString("en")} done${failed}${open}`;
  }
  const lasted = node.started_at && node.ended_at ? between(node.started_at, node.ended_at, 0) : "";
  return [node.notes?.[0] ?? node.kind, lasted].filter(Boolean).join(" · ");
}

/** Done, failed and open parts, in this order, each with its own pattern. */
function Progress({ counts }: { counts: Counts }) {
  const total = counts.done + counts.failed + counts.open;
  const part = (number: number): string => `${(100 * number) / total}%`;
  return (
    <span className="progress" role="img" aria-label={`${counts.done} done, ${counts.failed} failed, ${counts.open} open`}>
      <span className="progress-good" style={{ width: part(counts.done) }} />
      <span className="progress-bad" style={{ width: part(counts.failed) }} />
      <span className="progress-open" style={{ width: part(counts.open) }} />
    </span>
  );
}
