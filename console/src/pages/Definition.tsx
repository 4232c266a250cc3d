// One entry of the catalog: its document and problems, its graph, its versions, its runs, its schedule; and a start of it.
import { lazy, Suspense, useMemo, useState } from "react";
import { addressTo, change, usePlace } from "../address";
import { mayAsk } from "../api/client";
import type { Problem as DocumentProblem } from "../api/shapes";
import type { Json } from "../api/types";
import { useAnswer, useWide } from "../api/use";
import { KINDS, type Resource } from "../definitions/kinds";
import { lineOfStep, listedOf, stepsOf, withExample, type Checked, type Finding, type Listed } from "../definitions/checked";
import { Forecast } from "../definitions/Forecast";
import { Impact } from "../definitions/Impact";
import { Problems } from "../definitions/Problems";
import { RunDialog } from "../definitions/RunDialog";
import { Versions } from "../definitions/Versions";
import { textOf } from "../definitions/text";
import { Problem } from "../parts/Problem";
import { Status } from "../parts/Status";
import { Tabs } from "../parts/Tabs";
import { Lasted, Time } from "../parts/Time";
import { oneLine } from "../words";

const Editor = lazy(() => import("../editor/Editor"));
const GraphCanvas = lazy(() => import("../graph/GraphCanvas"));

const VIEWS = ["document", "graph", "versions", "runs", "impact", "forecast", "schedule"] as const;
const TITLES: Partial<Record<(typeof VIEWS)[number], string>> = { impact: "Open runs" };
const OF_EVERY_KIND = ["document", "versions", "schedule"];

export default function Definition({ kind, namespace, name }: { kind: string; namespace: string; name: string }) {
  const { query } = usePlace();
  const view = VIEWS.find((each) => each === query.get("view")) ?? "document";
  const [isStarting, setStarting] = useState(false);
  const path = { kind, namespace, name };
  const about = KINDS.find((each) => each.plural === kind);
  const { answer, error } = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}", Resource>(
    "GET /api/v1/resources/{kind}/{namespace}/{name}",
    { path },
  );
  const source = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}/source", Checked & { text: string }>(
    about?.canRun ? "GET /api/v1/resources/{kind}/{namespace}/{name}/source" : null,
    { path },
  );
  const text = useMemo(() => source.answer?.text ?? (answer ? textOf(answer as unknown as Json) : ""), [answer, source.answer]);
  const problems = useMemo<Listed[]>(() => (source.answer ? listedOf(source.answer) : problemsOf(answer)), [answer, source.answer]);
  const [example, setExample] = useState<Finding>();
  const [line, setLine] = useState<{ number: number }>();
  const isWide = useWide(1200);
  if (error) return <Problem error={error} />;
  if (!answer || (about?.canRun && !source.answer && !source.error)) return <p className="loading">…</p>;
  const drawn = source.answer?.graph ?? undefined;
  const graph = drawn && example ? withExample(drawn, example) : drawn;
  const showLine = (number: number | undefined): void => {
    if (!number) return;
    setLine({ number });
    change({ view: null });
  };
  const showExample = (finding: Finding | undefined): void => {
    setExample(finding);
    change({ view: "graph" });
  };
  const views = VIEWS.filter((each) => (about?.canRun || OF_EVERY_KIND.includes(each)) && (each !== "impact" || mayAsk("POST /api/v1/impact")));
  return (
    <div className="page tall">
      <div className="page-head">
        <h1>
          <bdi>{oneLine(name, 120)}</bdi>
        </h1>
        <span className="faint">
          {answer.kind} in {namespace}, version {answer.metadata.generation ?? 1}
        </span>
        <span className="right">
          {mayAsk("POST /api/v1/check") && <a href={addressTo(["write"], { kind, namespace, name })}>Edit</a>}
        </span>
        {about?.canRun && mayAsk("POST /api/v1/runs") && (
          <button type="button" className="primary" data-testid="start" onClick={() => setStarting(true)}>
            Run…
          </button>
        )}
      </div>
      <Tabs
        label="Views of the definition"
        tabs={views.map((each) => ({ id: each, title: TITLES[each] ?? each[0]?.toUpperCase() + each.slice(1) }))}
        chosen={view}
        onChoose={(each) => change({ view: each === "document" ? null : each })}
      />
      <section className="page-view" aria-label={view}>
        <Suspense fallback={<p className="loading">…</p>}>
          {view === "document" && (
            <div className={isWide && graph ? "document-pair" : "document-side"}>
              <div className="document-side">
                <Problems problems={problems} onLine={(number) => setLine({ number })} onExample={showExample} />
                <Editor key={text.length} text={text} label={`Document of ${name}`} problems={problems} line={line} />
              </div>
              {isWide && graph && (
                <GraphCanvas graph={graph} label={`Graph of ${name}`} onSelect={(node) => setLine({ number: lineOfStep(text, node.label) ?? 1 })} />
              )}
            </div>
          )}
          {view === "graph" && (
            <div className="document-side">
              <Problems problems={problems.filter((each) => each.finding)} shown={example} onLine={showLine} onExample={setExample} />
              <Problem error={source.error} />
              {graph ? (
                <GraphCanvas graph={graph} label={`Graph of ${name}`} onSelect={(node) => showLine(lineOfStep(text, node.label))} />
              ) : (
                <p className="empty">A document with problems has no graph.</p>
              )}
            </div>
          )}
          {view === "versions" && <Versions path={path} />}
          {view === "runs" && <RunsOf name={name} namespace={namespace} language={about?.language ?? ""} />}
          {view === "impact" && (
            <Impact text={text} name={nameOfRuns(name, about?.language)} namespace={namespace} steps={stepsOf(drawn)} isValid={source.answer?.valid ?? false} />
          )}
          {view === "forecast" && <Forecast name={nameOfRuns(name, about?.language)} namespace={namespace} language={about?.language ?? ""} />}
          {view === "schedule" && <Schedule path={path} />}
        </Suspense>
      </section>
      {isStarting && <RunDialog {...path} language={about?.language ?? ""} onClose={() => setStarting(false)} />}
    </div>
  );
}

