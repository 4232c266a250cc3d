// Written by tools/console_types.py from the server's table of routes: do not edit.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Role = "viewer" | "operator" | "author" | "admin" | "worker";

export interface ApplyAnswer {
  changes: Record<string, Json>[];
  warnings: Record<string, Json>[];
}

export interface ApplyBody {
  documents: (string | Record<string, Json>)[];
  files?: string[];
  namespace?: string;
  labels?: Record<string, string>;
  dry_run?: boolean;
}

export interface BackfillBody {
  name: string;
  from: string;
  to: string;
  namespace?: string | null;
  overlap?: string | null;
  dry_run?: boolean;
}

export interface BatchBody {
  verb: "cancel" | "delete" | "pause" | "redrive" | "resume" | "signal";
  filter: BatchFilter;
  dry_run?: boolean;
  cursor?: string;
  reason?: string;
  cascade?: boolean;
  from?: string;
  signal?: string;
  value?: Json;
}

export interface BatchResult {
  count: number;
  ids: string[];
  failed: Record<string, Json>[];
  dry_run: boolean;
  next?: string;
  more?: boolean;
  steered?: Record<string, Json>[];
}

export interface CancelBody {
  reason?: string;
  cascade?: boolean;
  by?: string | null;
}

export interface ChangePage {
  items: Record<string, Json>[];
  next: number;
}

export interface CheckAnswer {
  language: string | null;
  valid: boolean;
  problems: Record<string, Json>[];
  warnings: Record<string, Json>[];
  findings: Record<string, Json>[];
  graph: Record<string, Json> | null;
}

export interface CheckBody {
  document: string | Record<string, Json>;
  apply?: (string | Record<string, Json>)[];
  name?: string;
  namespace?: string | null;
}

export interface DeletedAnswer {
  deleted: string[];
}

export interface EvaluateBody {
  step: string;
  expression: string;
  at?: number | string | null;
}

export interface ForkAnswer {
  id: string;
  source: string;
}

export interface ForkBody {
  at?: number | string | null;
  at_failure?: boolean;
  input?: Json;
  document?: string | Record<string, Json> | null;
  by?: string | null;
}

export interface GateBody {
  state: "Approved" | "Rejected";
  message?: string;
  key?: string | null;
  by?: string | null;
  updatedBy?: string | null;
  updatedAt?: string | null;
}

export interface ImpactAnswer {
  language: string;
  namespace: string;
  name: string;
  document: string;
  counts: Record<string, number>;
  more: boolean;
  runs: Record<string, Json>[];
  plan: MigrationPlan;
}

export interface ImpactBody {
  document: string | Record<string, Json>;
  apply?: (string | Record<string, Json>)[];
  name?: string;
  namespace?: string | null;
  mapping?: Record<string, string | null>;
  runs?: string[];
}

export interface ItemPage {
  items: Record<string, Json>[];
  next?: string | number;
}

export interface MigrationAnswer {
  dry_run: boolean;
  counts: Record<string, number>;
  runs: Record<string, string>[];
}

export interface MigrationBody {
  plan?: MigrationPlan | null;
  undo?: string[];
  dry_run?: boolean;
}

export interface NotedToolCall {
  tool: string;
  run?: string | null;
}

export interface PatchBody {
  ctx?: Record<string, Json>;
  set?: Record<string, Json>;
  kind?: string | null;
  patch?: Record<string, Json> | null;
  subresource?: "status" | null;
  reason?: string;
  key?: string | null;
  by?: string | null;
}

export interface PauseBody {
  reason?: string;
  key?: string | null;
  by?: string | null;
}

export interface PauseScheduleBody {
  name: string;
  namespace?: string | null;
  reason?: string;
  by?: string | null;
}

export interface RedriveBody {
  from?: string;
  key?: string | null;
  by?: string | null;
}

export interface ResultAnswer {
  id: string;
  status: string;
  value?: Json;
  error?: Record<string, Json> | null;
}

