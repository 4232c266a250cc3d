// The streams of a run between two looks: rates, and the graph with what flows through it. Pure.
import type { Graph } from "../api/shapes";
import type { Json } from "../api/types";
import { lasting } from "../words";

export interface StreamStep {
  step: string;
  phase: string;
  state: string;
  received: number;
  delivered: number;
  published: number;
  waiting: number;
  fill: number;
  unacked: number;
  lag_seconds: number | null;
  last_packet_at: string | null;
  worker: string | null;
  awaits: string | null;
  errors: number;
  dropped: Record<string, number>;
  paused: boolean;
}

export interface StreamEdge {
  from: string;
  to: string;
  passed: number;
}

export interface Topology {
  at: string;
  name: string;
  phase: string;
  steps: StreamStep[];
  edges: StreamEdge[];
  packets: Record<string, Json>[];
}

export interface Rates {
  /** Messages per second, by step. */
  into: Map<string, number>;
  out: Map<string, number>;
  /** By `from` and `to`. */
  along: Map<string, number>;
}

export const edgeKey = (from: string, to: string): string => JSON.stringify([from, to]);

/** Messages per second between two looks; null if there is only one. */
export function ratesOf(before: Topology | undefined, now: Topology): Rates | null {
  const seconds = before ? (Date.parse(now.at) - Date.parse(before.at)) / 1000 : 0;
  if (!before || seconds <= 0) return null;
  const per = (count: number, earlier: number | undefined): number => Math.max(0, count - (earlier ?? 0)) / seconds;
  const steps = new Map(before.steps.map((step) => [step.step, step]));
  const edges = new Map(before.edges.map((edge) => [edgeKey(edge.from, edge.to), edge.passed]));
  return {
    into: new Map(now.steps.map((step) => [step.step, per(step.delivered, steps.get(step.step)?.delivered)])),
    out: new Map(now.steps.map((step) => [step.step, per(step.published, steps.get(step.step)?.published)])),
    along: new Map(now.edges.map((edge) => [edgeKey(edge.from, edge.to), per(edge.passed, edges.get(edgeKey(edge.from, edge.to)))])),
  };
}

export function rateText(rate: number | undefined): string {
  if (rate === undefined) return "";
  return `${rate >= 10 || rate === 0 ? Math.round(rate).toLocaleString("en") : rate.toFixed(1)}/s`;
}

export function droppedOf(step: StreamStep): number {
  return Object.values(step.dropped).reduce((sum, count) => sum + count, 0);
}

/** The graph of the document: edges say what passes them and what the buffer behind them does, nodes what they do. */
export function withFlow(graph: Graph, topology: Topology, rates: Rates | null): Graph {
  const steps = new Map(topology.steps.map((step) => [step.step, step]));
  const passed = new Map(topology.edges.map((edge) => [edgeKey(edge.from, edge.to), edge.passed]));
  return {
    ...graph,
    nodes: graph.nodes.map((node) => {
      const step = steps.get(node.id);
      return step ? { ...node, notes: [nodeNote(step, rates)] } : node;
    }),
    edges: graph.edges.map((edge) => {
      const target = steps.get(edge.to);
      if (!target || !steps.has(edge.from)) return edge;
      const key = edgeKey(edge.from, edge.to);
      const count = passed.get(key) ?? 0;
      return { ...edge, label: edgeLabel(count, rates?.along.get(key), target), taken: count > 0 };
    }),
  };
}

function nodeNote(step: StreamStep, rates: Rates | null): string {
  const words = rates ? [`in ${rateText(rates.into.get(step.step))}`, `out ${rateText(rates.out.get(step.step))}`] : [step.state];
  if (step.lag_seconds !== null) words.push(`lag ${lasting(step.lag_seconds * 1000)}`);
  return words.join(" · ");
}

function edgeLabel(passed: number, rate: number | undefined, target: StreamStep): string {
  const words = [rate === undefined ? passed.toLocaleString("en") : rateText(rate)];
  if (target.fill || target.waiting) words.push(`${target.fill} % full`);
  const dropped = droppedOf(target);
  if (dropped) words.push(`${dropped.toLocaleString("en")} dropped`);
  return words.join(" · ");
}
