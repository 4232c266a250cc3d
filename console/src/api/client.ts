// Requests to the API. A refusal is thrown as it was sent; a server that does not answer is told to the connection.
import { lost } from "./connection";
import { ROLES, type Json, type Role, type Routes } from "./types";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly problems: Record<string, Json>[] = [],
  ) {
    super(message);
  }
}

/** The server cannot be reached. */
export class Unreachable extends Error {}

type Query = Record<string, string | number | boolean | null | undefined | string[]>;

interface Asked<K extends keyof Routes> {
  path?: Record<string, string>;
  query?: Routes[K]["query"];
  body?: Routes[K]["body"];
  signal?: AbortSignal;
}

const RANKS: Role[] = ["viewer", "operator", "author", "admin"];
const session = { csrf: "", role: "" as Role | "", onEnd: (): void => undefined };

/** Who is told that the server does not know the session any more: it has expired, or its token was revoked. */
export function onSessionEnd(act: () => void): void {
  session.onEnd = act;
}

export function setSession(csrf: string, role: Role | ""): void {
  session.csrf = csrf;
  session.role = role;
}

/** Whether the caller's role is enough for a route. */
export function mayAsk(route: keyof Routes): boolean {
  return session.role !== "" && RANKS.indexOf(session.role) >= RANKS.indexOf(ROLES[route]);
}

export function addressOf(route: keyof Routes, path: Record<string, string> = {}, query: object = {}): string {
  const [, template = ""] = route.split(" ");
  const filled = template.replace(/\{(\w+)\+?\}/g, (_, name: string) => encodeURIComponent(path[name] ?? ""));
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query as Query)) {
    if (Array.isArray(value)) value.forEach((each) => words.append(name, each));
    else if (value !== undefined && value !== null && value !== "") words.append(name, String(value));
  }
  const text = words.toString();
  return text ? `${filled}?${text}` : filled;
}

export async function ask<K extends keyof Routes>(route: K, asked: Asked<K> = {}): Promise<Routes[K]["answer"]> {
  const [method = "GET"] = route.split(" ");
  const headers: Record<string, string> = { Accept: "application/json" };
  if (asked.body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-CSRF-Token"] = session.csrf;
  const body = asked.body === undefined ? undefined : JSON.stringify(asked.body);
  const address = addressOf(route, asked.path, asked.query);
  const response = await send(address, { method, headers, body, signal: asked.signal });
  return (response.status === 204 ? null : readJson(await response.text())) as Routes[K]["answer"];
}

/** An answer as text: figures for Prometheus, for example. */
export async function askText(address: string): Promise<string> {
  return (await send(address, {})).text();
}

const AT_ONCE = 3; // reads of whole runs: a server answers four of a token at a time
const running = new Set<object>();
const queue: (() => void)[] = [];

/** One after the other, as places are free; streams and changes do not wait. */
async function inTurn(address: string, options: RequestInit): Promise<Response> {
  const isRead = (options.method ?? "GET") === "GET" && address.startsWith("/api/v1/runs/");
  const isStream = (options.headers as Record<string, string> | undefined)?.["Accept"] === "text/event-stream";
  if (!isRead || isStream) return fetch(address, options);
  while (running.size >= AT_ONCE) await new Promise<void>((resolve) => queue.push(resolve));
  const place = {};
  running.add(place);
  try {
    return await fetch(address, options);
  } finally {
    running.delete(place);
    queue.shift()?.();
  }
}

export async function send(address: string, options: RequestInit, tries = 3): Promise<Response> {
  let response: Response;
  try {
    response = await inTurn(address, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    lost();
    throw new Unreachable("the server does not answer");
  }
  if (response.ok) return response;
  const isRead = (options.method ?? "GET") === "GET";
  if (isRead && tries > 0 && (response.status === 429 || response.status === 503)) {
    const seconds = Math.min(10, Number(response.headers.get("Retry-After") ?? 1) || 1);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    return send(address, options, tries - 1);
  }
  if (response.status === 401 && session.role) session.onEnd();
  throw await refusal(response);
}

async function refusal(response: Response): Promise<Refused> {
  try {
    const said = (await response.json()) as Record<string, Json>;
    const problems = Array.isArray(said["problems"]) ? (said["problems"] as Record<string, Json>[]) : [];
    return new Refused(
      response.status,
      String(said["code"] ?? ""),
      String(said["detail"] ?? response.statusText),
      String(said["hint"] ?? ""),
      problems,
    );
  } catch {
    return new Refused(response.status, "", `the server answered ${response.status}`, "");
  }
}

interface RawJson {
  rawJSON: string;
}
const parser = JSON as unknown as {
  parse(text: string, revive?: (name: string, value: unknown, context: { source: string }) => unknown): unknown;
  rawJSON?(text: string): RawJson;
  isRawJSON?(value: unknown): value is RawJson;
};

/** Integers that a number of this language would change keep the digits that the store has. */
export function readJson(text: string): Json {
  if (!parser.rawJSON || !/\d{16}/.test(text)) return JSON.parse(text) as Json;
  return parser.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source)
      ? parser.rawJSON?.(context.source)
      : value,
  ) as Json;
}

/** The digits of an integer that is kept as text; null for every other value. */
export function digitsOf(value: unknown): string | null {
  return parser.isRawJSON?.(value) ? value.rawJSON : null;
}