export interface RunAnswer {
  id: string;
  language: string;
  name: string;
  namespace: string;
  status: string;
  parent: string | null;
  labels: Record<string, string>;
  started_at: string;
  ended_at: string | null;
  owner: string | null;
  started_by: Who | null;
  tasks: Tasks;
  waits_for: string[];
  pending: Record<string, Json>[];
  error?: Record<string, Json> | null;
  stuck?: string | null;
  has_streams?: boolean;
}

export interface RunPage {
  items: RunItem[];
  next?: string;
}

export interface SandboxBody {
  document: string | Record<string, Json>;
  apply?: (string | Record<string, Json>)[];
  name?: string;
  namespace?: string | null;
  input?: Json;
  arguments?: Json;
  mocks?: Record<string, Json>;
  signals?: Record<string, Json>;
  gates?: Record<string, string>;
  most?: number;
}

export interface ScenariosBody {
  files: Record<string, string>;
  places: string[];
  crash?: "all" | "none";
  only?: string;
  coverage?: "dot" | "mermaid" | "svg" | "text" | null;
  apply?: string[];
  namespace?: string | null;
}

export interface SentAnswer {
  id: string;
  decided: boolean;
  pending: boolean;
  live: boolean;
  new: boolean;
  remarks: string[];
}

export interface ServersAnswer {
  items: Record<string, Json>[];
  settings: Record<string, Json>[];
  warnings: string[];
}

export interface SessionBody {
  token?: string | null;
  code?: string | null;
}

export interface SettleBody {
  done: boolean;
  result?: Json;
  key?: string | null;
  by?: string | null;
}

export interface SignalBody {
  value?: Json;
  key?: string | null;
  by?: string | null;
}

export interface SimulationBody {
  files: Record<string, string>;
  document: string;
  runs?: number;
  seed?: number;
  faults?: string[] | null;
  scenario?: string;
  input?: Json;
  trace?: string;
  apply?: string[];
  namespace?: string | null;
}

export interface StartBody {
  document?: string | Record<string, Json> | null;
  name?: string | null;
  namespace?: string | null;
  default_name?: string | null;
  input?: Json;
  arguments?: Json;
  target?: string | null;
  env?: Record<string, string>;
  set?: Record<string, Json>;
  token?: string | null;
  labels?: Record<string, string>;
  apply?: (string | Record<string, Json>)[];
  traceparent?: string | null;
}

export interface TokenAnswer {
  name: string;
  role: string;
  namespaces: string[] | null;
  pools: string[];
  expires_at: string | null;
  token: string;
}

export interface TokenBody {
  name: string;
  role: "admin" | "author" | "operator" | "viewer" | "worker";
  namespaces?: string[];
  pools?: string[];
  expires_in?: number | null;
}

export interface TriggerBody {
  story?: string | null;
  version?: string | null;
  impulse?: string | null;
  input?: Json;
  token?: string | null;
  key?: string | null;
  namespace?: string | null;
}

export interface WhoAnswer {
  name: string;
  role: string;
  namespaces: string[] | null;
  pools: string[];
  expires_at: string | null;
  via: string;
  csrf?: string;
}

export interface BatchFilter {
  language?: string | null;
  name?: string | null;
  namespace?: string | null;
  parent?: string | null;
  started_after?: string | null;
  started_before?: string | null;
  q?: string | null;
  status?: string | string[];
  label?: string | string[];
  children?: boolean;
  all?: boolean;
}

export interface MigrationPlan {
  perdure?: string;
  format?: number;
  language: string;
  namespace: string;
  name: string;
  to: string;
  document: string;
  apply?: string[];
  moves: PlannedMove[];
}

export interface RunItem {
  id: string;
  language: string;
  name: string;
  namespace: string;
  status: string;
  parent: string | null;
  labels: Record<string, string>;
  started_at: string;
  ended_at: string | null;
  owner: string | null;
}

export interface Tasks {
  done: number;
  open: number;
}

export interface Who {
  name: string;
  via: string;
}

