// One step, whichever view it was chosen in: input, expressions, output, error, attempts, effects, visits.
import { useState, type ReactNode } from "react";
import { addressTo } from "../address";
import { mayAsk } from "../api/client";
import { eventTime, type Attempt, type Graph, type Step, type StepDetails, type Why } from "../api/shapes";
import type { Json } from "../api/types";
import { useAnswer } from "../api/use";
import { JsonView } from "../parts/JsonView";
import { Problem } from "../parts/Problem";
import { Status, StatusIcon } from "../parts/Status";
import { Lasted, Time } from "../parts/Time";
import { count, oneLine } from "../words";
import { Provenance } from "./Provenance";
import { Scratchpad } from "./Scratchpad";
import { useEvent } from "./Scrubber";
import type { Shared } from "./selection";

interface Props extends Shared {
  step: Step | undefined;
  onClose(): void;
}

export function StepPanel({ run, step, at, version, selected, onClose }: Props) {
  const path = { id: run.id, step: step?.step ?? "" };
  const details = useAnswer<"GET /api/v1/runs/{id}/steps/{step}", StepDetails>(
    step ? "GET /api/v1/runs/{id}/steps/{step}" : null,
    { path, query: { limit: 50 } },
    version,
  );
  const why = useAnswer<"GET /api/v1/runs/{id}/why", Why>(
    step && at === undefined ? "GET /api/v1/runs/{id}/why" : null,
    { path: { id: run.id }, query: { step: step?.step ?? "" } },
    version,
  );
  const event = useEvent(run.id, at);
  const shown = details.answer ? until(details.answer, event ? eventTime(event) : "") : undefined;
  return (
    <aside className="panel" aria-label="Step" data-testid="panel">
      <header className="panel-head">
        <div>
          <h2>
            <bdi>{oneLine(step?.step ?? selected, 120)}</bdi>
          </h2>
          <p>
            <Status status={step?.status} /> <span className="faint">{step?.kind}</span>
          </p>
        </div>
        <button type="button" className="quiet" aria-label="Close the panel" data-testid="close-panel" onClick={onClose}>
          ✕
        </button>
      </header>
      <Problem error={details.error} />
      {step && (
        <dl className="facts">
          {step.started_at && (
            <div>
              <dt>started</dt>
              <dd>
                <Time at={step.started_at} absolute />
              </dd>
            </div>
          )}
          {step.started_at && (
            <div>
              <dt>lasted</dt>
              <dd>
                <Lasted from={step.started_at} to={step.ended_at} />
              </dd>
            </div>
          )}
          {step.due_at && !step.ended_at && (
            <div>
              <dt>due</dt>
              <dd>
                <Time at={step.due_at} />
              </dd>
            </div>
          )}
          {step.child && (
            <div>
              <dt>child run</dt>
              <dd>
                <a href={addressTo(["runs", step.child])} data-testid="child">
                  {step.child.slice(0, 10)}
                </a>
              </dd>
            </div>
          )}
        </dl>
      )}
      {step?.note && <p>{step.note}</p>}
      {step?.error && <ErrorChain step={step} why={why.answer} />}
      {shown && (
        <>
          <Part title="Input">
            <JsonView value={shown.input ?? undefined} label={`${shown.name}-input`} run={run.id} />
          </Part>
          {shown.expressions.length > 0 && (
            <Part title="Expressions">
              <table className="table small-table" data-testid="expressions">
                <tbody>
                  {shown.expressions.map((each) => (
                    <tr key={each.place}>
                      <td className="faint">{oneLine(each.place, 60)}</td>
                      <td>
                        <code>{oneLine(each.expression, 200)}</code>
                      </td>
                      <td className="mono">{oneLine(JSON.stringify(each.value), 200)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Part>
          )}
          <Part title="Output">
            <JsonView value={shown.output ?? undefined} label={`${shown.name}-output`} run={run.id} />
          </Part>
          {shown.attempts.length > 0 && (
            <Part title={`${count(shown.attempts.length, "attempt")}${shown.next ? ", and more" : ""}`}>
              <Attempts attempts={shown.attempts} run={run.id} />
            </Part>
          )}
          {shown.effects.length > 0 && (
            <Part title="Effects">
              <ul data-testid="effects">
                {shown.effects.map((effect, index) => (
                  <li key={index}>
                    <code>{oneLine(String(effect["key"] ?? ""), 120)}</code> {String(effect["state"] ?? "")}
                  </li>
                ))}
              </ul>
            </Part>
          )}
          {shown.logs.length > 0 && (
            <Part title="Logs">
              <Logs lines={shown.logs} />
            </Part>
          )}
        </>
      )}
      <Visits run={run.id} node={selected} at={at} version={version} step={step} />
      {step && at === undefined && (
        <Part title="Why this value">
          <Provenance key={step.step} run={run.id} step={step.step} />
        </Part>
      )}
      {step && mayAsk("POST /api/v1/runs/{id}/evaluate") && (
        <Part title="Scratchpad">
          <Scratchpad run={run} step={step.step} at={at} />
        </Part>
      )}
    </aside>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="panel-part">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

/** The step as it was at an earlier moment: what came later is left out. */
function until(details: StepDetails, moment: string): StepDetails {
  if (!moment) return details;
  const limit = Date.parse(moment);
  const isLater = (time: string | null): boolean => time !== null && Date.parse(time) > limit + 1;
  const isAfter = (micros: Json | undefined): boolean => Number(micros ?? 0) / 1000 > limit + 1;
  const attempts = details.attempts
    .filter((attempt) => !isLater(attempt.started_at))
    .map((attempt) => {
      if (!isLater(attempt.ended_at)) return attempt;
      const { output: _, error: __, ...begun } = attempt;
      return { ...begun, ended_at: null, status: "open" };
    });
  const ended = attempts.filter((attempt) => attempt.output !== undefined);
  const latest = attempts.at(-1);
  return {
    ...details,
    attempts,
    input: latest?.input ?? null,
    output: ended.at(-1)?.output ?? null,
    expressions: latest ? details.expressions : [],
    effects: details.effects.filter((effect) => !isAfter(effect["claimed_at"])).map((effect) => (isAfter(effect["ended_at"]) ? begun(effect) : effect)),
    logs: details.logs.filter((line) => !isLater(String(line["at"] ?? ""))),
  };
}

/** An effect that had been claimed, and was not completed, settled or released yet. */
function begun(effect: Record<string, Json>): Record<string, Json> {
  return { key: effect["key"] ?? "", state: "performing" };
}

function ErrorChain({ step, why }: { step: Step; why: Why | undefined }) {
  const error = step.error;
  if (!error) return null;
  return (
    <section className="panel-part error" data-testid="step-error">
      <h3>Error</h3>
      <p>
        <strong>{oneLine(error.code, 200)}</strong>
        {error.message ? `: ${oneLine(error.message, 2000)}` : ""}
      </p>
      {error.item !== null && <p>item {error.item}</p>}
      {why && why.chain.length > 1 && (
        <ol className="causes">
          {why.chain.map((cause, index) => (
            <li key={index}>
              {cause.text} <span className="faint">event {cause.seq}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function Attempts({ attempts, run }: { attempts: Attempt[]; run: string }) {
  const [opened, setOpened] = useState<number>();
  return (
    <ul className="attempts" data-testid="attempts">
      {attempts.map((attempt) => (
        <li key={attempt.task}>
          <button
            type="button"
            className="attempt"
            aria-expanded={opened === attempt.task}
            onClick={() => setOpened(opened === attempt.task ? undefined : attempt.task)}
          >
            <Status status={attempt.status} /> attempt {attempt.attempt}
            {attempt.delivery > 1 ? `, delivery ${attempt.delivery}` : ""}
            <span className="faint">
              {" "}
              · {oneLine(attempt.provider, 80)} · <Time at={attempt.started_at} /> · <Lasted from={attempt.started_at} to={attempt.ended_at} />
            </span>
          </button>
          {attempt.error && (
            <p className="is-bad">
              {oneLine(attempt.error.code ?? "", 100)}: {oneLine(attempt.error.message ?? "", 500)}
            </p>
          )}
          {opened === attempt.task && (
            <>
              <JsonView value={attempt.input} label="attempt-input" run={run} open={1} />
              {attempt.output !== undefined && <JsonView value={attempt.output} label="attempt-output" run={run} open={1} />}
            </>
          )}
        </li>
      ))}
    </ul>
  );
}

function Logs({ lines }: { lines: Record<string, Json>[] }) {
  return (
    <pre className="logs" tabIndex={0} data-testid="logs">
      {lines.map((line) => oneLine(String(line["text"] ?? line["message"] ?? ""), 2000)).join("\n")}
    </pre>
  );
}

interface VisitsProps {
  run: string;
  node: string;
  at: number | undefined;
  version: number;
  step: Step | undefined;
}

/** The elements of a loop, the dispatches of a fan-out: failed ones first, by page, to be searched. */
function Visits({ run, node, at, version, step }: VisitsProps) {
  const total = step?.items?.total ?? step?.visits.total ?? 2;
  const [cursor, setCursor] = useState<string[]>([]);
  const [words, setWords] = useState("");
  const isAsked = total > 1;
  const graph = useAnswer<"GET /api/v1/runs/{id}/graph", Graph>(
    isAsked ? "GET /api/v1/runs/{id}/graph" : null,
    { path: { id: run }, query: { at } },
    version,
  );
  const found = isAsked ? target(graph.answer, node, step) : undefined;
  const { answer } = useAnswer<"GET /api/v1/runs/{id}/graph", Graph>(
    found ? "GET /api/v1/runs/{id}/graph" : null,
    { path: { id: run }, query: { at, under: found ?? "", cursor: cursor.at(-1) } },
    version,
  );
  if (!answer || !found) return null;
  const visits = answer.nodes.filter((each) => each.kind === "visit");
  if (visits.length === 0) return null;
  const shown = visits.filter((each) => each.label.toLowerCase().includes(words.toLowerCase()));
  return (
    <Part title="Visits">
      <input
        type="search"
        aria-label="Search visits"
        placeholder="Search visits"
        value={words}
        onChange={(event) => setWords(event.target.value)}
      />
      <ul className="visits" data-testid="visits">
        {shown.slice(0, 200).map((visit) => (
          <li key={visit.id}>
            <StatusIcon status={visit.status} /> {oneLine(visit.label, 60)} <span className="faint">{visit.status}</span>{" "}
            <Lasted from={visit.started_at} to={visit.ended_at} />
          </li>
        ))}
      </ul>
      <p className="faint">
        {count(shown.length, "visit")} of this page{shown.length > 200 ? ", the first 200 are shown" : ""}
        {cursor.length > 0 && (
          <button type="button" className="quiet small" onClick={() => setCursor(cursor.slice(0, -1))}>
            Before
          </button>
        )}
        {answer.next && (
          <button type="button" className="quiet small" data-testid="more-visits" onClick={() => setCursor([...cursor, answer.next ?? ""])}>
            Next {visits.length}
          </button>
        )}
      </p>
    </Part>
  );
}

/** The node whose visits are meant: the selected one, or the one inside it that is visited most. */
function target(graph: Graph | undefined, selected: string, step: Step | undefined): string | undefined {
  const ids = new Set([selected, step?.step ?? "", step ? `/${step.place.join("/")}` : "", step?.name ?? ""]);
  const own = graph?.nodes.find((node) => ids.has(node.id));
  if (!graph || !own) return undefined;
  const inside = graph.nodes.filter((node) => node.parent === own.id && (node.runs ?? 0) > 1);
  const most = inside.sort((one, other) => (other.runs ?? 0) - (one.runs ?? 0))[0];
  return most?.id ?? ((own.runs ?? 0) > 1 ? own.id : undefined);
}
