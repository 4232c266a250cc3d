// Positions for nodes, computed beside the page; what has the same shape is not laid out again.
import { useEffect, useMemo, useState } from "react";
import type { GraphEdge, GraphNode } from "../api/shapes";
import type { Box } from "./layout";

interface Answered {
  number: number;
  boxes?: Box[];
  problem?: string;
}

let worker: Worker | undefined;
let asked = 0;
const waiting = new Map<number, (answer: Answered) => void>();

function request(nodes: GraphNode[], edges: GraphEdge[], apart: number): Promise<Answered> {
  if (!worker) {
    worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (message: MessageEvent<Answered>) => {
      waiting.get(message.data.number)?.(message.data);
      waiting.delete(message.data.number);
    };
  }
  const number = ++asked;
  const plain = nodes.map(({ id, parent }) => ({ id, parent }));
  worker.postMessage({ number, nodes: plain, edges: edges.map(({ from, to }) => ({ from, to })), apart });
  return new Promise((resolve) => waiting.set(number, resolve));
}

export function useLayout(nodes: GraphNode[], edges: GraphEdge[], apart: number): Map<string, Box> | undefined {
  const shape = useMemo(
    () => JSON.stringify([nodes.map((node) => [node.id, node.parent]), edges.map((edge) => [edge.from, edge.to])]),
    [nodes, edges],
  );
  const [laid, setLaid] = useState<{ shape: string; boxes: Map<string, Box> }>();
  useEffect(() => {
    let isWanted = true;
    void request(nodes, edges, apart).then((answer) => {
      if (isWanted && answer.boxes) setLaid({ shape, boxes: new Map(answer.boxes.map((box) => [box.id, box])) });
    });
    return () => {
      isWanted = false;
    };
    // The shape says whether the nodes have other places; their status does not.
  }, [shape]);
  return laid?.shape === shape ? laid.boxes : undefined;
}
