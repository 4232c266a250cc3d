// A streaming Story while it lives: what flows along its edges, what waits, what was dropped, the latest packets.
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import "../styles/streams.css";
import { useIsLost } from "../api/connection";
import type { Graph } from "../api/shapes";
import type { Json } from "../api/types";
import { useAnswer, useTicks } from "../api/use";
import GraphCanvas from "../graph/GraphCanvas";
import { JsonView } from "../parts/JsonView";
import { Problem } from "../parts/Problem";
import { Time } from "../parts/Time";
import { nameOfNode, nodeOf, type Shared } from "../run/selection";
import { clockTime, lasting, oneLine } from "../words";
import { droppedOf, ratesOf, rateText, withFlow, type Rates, type StreamStep, type Topology } from "./topology";

const Chart = lazy(() => import("../parts/Chart"));
const EVERY = 1_000; // milliseconds: figures are written at most once a second
const PACKETS = 50;
const SAMPLES = 300;

export default function StreamsView({ run, steps, version, selected, onSelect }: Shared) {
  const isOpen = !run.ended_at;
  const ticks = useTicks(EVERY);
  const { answer, error } = useAnswer<"GET /api/v1/runs/{id}/topology", Topology>(
    "GET /api/v1/runs/{id}/topology",
    { path: { id: run.id }, query: { packets: PACKETS } },
    isOpen ? `${version} ${ticks}` : version,
  );
  const graph = useAnswer<"GET /api/v1/runs/{id}/graph", Graph>("GET /api/v1/runs/{id}/graph", { path: { id: run.id } }, version);
  const looks = useLooks(answer);
  const rates = useMemo(() => (answer && isOpen ? ratesOf(looks.at(-2), answer) : null), [answer, looks, isOpen]);
  const drawn = useMemo(() => (graph.answer && answer ? withFlow(graph.answer, answer, rates) : undefined), [graph.answer, answer, rates]);
  const isLost = useIsLost();
  if (error ?? graph.error) return <Problem error={error ?? graph.error} />;
  if (!answer || !drawn) return <p className="loading">…</p>;
  if (answer.steps.length === 0) return <p className="empty">This run has no streams.</p>;
  return (
    <div className="streams scroll" data-testid="streams">
      <p className="faint padded" data-testid="streams-at">
        {isOpen && !isLost ? "live, " : ""}as of <Time at={answer.at} absolute />
      </p>
      <div className="streams-graph">
        <GraphCanvas
          graph={drawn}
          label={`Streams of ${run.name.slice(0, 80)}`}
          selected={nodeOf(selected, drawn.nodes, steps)?.id}
          onSelect={(node) => onSelect(nameOfNode(node.id, steps))}
        />
      </div>
      <Figures topology={answer} rates={rates} selected={selected} onSelect={onSelect} />
      {isOpen && <Throughput looks={looks} />}
      <Packets packets={answer.packets} run={run.id} />
    </div>
  );
}

/** The looks so far; a look at the same moment is the same. */
function useLooks(answer: Topology | undefined): Topology[] {
  const [looks, setLooks] = useState<Topology[]>([]);
  useEffect(() => {
    if (answer) setLooks((before) => (before.at(-1)?.at === answer.at ? before : [...before, answer].slice(-SAMPLES)));
  }, [answer]);
  return looks;
}

interface FiguresProps {
  topology: Topology;
  rates: Rates | null;
  selected: string;
  onSelect(step: string): void;
}

