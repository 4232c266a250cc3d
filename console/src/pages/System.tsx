// The system: who executes runs, what waits for whom, how fast it goes, who may do what, who did what.
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { askText, mayAsk } from "../api/client";
import type { Json, Routes } from "../api/types";
import { useAnswer, useRead, useTicks } from "../api/use";
import { Section, Table } from "../system/Table";
import { Tokens } from "../system/Tokens";
import { Problem } from "../parts/Problem";
import type { Series } from "../parts/Chart";
import type { RunFilters } from "../runs/filters";
import { lasting, size } from "../words";

const Chart = lazy(() => import("../parts/Chart"));
const StatusChart = lazy(() => import("../runs/StatusChart"));
const EVERY = 3_000; // milliseconds
const HISTORY_EVERY = 20; // ticks

const NO_FILTERS: RunFilters = {};

type Rows = { items: Record<string, Json>[] };

export default function System() {
  const ticks = useTicks(EVERY);
  return (
    <div className="page system">
      <div className="page-head">
        <h1>System</h1>
      </div>
      <Figures ticks={ticks} />
      <div className="cards">
        <Card title="Servers and partitions" route="GET /api/v1/servers" ticks={ticks} empty="No server has told of itself." />
        <Card title="Pools" route="GET /api/v1/pools" ticks={ticks} empty="No task goes to a worker elsewhere." />
        <Card title="Workers elsewhere" route="GET /api/v1/workers" ticks={ticks} empty="No worker is connected." />
        <Schedules />
        {mayAsk("GET /api/v1/retention") && (
          <Card title="Retention" route="GET /api/v1/retention" ticks={0} empty="Ended runs are kept until somebody removes them, or their document says how long." />
        )}
        {mayAsk("GET /api/v1/tokens") && <Tokens />}
        {mayAsk("GET /api/v1/tokens") && <Audit />}
        <Card title="Providers" route="GET /api/v1/providers" ticks={0} empty="" columns={["name", "description", "mode"]} />
      </div>
    </div>
  );
}

interface CardProps {
  title: string;
  route: keyof Routes;
  ticks: number;
  empty: string;
  columns?: string[];
}

function Card({ title, route, ticks, empty, columns }: CardProps) {
  const { answer, error } = useAnswer<typeof route, Rows>(route, {}, ticks);
  return (
    <Section title={title}>
      <Problem error={error} />
      {answer && <Table rows={answer.items} empty={empty} label={title} columns={columns} />}
    </Section>
  );
}

function Schedules() {
  const { answer, error } = useAnswer<"GET /api/v1/schedules", Record<string, Json>[]>("GET /api/v1/schedules");
  const rows = useMemo(() => (Array.isArray(answer) ? answer.map((row) => (typeof row["schedule"] === "object" ? { ...row } : row)) : []), [answer]);
  return (
    <Section title="Schedules">
      <Problem error={error} />
      {answer && <Table rows={rows} empty="Nothing is started by the clock." label="Schedules" />}
    </Section>
  );
}

function Audit() {
  const [cursor, setCursor] = useState<string>();
  const { answer, error } = useAnswer<"GET /api/v1/audit", Rows & { next?: string }>("GET /api/v1/audit", { query: { limit: 50, cursor } });
  const rows = (answer?.items ?? []).map(({ at, who, verb, object, outcome, from }) => ({ at, who, verb, object, outcome, from }));
  return (
    <Section title="Audit log">
      <Problem error={error} />
      <Table rows={rows as Record<string, Json>[]} empty="Nothing was changed yet." label="Audit log" columns={["at", "who", "verb", "object", "outcome", "from"]} />
      {answer?.next && (
        <button type="button" className="small" onClick={() => setCursor(answer.next)}>
          Earlier
        </button>
      )}
    </Section>
  );
}

interface Sample {
  at: number;
  started: number;
  ended: number;
  requests: number;
  requestSeconds: number;
  tasks: number;
}

