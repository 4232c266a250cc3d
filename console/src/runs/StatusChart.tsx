// How many runs were started when, by the status that they have now.
import { useMemo } from "react";
import { useAnswer } from "../api/use";
import { Status } from "../parts/Status";
import Chart, { type Series } from "../parts/Chart";
import { oneLine } from "../words";
import type { RunFilters } from "./filters";

const COLORS: Record<string, string> = {
  succeeded: "--good",
  partial: "--partial",
  cancelled: "--stopped",
  paused: "--paused",
  waiting: "--waiting",
  running: "--running",
  timed_out: "--late",
  failed: "--bad",
};

interface Stats {
  items: { at: string; counts: Record<string, number> }[];
  totals: Record<string, number>;
  every: number;
  from: string;
  to: string;
}

export default function StatusChart({ filters, version }: { filters: RunFilters; version: number }) {
  const query = { by: "status", every: "1h", ...(filters.namespace ? { namespace: filters.namespace } : {}) };
  const { answer } = useAnswer<"GET /api/v1/stats", Stats>("GET /api/v1/stats", { query }, version);
  const { times, series } = useMemo(() => columns(answer), [answer]);
  if (!answer) return <div className="chart-space" />;
  const words = Object.entries(answer.totals).map(([status, number]) => `${number} ${status}`);
  return (
    <section className="status-chart" aria-label="Runs of the last day by status">
      <Chart times={times} series={series} height={84} bars label={`Runs of the last day: ${words.join(", ") || "none"}`} />
      <div className="legend-side">
        <p className="faint">started in the last day{filters.namespace ? ` in ${oneLine(filters.namespace, 40)}` : ""}</p>
        <ul className="legend">
          {Object.keys(COLORS)
            .filter((status) => answer.totals[status])
            .reverse()
            .map((status) => (
              <li key={status}>
                <Status status={status} /> <span className="number">{answer.totals[status]?.toLocaleString("en")}</span>
              </li>
            ))}
        </ul>
      </div>
    </section>
  );
}

/** One column for every hour, also for those without a run. */
function columns(stats: Stats | undefined): { times: number[]; series: Series[] } {
  if (!stats) return { times: [], series: [] };
  const step = stats.every;
  const begin = Math.floor(Date.parse(stats.from) / 1000 / step) * step;
  const end = Math.floor(Date.parse(stats.to) / 1000 / step) * step;
  const times = Array.from({ length: Math.min(1000, Math.floor((end - begin) / step) + 1) }, (_, at) => begin + at * step);
  const counts = new Map(stats.items.map((item) => [Math.floor(Date.parse(item.at) / 1000), item.counts]));
  const series = Object.entries(COLORS)
    .filter(([status]) => stats.totals[status])
    .map(([status, color]) => ({
      label: status,
      color,
      values: times.map((time) => counts.get(time)?.[status] ?? 0),
    }));
  return { times, series };
}
