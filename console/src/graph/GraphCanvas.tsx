// A graph to look at: zoom, fit, fold; taken edges are strong. Nodes are buttons, so that keys reach them.
import {
  MarkerType,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  type EdgeTypes,
  type Node,
  type NodeTypes,
  type ReactFlowInstance,
} from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import "../styles/graph.css";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Graph, GraphNode } from "../api/shapes";
import { EdgeLine, type LineEdge } from "./EdgeLine";
import { foldedAtFirst, framesOf, shownOf } from "./folding";
import { StepNode, type NodeData } from "./StepNode";
import { LABEL_LETTERS, useLayout } from "./useLayout";

const NODES: NodeTypes = { step: StepNode };
const EDGES: EdgeTypes = { line: EdgeLine };
const NARROW = 0.35; // smaller is not readable
const STILL = window.matchMedia("(prefers-reduced-motion: reduce)");
const PADDING = 0.08;
const MARGIN = 24; // pixels above the first node

interface Props {
  graph: Graph;
  selected?: string; // a node
  onSelect?(node: GraphNode): void;
  label: string;
}

export default function GraphCanvas(props: Props) {
  return (
    <ReactFlowProvider>
      <Canvas {...props} />
    </ReactFlowProvider>
  );
}

function Canvas({ graph, selected, onSelect, label }: Props) {
  const names = useMemo(() => graph.nodes.map((node) => node.id).join("\n"), [graph]);
  const [folds, setFolds] = useState<{ names: string; folded: Set<string> }>();
  const folded = useMemo(() => (folds?.names === names ? folds.folded : foldedAtFirst(graph)), [folds, names, graph]);
  const [isFollowing, setFollowing] = useState(false);
  const { nodes: shown, edges: links } = useMemo(() => shownOf(graph, folded), [graph, folded]);
  const laid = useLayout(shown, links);
  const flow = useReactFlow();
  const frames = useMemo(() => framesOf(shown), [shown]);

  const toggle = (id: string): void => {
    const changed = new Set(folded);
    if (!changed.delete(id)) changed.add(id);
    setFolds({ names, folded: changed });
  };
  const select = useRef(onSelect);
  select.current = onSelect;
  const fold = useRef(toggle);
  fold.current = toggle;

  const nodes = useMemo<Node<NodeData>[]>(() => {
    if (!laid) return [];
    // React Flow wants a frame before what is in it.
    return outermostFirst(shown).map((node) => {
      const box = laid.boxes.get(node.id);
      return {
        id: node.id,
        type: "step",
        position: { x: box?.x ?? 0, y: box?.y ?? 0 },
        width: box?.width,
        height: box?.height,
        ...(box?.parent ? { parentId: box.parent } : {}),
        selected: node.id === selected,
        draggable: false,
        connectable: false,
        focusable: false,
        data: {
          node,
          isFrame: frames.has(node.id),
          canUnfold: folded.has(node.id) && (node.inside ?? 0) > 0,
          onSelect: () => select.current?.(node),
          onFold: () => fold.current(node.id),
        },
      };
    });
  }, [laid, shown, frames, folded, selected]);

  const edges = useMemo<LineEdge[]>(
    () =>
      links.map((edge, index) => ({
        id: `${index}`,
        source: edge.from,
        target: edge.to,
        label: edge.label?.slice(0, LABEL_LETTERS),
        type: "line",
        data: { line: laid?.lines[index] ?? null },
        focusable: false,
        className: `${edge.taken ? "is-taken" : "is-open"}${edge.exceptional ? " is-exceptional" : ""}`,
        markerEnd: { type: MarkerType.ArrowClosed, width: 14, height: 14, color: edge.taken ? "var(--ink-soft)" : "var(--edge)" },
      })),
    [links, laid],
  );

  const laidOut = laid !== undefined;
  const host = useRef<HTMLDivElement>(null);
  const isMoved = useRef(false); // by who looks at it: then it stays
  useEffect(() => {
    const fit = (): void => {
      if (laidOut && !isMoved.current) void fitAtTop(flow);
    };
    isMoved.current = false;
    requestAnimationFrame(fit);
    const watch = new ResizeObserver(() => requestAnimationFrame(() => requestAnimationFrame(fit))); // behind the canvas itself
    if (host.current) watch.observe(host.current);
    return () => watch.disconnect();
  }, [laidOut, names, flow]);

  const open = shown.find((node) => node.status === "running" || node.status === "waiting")?.id;
  useEffect(() => {
    if (isFollowing && open && laidOut) void flow.fitView({ nodes: [{ id: open }], maxZoom: 1, duration: STILL.matches ? 0 : 200 });
  }, [isFollowing, open, laidOut, flow]);

  // What was chosen by a key, in a list or by the address may be out of sight.
  useEffect(() => {
    const box = host.current?.getBoundingClientRect();
    const chosen = selected && laidOut ? host.current?.querySelector(`[data-id="${CSS.escape(selected)}"]`)?.getBoundingClientRect() : undefined;
    if (!box || !chosen) return;
    const isSeen = chosen.right > box.left && chosen.left < box.right && chosen.bottom > box.top && chosen.top < box.bottom;
    if (!isSeen) void flow.fitView({ nodes: [{ id: selected ?? "" }], maxZoom: flow.getZoom(), minZoom: flow.getZoom() });
  }, [selected, laidOut, flow]);

  return (
    <div ref={host} className="graph" role="group" aria-label={label} data-testid="graph">
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={NODES}
        edgeTypes={EDGES}
        onMove={(event) => event && (isMoved.current = true)}
        minZoom={0.05}
        maxZoom={2}
        nodesFocusable={false}
        edgesFocusable={false}
        nodesDraggable={false}
        elementsSelectable={false}
        onlyRenderVisibleElements={shown.length > 150}
        proOptions={{ hideAttribution: true }}
        disableKeyboardA11y
      />
      <div className="graph-tools" role="group" aria-label="Graph">
        <button type="button" aria-label="Zoom in" onClick={() => void flow.zoomIn()}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => void flow.zoomOut()}>
          −
        </button>
        <button type="button" data-testid="fit" onClick={() => void flow.fitView({ padding: PADDING, maxZoom: 1 })}>
          Fit
        </button>
        {open !== undefined && (
          <button type="button" aria-pressed={isFollowing} data-testid="follow" onClick={() => setFollowing(!isFollowing)}>
            Follow
          </button>
        )}
      </div>
    </div>
  );
}

/** As large as it can be read, and at the top, where one begins to read it. */
async function fitAtTop(flow: ReactFlowInstance): Promise<void> {
  await flow.fitView({ padding: PADDING, maxZoom: 1, minZoom: NARROW });
  const { x, y, zoom } = flow.getViewport();
  const top = flow.getNodesBounds(flow.getNodes()).y * zoom + y;
  if (top !== MARGIN) await flow.setViewport({ x, y: y - top + MARGIN, zoom });
}

function outermostFirst(nodes: GraphNode[]): GraphNode[] {
  const depths = new Map<string, number>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const depth = (node: GraphNode): number => {
    const known = depths.get(node.id);
    if (known !== undefined) return known;
    const parent = byId.get(node.parent ?? "");
    const own = parent ? depth(parent) + 1 : 0;
    depths.set(node.id, own);
    return own;
  };
  return [...nodes].sort((one, other) => depth(one) - depth(other));
}