function problemsOf(resource: Resource | undefined): DocumentProblem[] {
  const of = (messages: string[] | undefined, severity: string): DocumentProblem[] =>
    (messages ?? []).map((message) => ({ code: "", message, severity }));
  return [...of(resource?.status?.validationErrors, "error"), ...of(resource?.status?.validationWarnings, "warning")];
}

interface PathProps {
  path: { kind: string; namespace: string; name: string };
}

/** A Playbook is kept by its path, and its runs have its name. */
function nameOfRuns(name: string, language: string | undefined): string {
  return language === "playbook" ? (name.split("/").at(-1) ?? name) : name;
}

function RunsOf({ name, namespace, language }: { name: string; namespace: string; language: string }) {
  const { answer, error } = useAnswer("GET /api/v1/runs", { query: { name: nameOfRuns(name, language), namespace, language, limit: 50 } });
  return (
    <div className="scroll">
      <Problem error={error} />
      <table className="table">
        <tbody>
          {answer?.items.map((run) => (
            <tr key={run.id}>
              <td>
                <Status status={run.status} />
              </td>
              <td>
                <a href={addressTo(["runs", run.id])}>{run.id.slice(0, 12)}</a>
              </td>
              <td>
                <Time at={run.started_at} />
              </td>
              <td>
                <Lasted from={run.started_at} to={run.ended_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {answer?.items.length === 0 && <p className="empty">It has not been run yet.</p>}
    </div>
  );
}

function Schedule({ path }: PathProps) {
  const { answer, error } = useAnswer<
    "GET /api/v1/resources/{kind}/{namespace}/{name}/schedule",
    { items: { name?: string; cron?: string; next: { at: string }[] }[] }
  >("GET /api/v1/resources/{kind}/{namespace}/{name}/schedule", { path });
  if (error) return <Problem error={error} />;
  if (answer?.items.length === 0) return <p className="empty">Nothing starts it by the clock.</p>;
  return (
    <div className="scroll padded">
      {answer?.items.map((item, index) => (
        <section key={index}>
          <h3>
            {item.name} <code>{item.cron}</code>
          </h3>
          <ol>
            {item.next.slice(0, 10).map((firing, at) => (
              <li key={at}>
                <Time at={firing.at ?? String(firing)} absolute />
              </li>
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}
