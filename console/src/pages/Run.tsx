// One run: what it does, why it does not go on, what went in and came out, what can be done about it.
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { change, usePlace } from "../address";
import { useAnswer } from "../api/use";
import type { Step } from "../api/shapes";
import { useKeys } from "../keys";
import { Problem } from "../parts/Problem";
import { Tabs } from "../parts/Tabs";
import { Actions } from "../run/Actions";
import { DataView } from "../run/DataView";
import { EventsView } from "../run/EventsView";
import { Header } from "../run/Header";
import { Operations } from "../run/Operations";
import { Scrubber } from "../run/Scrubber";
import { StepPanel } from "../run/StepPanel";
import { TimelineView } from "../run/TimelineView";
import { WhyLine } from "../run/WhyLine";
import { useRunEvents } from "../run/live";
import { stepOf } from "../run/selection";

const GraphView = lazy(() => import("../run/GraphView"));
const StreamsView = lazy(() => import("../streams/StreamsView"));

const VIEWS = ["graph", "timeline", "events", "data", "streams", "operations"] as const;
type View = (typeof VIEWS)[number];

export default function Run({ id }: { id: string }) {
  const { query } = usePlace();
  const view: View = VIEWS.find((each) => each === query.get("view")) ?? "graph";
  const at = Number(query.get("at")) || undefined;
  const selected = query.get("step") ?? "";
  const [acts, setActs] = useState(0); // what this page has sent
  const live = useRunEvents(id, acts);
  const { version } = live;

  const path = { id };
  const run = useAnswer("GET /api/v1/runs/{id}", { path }, version);
  const past = useAnswer(at === undefined ? null : "GET /api/v1/runs/{id}", { path, query: { at } }, version);
  const steps = useAnswer<"GET /api/v1/runs/{id}/steps", { items: Step[] }>(
    "GET /api/v1/runs/{id}/steps",
    { path, query: { at } },
    version,
  );
  const list = useMemo(() => steps.answer?.items ?? [], [steps.answer]);
  const step = stepOf(selected, list);

  const select = (chosen: string): void => change({ step: chosen === selected ? null : chosen });
  const move = (by: number): void => {
    const index = list.findIndex((each) => each.step === step?.step);
    const next = list[Math.max(0, Math.min(list.length - 1, index + by))];
    if (next) change({ step: next.step }, { replace: true });
  };
  useKeys([
    { keys: "j", does: "next step", act: () => move(1) },
    { keys: "k", does: "previous step", act: () => move(-1) },
    { keys: "1", does: "graph", act: () => change({ view: null }) },
    { keys: "2", does: "timeline", act: () => change({ view: "timeline" }) },
    { keys: "3", does: "events", act: () => change({ view: "events" }) },
    { keys: "4", does: "data", act: () => change({ view: "data" }) },
    ...(run.answer?.has_streams ? [{ keys: "5", does: "streams", act: () => change({ view: "streams" }) }] : []),
    { keys: "[", does: "one event back", act: () => change({ at: Math.max(1, (at ?? live.last) - 1) }, { replace: true }) },
    {
      keys: "]",
      does: "one event forward",
      act: () => change({ at: at && at < live.last ? at + 1 : null }, { replace: true }),
    },
    { keys: "Escape", does: "close the panel", act: () => change({ step: null }) },
  ]);

  useEffect(() => {
    if (run.answer) document.title = `${run.answer.name.slice(0, 60)} · Perdure`;
  }, [run.answer]);

  if (run.error && !run.answer) return <Problem error={run.error} />;
  if (!run.answer) return <p className="loading">…</p>;
  const facts = run.answer;
  const onActed = (): void => setActs((count) => count + 1);
  const shared = { run: facts, steps: list, at, version, selected, onSelect: select };
  const tabs = VIEWS.filter((each) => each !== "streams" || facts.has_streams || view === each).map((each) => ({
    id: each,
    title: each[0]?.toUpperCase() + each.slice(1),
  }));
  return (
    <div className={selected ? "run has-panel" : "run"}>
      <Header run={(at !== undefined && past.answer) || facts} at={at} isLive={live.isLive} forkedFrom={live.forkedFrom}>
        <Actions run={facts} steps={list} step={step?.step ?? ""} at={at} onActed={onActed} />
      </Header>
      <WhyLine run={facts} steps={list} at={at} version={version} onActed={onActed} />
      <Scrubber run={facts} last={live.last} at={at} />
      <Tabs label="Views of the run" tabs={tabs} chosen={view} onChoose={(each) => change({ view: each === "graph" ? null : each })} />
      <div className="run-body">
        <section className="run-view" aria-label={view} data-testid={`view-${view}`}>
          <Suspense fallback={<p className="loading">…</p>}>
            {view === "graph" && <GraphView {...shared} />}
            {view === "timeline" && <TimelineView {...shared} />}
            {view === "events" && <EventsView {...shared} last={live.last} />}
            {view === "data" && <DataView {...shared} />}
            {view === "streams" && <StreamsView {...shared} />}
            {view === "operations" && <Operations id={id} version={version} />}
          </Suspense>
        </section>
        {selected && <StepPanel {...shared} step={step} onClose={() => change({ step: null })} />}
      </div>
    </div>
  );
}
