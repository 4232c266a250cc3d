// What can be done about a run. Each action says what it does before it is done, and how the same is done elsewhere.
import { addressOf, ask, mayAsk } from "../api/client";
import type { Json, Routes, RunAnswer } from "../api/types";
import { command, curl } from "./commands";

export type Values = Record<string, string>;

export interface Field {
  name: string;
  title: string;
  kind: "text" | "json" | "step" | "check";
  isNeeded?: boolean;
  initial?: string;
  hint?: string;
}

export interface Action {
  id: string;
  title: string;
  route: keyof Routes;
  isDanger?: boolean;
  showsTree?: boolean; // what is below the run is concerned too
  fits(run: RunAnswer): boolean;
  fields: Field[];
  does(run: RunAnswer, values: Values): string;
  path?(values: Values): Record<string, string>;
  body?(values: Values, at: number | undefined): Record<string, Json> | undefined;
  words(run: RunAnswer, values: Values, at: number | undefined): string[];
}

const isOpen = (run: RunAnswer): boolean => run.ended_at === null;
const isEnded = (run: RunAnswer): boolean => run.ended_at !== null;
const REASON: Field = { name: "reason", title: "Reason", kind: "text", hint: "stands in the history" };

function given(values: Values, ...names: string[]): Record<string, Json> {
  return Object.fromEntries(names.filter((name) => values[name]).map((name) => [name, values[name] as string]));
}

function flags(values: Values, ...names: string[]): string[] {
  return names.flatMap((name) => (values[name] ? [`--${name}`, values[name] as string] : []));
}

function gate(id: "approve" | "reject", state: "Approved" | "Rejected", does: string): Action {
  return {
    id,
    title: id === "approve" ? "Approve" : "Reject",
    route: "POST /api/v1/runs/{id}/gates/{step}",
    isDanger: id === "reject",
    fits: (run) => isOpen(run) && run.language === "story",
    fields: [
      { name: "step", title: "Gate", kind: "step", isNeeded: true },
      { name: "message", title: "Message", kind: "text", hint: "is kept with the decision" },
    ],
    does: (_, values) => `Gate “${values["step"] ?? ""}” ${does}. The decision is final and carries your name.`,
    path: (values) => ({ step: values["step"] ?? "" }),
    body: (values) => ({ state, ...given(values, "message") }),
    words: (run, values) => [id, run.id, values["step"] ?? "", ...flags(values, "message")],
  };
}

type Name = "approve" | "reject" | "signal" | "patch" | "pause" | "resume" | "redrive" | "fork" | "cancel" | "delete";

export const ACTIONS: Record<Name, Action> = {
  approve: gate("approve", "Approved", "opens, and the steps behind it go on"),
  reject: gate("reject", "Rejected", "is rejected, and its step fails"),
  signal: {
    id: "signal",
    title: "Signal",
    route: "POST /api/v1/runs/{id}/signals/{name}",
    fits: isOpen,
    fields: [
      { name: "name", title: "Name", kind: "text", isNeeded: true },
      { name: "value", title: "Value", kind: "json", hint: "JSON; empty: null" },
    ],
    does: (_, values) => `The run is sent the signal “${values["name"] ?? ""}”, once.`,
    path: (values) => ({ name: values["name"] ?? "" }),
    body: (values): Record<string, Json> => (values["value"] ? { value: JSON.parse(values["value"]) as Json } : {}),
    words: (run, values) => ["signal", run.id, values["name"] ?? "", ...(values["value"] ? [values["value"]] : [])],
  },
  patch: {
    id: "patch",
    title: "Patch ctx",
    route: "POST /api/v1/runs/{id}/patch",
    fits: (run) => isOpen(run) && run.language === "playbook",
    fields: [{ name: "ctx", title: "ctx", kind: "json", isNeeded: true, initial: "{}", hint: "an object; its members are set" }, REASON],
    does: () => "The members are set in the run's ctx; gates and rules read them from then on.",
    body: (values) => ({ ctx: JSON.parse(values["ctx"] || "{}") as Json, ...given(values, "reason") }),
    words: (run, values) => ["patch", run.id, "--ctx", values["ctx"] || "{}", ...flags(values, "reason")],
  },
  pause: {
    id: "pause",
    title: "Pause",
    route: "POST /api/v1/runs/{id}/pause",
    fits: (run) => isOpen(run) && run.status !== "paused",
    fields: [REASON],
    does: () => "The run makes no move until it is resumed. Tasks at work finish, and their results are kept.",
    body: (values) => given(values, "reason"),
    words: (run, values) => ["pause", run.id, ...flags(values, "reason")],
  },
  resume: {
    id: "resume",
    title: "Resume",
    route: "POST /api/v1/runs/{id}/resume",
    fits: (run) => run.status === "paused",
    fields: [],
    does: () => "The run goes on where it was paused.",
    body: () => ({}),
    words: (run) => ["unpause", run.id],
  },
  redrive: {
    id: "redrive",
    title: "Redrive",
    route: "POST /api/v1/runs/{id}/redrive",
    fits: isEnded,
    fields: [{ name: "from", title: "From step", kind: "step", hint: "empty: from what failed" }],
    does: (_, values) =>
      values["from"]
        ? `The same run is reopened: step “${values["from"]}” and what follows it is done again.`
        : "The same run is reopened and continues with what failed. What succeeded is kept.",
    body: (values) => given(values, "from"),
    words: (run, values) => ["redrive", run.id, ...flags(values, "from")],
  },
  fork: {
    id: "fork",
    title: "Fork",
    route: "POST /api/v1/runs/{id}/fork",
    fits: () => true,
    fields: [],
    does: () => "A new run starts with the past of this one up to that event, and goes on by itself. This one is left as it is.",
    body: (_, at): Record<string, Json> => (at === undefined ? {} : { at }),
    words: (run, _, at) => ["fork", run.id, ...(at === undefined ? [] : ["--at", String(at)])],
  },
  cancel: {
    id: "cancel",
    title: "Cancel",
    route: "POST /api/v1/runs/{id}/cancel",
    isDanger: true,
    showsTree: true,
    fits: isOpen,
    fields: [REASON],
    does: () => "The run is asked to stop: its steps are cancelled, its clean-up steps run, then it ends.",
    body: (values) => given(values, "reason"),
    words: (run, values) => ["cancel", run.id, ...flags(values, "reason")],
  },
  delete: {
    id: "delete",
    title: "Delete",
    route: "DELETE /api/v1/runs/{id}",
    isDanger: true,
    showsTree: true,
    fits: isEnded,
    fields: [],
    does: () => "The run, its history and all runs below it are removed, for ever.",
    words: (run) => ["delete", "run", run.id],
  },
};

export function mayDo(action: Action, run: RunAnswer): boolean {
  return action.fits(run) && mayAsk(action.route);
}

export function commandOf(action: Action, run: RunAnswer, values: Values, at: number | undefined): string {
  return command(...action.words(run, values, at));
}

export function requestOf(action: Action, run: RunAnswer, values: Values, at: number | undefined): string {
  const [method = "POST"] = action.route.split(" ");
  return curl(method, addressOf(action.route, pathOf(action, run, values)), action.body?.(values, at));
}

export function perform(action: Action, run: RunAnswer, values: Values, at: number | undefined): Promise<unknown> {
  const body = action.body?.(values, at) as never;
  return ask(action.route, { path: pathOf(action, run, values), body });
}

function pathOf(action: Action, run: RunAnswer, values: Values): Record<string, string> {
  return { id: run.id, ...action.path?.(values) };
}
