// Rows of the timeline: many visits of one node share a row, unless all are asked for. Pure.
import type { TimelineStep } from "../api/shapes";

export interface Row {
  step: TimelineStep;
  count: number;
  ended_at: string | null;
}

const ALIKE = 12; // visits of a node that have rows of their own

export function foldRows(steps: TimelineStep[], isWhole: boolean): Row[] {
  if (isWhole) return steps.map((step) => ({ step, count: 1, ended_at: step.ended_at }));
  const seen = new Map<string, number>();
  const shared = new Map<string, Row>();
  const rows: Row[] = [];
  for (const step of steps) {
    const number = (seen.get(step.node) ?? 0) + 1;
    seen.set(step.node, number);
    if (number <= ALIKE) {
      rows.push({ step, count: 1, ended_at: step.ended_at });
      continue;
    }
    const row = shared.get(step.node);
    if (row) {
      row.count += 1;
      if (row.ended_at !== null && (step.ended_at === null || step.ended_at > row.ended_at)) row.ended_at = step.ended_at;
      if (step.status === "failed") row.step = { ...row.step, status: "failed" };
    } else {
      const first = { step, count: 1, ended_at: step.ended_at };
      shared.set(step.node, first);
      rows.push(first);
    }
  }
  return rows;
}
