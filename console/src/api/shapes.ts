// Answers that the server describes as objects only.
import type { Json } from "./types";

export interface Failure {
  code: string;
  message: string;
  at: string | null;
  seq: number | null;
  attempt: number;
  task: string | null;
  item: number | null;
  frames: Json[];
}

export interface Step {
  step: string;
  name: string;
  kind: string;
  status: string;
  started_at: string | null;
  ended_at: string | null;
  started_seq: number | null;
  ended_seq: number | null;
  due_at: string | null;
  visits: { total: number; failed: number; open: number };
  attempts_made: number;
  items: { total: number; done: number; failed: number } | null;
  error: Failure | null;
  first_error: Failure | null;
  note: string | null;
  child: string | null;
  place: (string | number)[];
}

export interface Attempt {
  task: number;
  seq: number;
  path: string;
  provider: string;
  attempt: number;
  delivery: number;
  status: string;
  input: Json;
  output?: Json;
  error?: { code: string; message: string };
  started_at: string;
  ended_at: string | null;
}

export interface StepDetails extends Step {
  input: Json;
  output: Json;
  expressions: { place: string; expression: string; value: Json }[];
  attempts: Attempt[];
  effects: Record<string, Json>[];
  logs: Record<string, Json>[];
  next?: string;
}

export interface Counts {
  done: number;
  failed: number;
  open: number;
}

export interface GraphNode {
  id: string;
  label: string;
  kind: string;
  role: string;
  parent?: string;
  notes?: string[];
  status?: string | null;
  runs?: number;
  attempts?: number;
  started_at?: string | null;
  ended_at?: string | null;
  count?: Counts;
  inside?: number;
  folded?: boolean;
  visited?: number[]; // its places in an example
}

export interface GraphEdge {
  from: string;
  to: string;
  label?: string;
  taken?: boolean;
  exceptional?: boolean;
}

export interface Graph {
  title?: string;
  nodes: GraphNode[];
  edges: GraphEdge[];
  next?: string;
}

export interface Stretch {
  kind: "wait" | "attempt";
  started_at: string;
  ended_at: string | null;
  failed: boolean;
}

export interface TimelineStep {
  node: string;
  title: string;
  kind: string;
  depth: number;
  status: string;
  attempts: number;
  started_at: string;
  ended_at: string | null;
  stretches: Stretch[];
  count?: number; // of visits that share the entry
}

export interface Timeline {
  started_at: string;
  ended_at: string | null;
  steps: TimelineStep[];
  visits: number;
}

export interface Why {
  chain: { seq: number; at: string; text: string }[];
  commands: string[];
}

export interface RunEvent {
  seq: number;
  [name: string]: Json;
}

export interface Problem {
  code: string;
  message: string;
  path?: string;
  line?: number;
  column?: number;
  hint?: string;
  severity: string;
}

/** How an event is named, and when it was recorded, whatever its language. */
export function eventName(event: RunEvent): string {
  return String(event["event_type"] ?? event["event"] ?? "");
}

export function eventTime(event: RunEvent): string {
  return String(event["timestamp"] ?? event["at"] ?? "");
}

export function eventStep(event: RunEvent): string {
  const step = event["step"] ?? (eventName(event) === "StepEntered" ? event["name"] : null);
  return typeof step === "string" ? step : "";
}