function Figures({ topology, rates, selected, onSelect }: FiguresProps) {
  return (
    <div className="wide" tabIndex={0} role="region" aria-label="Figures of each step">
      <table className="table" data-testid="stream-figures">
        <thead>
          <tr>
            {["Step", "State", "In", "Out", "Received", "Published", "Buffer", "Not acknowledged", "Lag", "Last packet", "Dropped", "Errors"].map((title) => (
              <th scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {topology.steps.map((step) => (
            <tr key={step.step} className={step.step === selected ? "is-selected" : ""} data-testid="stream-step" data-step={step.step}>
              <td>
                <button type="button" className="quiet small" onClick={() => onSelect(step.step)}>
                  <bdi>{oneLine(step.step, 80)}</bdi>
                </button>
              </td>
              <td>{stateOf(step)}</td>
              <td className="number">{rateText(rates?.into.get(step.step))}</td>
              <td className="number">{rateText(rates?.out.get(step.step))}</td>
              <td className="number">{step.received.toLocaleString("en")}</td>
              <td className="number">{step.published.toLocaleString("en")}</td>
              <td>
                <Fill step={step} />
              </td>
              <td className="number">{step.unacked.toLocaleString("en")}</td>
              <td className="number">{step.lag_seconds === null ? "" : lasting(step.lag_seconds * 1000)}</td>
              <td>{step.last_packet_at && <Time at={step.last_packet_at} />}</td>
              <td className="number">{droppedText(step)}</td>
              <td className="number">{step.errors.toLocaleString("en")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function stateOf(step: StreamStep): string {
  const who = step.worker ? `, worker ${step.worker}` : step.awaits ? `, ${step.awaits}` : "";
  return oneLine(`${step.state || step.phase}${step.paused ? ", asks to pause" : ""}${who}`, 120);
}

function droppedText(step: StreamStep): string {
  if (droppedOf(step) === 0) return "0";
  return Object.entries(step.dropped)
    .map(([reason, count]) => `${count.toLocaleString("en")} ${oneLine(reason.replaceAll("_", " "), 40)}`)
    .join(", ");
}

function Fill({ step }: { step: StreamStep }) {
  return (
    <span className="fill">
      <meter min={0} max={100} high={90} value={step.fill} aria-label={`Buffer of ${step.step}`} />
      <span className="number">
        {step.fill} % · {step.waiting.toLocaleString("en")}
      </span>
    </span>
  );
}

const COLORS = ["--accent", "--good", "--waiting", "--paused", "--late", "--partial"];

/** What each step was given, over time, since one looks. */
function Throughput({ looks }: { looks: Topology[] }) {
  const { times, series } = useMemo(() => {
    const rates = looks.slice(1).map((look, at) => ratesOf(looks[at], look));
    const names = (looks.at(-1)?.steps ?? []).map((step) => step.step).slice(0, COLORS.length);
    return {
      times: looks.slice(1).map((look) => Date.parse(look.at) / 1000),
      series: names.map((name, index) => ({
        label: name,
        color: COLORS[index] ?? "--faint",
        values: rates.map((rate) => (rate ? Math.max(rate.into.get(name) ?? 0, rate.out.get(name) ?? 0) : null)),
      })),
    };
  }, [looks]);
  if (times.length < 2) return <div className="chart-space" />;
  return (
    <figure className="padded" data-testid="stream-chart">
      <figcaption className="faint">
        messages per second, since you look:{" "}
        {series.map((each) => (
          <span key={each.label} className="key">
            <span className="swatch" style={{ background: `var(${each.color})` }} /> {oneLine(each.label, 40)}
          </span>
        ))}
      </figcaption>
      <Suspense fallback={<div className="chart-space" />}>
        <Chart times={times} series={series} height={120} label="Messages per second over time" />
      </Suspense>
    </figure>
  );
}

function Packets({ packets, run }: { packets: Record<string, Json>[]; run: string }) {
  return (
    <section className="padded" aria-label="Latest packets">
      <h3>Latest packets</h3>
      {packets.length === 0 ? (
        <p className="faint">
          None is recorded. A transport with <code>recording: {"{mode: payload}"}</code> keeps packets, where the server has a storage folder.
        </p>
      ) : (
        <ul className="packets" data-testid="packets">
          {packets.map((packet) => (
            <li key={`${String(packet["step"])} ${String(packet["messageId"])}`}>
              <details>
                <summary>
                  <span className="faint number">{momentOf(packet)}</span> <bdi>{oneLine(String(packet["step"] ?? ""), 60)}</bdi>{" "}
                  <span className="faint">{oneLine(String(packet["kind"] ?? "data"), 40)}</span>{" "}
                  <code>{oneLine(JSON.stringify(packet["payload"] ?? packet["metadata"] ?? null), 160)}</code>
                </summary>
                <JsonView value={packet} label="packet" run={run} />
              </details>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function momentOf(packet: Record<string, Json>): string {
  const at = Number(packet["timestamp"]);
  return at > 0 && at < 8e15 ? clockTime(new Date(at).toISOString()) : "";
}
