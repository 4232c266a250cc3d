// Positions for nodes and lines for edges, computed beside the page; what has the same shape is not laid out again.
import { useEffect, useMemo, useState } from "react";
import type { GraphEdge, GraphNode } from "../api/shapes";
import type { Box, LaidEdge, LaidNode, Layout, Line } from "./layout";

interface Answered {
  number: number;
  layout?: Layout;
  problem?: string;
}

export interface Laid {
  boxes: Map<string, Box>;
  lines: (Line | null)[];
}

let worker: Worker | undefined;
let asked = 0;
const waiting = new Map<number, (answer: Answered) => void>();
const LETTER = 5.6; // pixels, of the labels of edges
const LABEL_STEP = 48; // labels that change a little keep the nodes where they are
export const LABEL_LETTERS = 60;

function request(nodes: LaidNode[], edges: LaidEdge[]): Promise<Answered> {
  if (!worker) {
    worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (message: MessageEvent<Answered>) => {
      waiting.get(message.data.number)?.(message.data);
      waiting.delete(message.data.number);
    };
  }
  const number = ++asked;
  worker.postMessage({ number, nodes, edges });
  return new Promise((resolve) => waiting.set(number, resolve));
}

export function useLayout(nodes: GraphNode[], edges: GraphEdge[]): Laid | undefined {
  const plain = useMemo(
    () => ({
      nodes: nodes.map(({ id, parent }) => ({ id, parent })),
      edges: edges.map(({ from, to, label }) => ({ from, to, ...(label ? { label: labelWidth(label) } : {}) })),
    }),
    [nodes, edges],
  );
  const shape = useMemo(() => JSON.stringify(plain), [plain]);
  const ends = useMemo(() => JSON.stringify([plain.nodes, plain.edges.map(({ from, to }) => [from, to])]), [plain]);
  const [laid, setLaid] = useState<{ ends: string; laid: Laid }>();
  useEffect(() => {
    let isWanted = true;
    void request(plain.nodes, plain.edges).then(({ layout }) => {
      if (!isWanted || !layout) return;
      setLaid({ ends, laid: { boxes: new Map(layout.boxes.map((box) => [box.id, box])), lines: layout.lines } });
    });
    return () => {
      isWanted = false;
    };
    // The shape says whether the nodes have other places; their status does not.
  }, [shape]);
  return laid?.ends === ends ? laid.laid : undefined; // with longer labels, the places before until there are better ones
}

function labelWidth(label: string): number {
  return Math.ceil((Math.min(label.length, LABEL_LETTERS) * LETTER + 8) / LABEL_STEP) * LABEL_STEP;
}