/** Figures of the server, and how they change while one looks. */
function Figures({ ticks }: { ticks: number }) {
  const { answer, error } = useRead("metrics", () => askText("/metrics"), ticks);
  const [samples, setSamples] = useState<Sample[]>([]);
  const figures = useMemo(() => read(answer ?? ""), [answer]);
  useEffect(() => {
    if (!answer) return;
    const sample: Sample = {
      at: Date.now() / 1000,
      started: sum(figures, "perdure_runs_started_total"),
      ended: sum(figures, "perdure_runs_ended_total"),
      tasks: sum(figures, "perdure_tasks_ended_total"),
      requests: sum(figures, "perdure_http_request_seconds_count"),
      requestSeconds: sum(figures, "perdure_http_request_seconds_sum"),
    };
    setSamples((before) => [...before, sample].slice(-200));
  }, [answer, figures]);
  const { times, rates, delays } = useMemo(() => perSecond(samples), [samples]);
  if (error) return <p className="faint">Figures need a token for all namespaces.</p>;
  if (!answer) return <p className="loading">…</p>;
  const facts: [string, string][] = [
    ["open runs", String(sum(figures, 'perdure_runs{status="running"}') + sum(figures, 'perdure_runs{status="waiting"}'))],
    ["tasks queued", String(sum(figures, "perdure_tasks_queued"))],
    ["tasks leased", String(sum(figures, "perdure_tasks_leased"))],
    ["messages waiting", String(sum(figures, "perdure_messages"))],
    ["oldest message", lasting(sum(figures, "perdure_message_oldest_seconds") * 1000)],
    ["store", size(sum(figures, "perdure_store_bytes"))],
    ["feed lag", lasting(sum(figures, "perdure_feed_lag_seconds") * 1000)],
  ];
  return (
    <section className="card" aria-label="Figures" data-testid="figures">
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="number">{value}</dd>
          </div>
        ))}
      </dl>
      <Suspense fallback={<div className="chart-space" />}>
        <div className="charts">
          <figure>
            <figcaption className="faint">runs started per hour, by their status now</figcaption>
            <StatusChart filters={NO_FILTERS} version={Math.floor(ticks / HISTORY_EVERY)} />
          </figure>
          <figure>
            <figcaption className="faint">
              ended per second, since you look: <Key series={rates} />
            </figcaption>
            <Recent times={times} series={rates} label="Throughput since you look" />
          </figure>
          <figure>
            <figcaption className="faint">milliseconds per request, since you look</figcaption>
            <Recent times={times} series={delays} label="Latency since you look" />
          </figure>
        </div>
      </Suspense>
    </section>
  );
}

/** What the server does not keep: it begins when two looks can be compared. */
function Recent({ times, series, label }: { times: number[]; series: Series[]; label: string }) {
  if (times.length < 2) return <p className="chart-wait faint">measured while you look</p>;
  return <Chart times={times} series={series} height={84} label={label} />;
}

function Key({ series }: { series: Series[] }) {
  return series.map(({ label, color }) => (
    <span className="key" key={label}>
      <span className="swatch" style={{ background: `var(${color})` }} /> {label}
    </span>
  ));
}

function read(text: string): Map<string, number> {
  const figures = new Map<string, number>();
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && !line.startsWith("#")) figures.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return figures;
}

function sum(figures: Map<string, number>, name: string): number {
  let total = 0;
  for (const [key, value] of figures) if (key === name || key.startsWith(`${name}{`)) total += value;
  return total;
}

function perSecond(samples: Sample[]) {
  const pairs = samples.slice(1).map((sample, at) => [samples[at] as Sample, sample] as const);
  const rate = (name: keyof Sample) => pairs.map(([before, now]) => (now[name] - before[name]) / Math.max(0.001, now.at - before.at));
  return {
    times: pairs.map(([, now]) => now.at),
    rates: [
      { label: "runs", color: "--good", values: rate("ended") },
      { label: "tasks", color: "--accent", values: rate("tasks") },
    ],
    delays: [
      {
        label: "requests",
        color: "--waiting",
        values: pairs.map(([before, now]) => (1000 * (now.requestSeconds - before.requestSeconds)) / Math.max(1, now.requests - before.requests)),
      },
    ],
  };
}