export interface PlannedMove {
  from: string;
  mapping?: Record<string, string | null>;
  runs: string[];
}

export type NoQuery = Record<never, never>;

export interface Routes {
  "POST /session": { query: NoQuery; body: SessionBody; answer: WhoAnswer };
  "DELETE /session": { query: NoQuery; body: undefined; answer: null };
  "POST /api/v1/runs/{id}/evaluate": { query: NoQuery; body: EvaluateBody; answer: Record<string, Json> };
  "POST /api/v1/tools:called": { query: NoQuery; body: NotedToolCall; answer: Record<string, Json> };
  "GET /api/v1/tools": { query: { namespace?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/schemas/{language}": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/resources/{kind}/{namespace}/{name}/source": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/resources/{kind}/{namespace}/{name}/graph": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/resources/{kind}/{namespace}/{name}/schema": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/resources/{kind}/{namespace}/{name}/schedule": { query: { next?: number }; body: undefined; answer: Record<string, Json> };
  "POST /api/v1/sandbox": { query: NoQuery; body: SandboxBody; answer: Record<string, Json> };
  "POST /api/v1/impact": { query: NoQuery; body: ImpactBody; answer: ImpactAnswer };
  "POST /api/v1/migrations": { query: NoQuery; body: MigrationBody; answer: MigrationAnswer };
  "POST /api/v1/simulations": { query: NoQuery; body: SimulationBody; answer: Record<string, Json> };
  "POST /api/v1/tests": { query: NoQuery; body: ScenariosBody; answer: Record<string, Json> };
  "GET /version": { query: NoQuery; body: undefined; answer: Json };
  "POST /api/v1/runs": { query: NoQuery; body: StartBody; answer: RunAnswer | ResultAnswer };
  "GET /api/v1/runs": { query: { language?: string | null; name?: string | null; namespace?: string | null; parent?: string | null; started_after?: string | null; started_before?: string | null; q?: string | null; status?: string[]; label?: string[]; limit?: number; cursor?: string | null }; body: undefined; answer: RunPage };
  "POST /api/v1/runs:batch": { query: NoQuery; body: BatchBody; answer: BatchResult };
  "GET /api/v1/runs/{id}": { query: { at?: number | null }; body: undefined; answer: RunAnswer };
  "DELETE /api/v1/runs/{id}": { query: NoQuery; body: undefined; answer: DeletedAnswer };
  "GET /api/v1/runs/{id}/picture": { query: { at?: number | null }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/graph": { query: { at?: number | null; under?: string; cursor?: string | null }; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/runs/{id}/result": { query: { wait?: number }; body: undefined; answer: ResultAnswer };
  "GET /api/v1/runs/{id}/events": { query: { after?: number | null; limit?: number; raw?: boolean }; body: undefined; answer: ItemPage };
  "GET /api/v1/events": { query: { language?: string | null; name?: string | null; namespace?: string | null; parent?: string | null; started_after?: string | null; started_before?: string | null; q?: string | null; status?: string[]; label?: string[]; after?: number | null; limit?: number }; body: undefined; answer: Json };
  "GET /api/v1/changes": { query: { language?: string | null; name?: string | null; namespace?: string | null; parent?: string | null; started_after?: string | null; started_before?: string | null; q?: string | null; status?: string[]; label?: string[]; after?: number | null; limit?: number }; body: undefined; answer: ChangePage };
  "GET /api/v1/runs/{id}/effects": { query: NoQuery; body: undefined; answer: ItemPage };
  "GET /api/v1/runs/{id}/children": { query: { limit?: number; cursor?: string | null }; body: undefined; answer: RunPage };
  "GET /api/v1/runs/{id}/steps": { query: { at?: number | null }; body: undefined; answer: ItemPage };
  "GET /api/v1/runs/{id}/steps/{step}": { query: { limit?: number; cursor?: string | null }; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/audit:head": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/audit:verify": { query: { head?: string }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/why": { query: { step?: string | null; field?: string | null; at?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/stats": { query: { by?: string; every?: string; from?: string | null; to?: string | null; namespace?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/resources:description": { query: { what?: string[]; namespace?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/capsule": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/diff": { query: { other?: string | null; before?: string | null; after?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/drawing": { query: { at?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/forecast": { query: { name?: string; language?: string | null; namespace?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/forecast": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/screen": { query: { at?: string | null; checksum?: boolean }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/picture-at": { query: { at?: string | null; checksum?: boolean }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/live-status": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/ending": { query: { value?: boolean }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/left-behind": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/condition": { query: { kind?: "ended" | "phase" | "step"; name?: string; behind?: number }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/status": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/references": { query: { ref?: string }; body: undefined; answer: Json };
  "GET /api/v1/runs:resolve": { query: { name?: string; namespace?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/runs:listing": { query: { status?: string[]; name?: string | null; label?: string[]; namespace?: string | null; started_after?: string | null; started_before?: string | null; roots?: boolean; explain?: boolean; limit?: number | null; cursor?: string | null }; body: undefined; answer: Json };
  "GET /api/v1/resources:listing": { query: { what?: string[]; namespace?: string | null; all_namespaces?: boolean; label?: string[]; limit?: number; usage?: boolean }; body: undefined; answer: Json };
  "GET /api/v1/retention": { query: NoQuery; body: undefined; answer: Json };
  "GET /api/v1/schedules": { query: { name?: string | null; namespace?: string | null; all_namespaces?: boolean; next?: number }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/timeline-rows": { query: { at?: string | null; everything?: boolean }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/timeline": { query: { at?: string | null; alike?: number | null }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/topology": { query: { packets?: number }; body: undefined; answer: Json };
  "GET /api/v1/runs/{id}/logs": { query: { limit?: number; cursor?: string | null; step?: string | null }; body: undefined; answer: ItemPage };
  "GET /api/v1/runs/{id}/operations": { query: { limit?: number; cursor?: string | null }; body: undefined; answer: ItemPage };
  "GET /api/v1/runs/{id}/values/{digest}": { query: NoQuery; body: undefined; answer: Json };
  "POST /api/v1/runs/{id}/cancel": { query: NoQuery; body: CancelBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/signals/{name}": { query: NoQuery; body: SignalBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/gates/{step}": { query: NoQuery; body: GateBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/patch": { query: NoQuery; body: PatchBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/redrive": { query: NoQuery; body: RedriveBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/fork": { query: NoQuery; body: ForkBody; answer: ForkAnswer };
  "POST /api/v1/runs/{id}/pause": { query: NoQuery; body: PauseBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/resume": { query: NoQuery; body: PauseBody; answer: SentAnswer };
  "POST /api/v1/runs/{id}/effects/{key}/settle": { query: NoQuery; body: SettleBody; answer: SentAnswer };
  "GET /api/v1/providers": { query: NoQuery; body: undefined; answer: ItemPage };
  "GET /api/v1/servers": { query: NoQuery; body: undefined; answer: ServersAnswer };
  "GET /api/v1/overview": { query: { limit?: number }; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/workers": { query: NoQuery; body: undefined; answer: ItemPage };
  "GET /api/v1/pools": { query: NoQuery; body: undefined; answer: ItemPage };
  "GET /api/v1/pools/{pool}": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "POST /api/v1/check": { query: NoQuery; body: CheckBody; answer: CheckAnswer };
  "GET /api/v1/resources": { query: NoQuery; body: undefined; answer: ItemPage };
  "POST /api/v1/resources:apply": { query: NoQuery; body: ApplyBody; answer: ApplyAnswer };
  "GET /api/v1/resources/{kind}": { query: { label?: string[]; limit?: number; cursor?: string | null }; body: undefined; answer: ItemPage };
  "GET /api/v1/resources/{kind}/{namespace}": { query: { label?: string[]; limit?: number; cursor?: string | null }; body: undefined; answer: ItemPage };
  "GET /api/v1/resources/{kind}/{namespace}/{name}": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "PUT /api/v1/resources/{kind}/{namespace}/{name}": { query: NoQuery; body: Record<string, Json>; answer: Record<string, Json> };
  "DELETE /api/v1/resources/{kind}/{namespace}/{name}": { query: NoQuery; body: undefined; answer: DeletedAnswer };
  "GET /api/v1/resources/{kind}/{namespace}/{name}/versions": { query: NoQuery; body: undefined; answer: ItemPage };
  "GET /api/v1/resources/{kind}/{namespace}/{name}/versions/{version}": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "POST /api/v1/impulses/{namespace}/{name}": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/hooks": { query: NoQuery; body: undefined; answer: ItemPage };
  "GET /api/v1/hooks/{hook}/deliveries": { query: { limit?: number; cursor?: string | null; state?: "dead" | "delivered" | "open" | null }; body: undefined; answer: ItemPage };
  "POST /api/v1/hooks/{hook}/pause": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "POST /api/v1/hooks/{hook}/resume": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "POST /api/v1/hooks/{hook}/retry": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "POST /api/v1/triggers": { query: NoQuery; body: TriggerBody; answer: Record<string, Json> };
  "POST /api/v1/schedules:pause": { query: NoQuery; body: PauseScheduleBody; answer: Record<string, Json> };
  "POST /api/v1/schedules:unpause": { query: NoQuery; body: PauseScheduleBody; answer: Record<string, Json> };
  "POST /api/v1/schedules:backfill": { query: NoQuery; body: BackfillBody; answer: Record<string, Json> };
  "GET /api/v1/whoami": { query: NoQuery; body: undefined; answer: WhoAnswer };
  "GET /api/v1/tokens": { query: NoQuery; body: undefined; answer: ItemPage };
  "POST /api/v1/tokens": { query: NoQuery; body: TokenBody; answer: TokenAnswer };
  "DELETE /api/v1/tokens/{name}": { query: NoQuery; body: undefined; answer: Record<string, Json> };
  "GET /api/v1/audit": { query: { run?: string | null; limit?: number; cursor?: string | null }; body: undefined; answer: ItemPage };
}

/** The role that each route asks for. */

export const ROLES: Record<keyof Routes, Role> = {
  "POST /session": "viewer",
  "DELETE /session": "viewer",
  "POST /api/v1/runs/{id}/evaluate": "operator",
  "POST /api/v1/tools:called": "viewer",
  "GET /api/v1/tools": "viewer",
  "GET /api/v1/schemas/{language}": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}/{name}/source": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}/{name}/graph": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}/{name}/schema": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}/{name}/schedule": "viewer",
  "POST /api/v1/sandbox": "author",
  "POST /api/v1/impact": "author",
  "POST /api/v1/migrations": "author",
  "POST /api/v1/simulations": "author",
  "POST /api/v1/tests": "author",
  "GET /version": "viewer",
  "POST /api/v1/runs": "operator",
  "GET /api/v1/runs": "viewer",
  "POST /api/v1/runs:batch": "operator",
  "GET /api/v1/runs/{id}": "viewer",
  "DELETE /api/v1/runs/{id}": "operator",
  "GET /api/v1/runs/{id}/picture": "viewer",
  "GET /api/v1/runs/{id}/graph": "viewer",
  "GET /api/v1/runs/{id}/result": "viewer",
  "GET /api/v1/runs/{id}/events": "viewer",
  "GET /api/v1/events": "viewer",
  "GET /api/v1/changes": "viewer",
  "GET /api/v1/runs/{id}/effects": "viewer",
  "GET /api/v1/runs/{id}/children": "viewer",
  "GET /api/v1/runs/{id}/steps": "viewer",
  "GET /api/v1/runs/{id}/steps/{step}": "viewer",
  "GET /api/v1/audit:head": "admin",
  "GET /api/v1/audit:verify": "admin",
  "GET /api/v1/runs/{id}/why": "viewer",
  "GET /api/v1/stats": "viewer",
  "GET /api/v1/resources:description": "viewer",
  "GET /api/v1/runs/{id}/capsule": "viewer",
  "GET /api/v1/runs/{id}/diff": "viewer",
  "GET /api/v1/runs/{id}/drawing": "viewer",
  "GET /api/v1/forecast": "viewer",
  "GET /api/v1/runs/{id}/forecast": "viewer",
  "GET /api/v1/runs/{id}/screen": "viewer",
  "GET /api/v1/runs/{id}/picture-at": "viewer",
  "GET /api/v1/runs/{id}/live-status": "viewer",
  "GET /api/v1/runs/{id}/ending": "viewer",
  "GET /api/v1/runs/{id}/left-behind": "viewer",
  "GET /api/v1/runs/{id}/condition": "viewer",
  "GET /api/v1/runs/{id}/status": "viewer",
  "GET /api/v1/references": "viewer",
  "GET /api/v1/runs:resolve": "viewer",
  "GET /api/v1/runs:listing": "viewer",
  "GET /api/v1/resources:listing": "viewer",
  "GET /api/v1/retention": "admin",
  "GET /api/v1/schedules": "viewer",
  "GET /api/v1/runs/{id}/timeline-rows": "viewer",
  "GET /api/v1/runs/{id}/timeline": "viewer",
  "GET /api/v1/runs/{id}/topology": "viewer",
  "GET /api/v1/runs/{id}/logs": "viewer",
  "GET /api/v1/runs/{id}/operations": "viewer",
  "GET /api/v1/runs/{id}/values/{digest}": "viewer",
  "POST /api/v1/runs/{id}/cancel": "operator",
  "POST /api/v1/runs/{id}/signals/{name}": "operator",
  "POST /api/v1/runs/{id}/gates/{step}": "operator",
  "POST /api/v1/runs/{id}/patch": "operator",
  "POST /api/v1/runs/{id}/redrive": "operator",
  "POST /api/v1/runs/{id}/fork": "operator",
  "POST /api/v1/runs/{id}/pause": "operator",
  "POST /api/v1/runs/{id}/resume": "operator",
  "POST /api/v1/runs/{id}/effects/{key}/settle": "operator",
  "GET /api/v1/providers": "viewer",
  "GET /api/v1/servers": "viewer",
  "GET /api/v1/overview": "viewer",
  "GET /api/v1/workers": "viewer",
  "GET /api/v1/pools": "viewer",
  "GET /api/v1/pools/{pool}": "viewer",
  "POST /api/v1/check": "author",
  "GET /api/v1/resources": "viewer",
  "POST /api/v1/resources:apply": "author",
  "GET /api/v1/resources/{kind}": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}/{name}": "viewer",
  "PUT /api/v1/resources/{kind}/{namespace}/{name}": "author",
  "DELETE /api/v1/resources/{kind}/{namespace}/{name}": "author",
  "GET /api/v1/resources/{kind}/{namespace}/{name}/versions": "viewer",
  "GET /api/v1/resources/{kind}/{namespace}/{name}/versions/{version}": "viewer",
  "POST /api/v1/impulses/{namespace}/{name}": "operator",
  "GET /api/v1/hooks": "admin",
  "GET /api/v1/hooks/{hook}/deliveries": "admin",
  "POST /api/v1/hooks/{hook}/pause": "admin",
  "POST /api/v1/hooks/{hook}/resume": "admin",
  "POST /api/v1/hooks/{hook}/retry": "admin",
  "POST /api/v1/triggers": "operator",
  "POST /api/v1/schedules:pause": "operator",
  "POST /api/v1/schedules:unpause": "operator",
  "POST /api/v1/schedules:backfill": "operator",
  "GET /api/v1/whoami": "viewer",
  "GET /api/v1/tokens": "admin",
  "POST /api/v1/tokens": "admin",
  "DELETE /api/v1/tokens/{name}": "admin",
  "GET /api/v1/audit": "viewer",
};
