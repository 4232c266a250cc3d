// Two runs beside each other: where their histories part, which steps differ, what came in and out.
import { useMemo } from "react";
import { addressTo, change, usePlace } from "../address";
import { eventName, eventStep, type RunEvent, type Step, type StepDetails } from "../api/shapes";
import type { Json, RunAnswer } from "../api/types";
import { useAnswer } from "../api/use";
import { Difference } from "../parts/Difference";
import { JsonView } from "../parts/JsonView";
import { Problem } from "../parts/Problem";
import { Status } from "../parts/Status";
import { Lasted, Time } from "../parts/Time";
import { oneLine } from "../words";

export default function Compare() {
  const { query } = usePlace();
  const ids = [query.get("a") ?? "", query.get("b") ?? ""] as const;
  return (
    <div className="page">
      <div className="page-head">
        <h1>Compare</h1>
        {(["a", "b"] as const).map((side, at) => (
          <input
            key={`${side} ${ids[at]}`}
            className="mono run-id"
            aria-label={at ? "The other run" : "One run"}
            data-testid={`compare-${side}`}
            placeholder="id of a run"
            defaultValue={ids[at]}
            onBlur={(event) => change({ [side]: event.target.value.trim() })}
            onKeyDown={(event) => event.key === "Enter" && change({ [side]: event.currentTarget.value.trim() })}
          />
        ))}
      </div>
      {ids[0] && ids[1] ? (
        <Pair one={ids[0]} other={ids[1]} />
      ) : ids[0] ? (
        <Candidates run={ids[0]} />
      ) : (
        <p className="empty">Name two runs by their ids, or begin with “Compare” on the page of a run.</p>
      )}
    </div>
  );
}

/** Other runs of the same definition, the latest first. */
function Candidates({ run: id }: { run: string }) {
  const { answer: run, error } = useAnswer("GET /api/v1/runs/{id}", { path: { id } });
  const query = run && { name: run.name, language: run.language, namespace: run.namespace, limit: 51 };
  const { answer } = useAnswer(query ? "GET /api/v1/runs" : null, { query });
  const others = answer?.items.filter((each) => each.id !== id);
  if (error) return <Problem error={error} />;
  if (!others) return <p className="loading">…</p>;
  if (others.length === 0) return <p className="empty">No other run has this name: give the id of one.</p>;
  return (
    <>
      <p className="parting">With which run?</p>
      <table className="table framed" data-testid="candidates">
        <thead>
          <tr>
            <th scope="col">Run</th>
            <th scope="col">Status</th>
            <th scope="col">Started</th>
            <th scope="col">Lasted</th>
          </tr>
        </thead>
        <tbody>
          {others.map((each) => (
            <tr key={each.id}>
              <td>
                <a className="mono" href={addressTo(["compare"], { a: id, b: each.id })}>
                  {each.id}
                </a>
              </td>
              <td>
                <Status status={each.status} />
              </td>
              <td>
                <Time at={each.started_at} />
              </td>
              <td>
                <Lasted from={each.started_at} to={each.ended_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function useRun(id: string): { run: RunAnswer | undefined; steps: Step[]; error: Error | undefined } {
  const run = useAnswer("GET /api/v1/runs/{id}", { path: { id } });
  const steps = useAnswer<"GET /api/v1/runs/{id}/steps", { items: Step[] }>("GET /api/v1/runs/{id}/steps", { path: { id } });
  return { run: run.answer, steps: steps.answer?.items ?? [], error: run.error };
}

function Pair({ one, other }: { one: string; other: string }) {
  const { query } = usePlace();
  const step = query.get("step") ?? "";
  const [left, right] = [useRun(one), useRun(other)];
  const compared = useAnswer<"GET /api/v1/runs/{id}/diff", Compared>("GET /api/v1/runs/{id}/diff", { path: { id: one }, query: { other } });
  const rows = useMemo(() => sideBySide(left.steps, right.steps), [left.steps, right.steps]);
  if (left.error || right.error) return <Problem error={left.error ?? right.error} />;
  return (
    <>
      {compared.answer ? <PartingOf compared={compared.answer} /> : !compared.error && <p className="loading">…</p>}
      <Problem error={compared.error} />
      <table className="table framed compared" data-testid="compared">
        <thead>
          <tr>
            <th scope="col">Step</th>
            {[left, right].map((side, at) => (
              <th scope="col" key={at}>
                {side.run && (
                  <a href={addressTo(["runs", side.run.id])}>
                    {oneLine(side.run.name, 60)} <span className="mono">{side.run.id.slice(0, 12)}</span>
                  </a>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, 500).map((row) => (
            <tr key={row.step} className={row.isSame ? "" : "is-other"}>
              <td>
                <button type="button" className="quiet small" aria-expanded={row.step === step} data-testid="compare-step" onClick={() => change({ step: row.step === step ? null : row.step })}>
                  {row.isSame ? "" : "≠ "}
                  {oneLine(row.step, 100)}
                </button>
              </td>
              <td>{row.one ? <Status status={row.one.status} /> : <span className="faint">not there</span>}</td>
              <td>{row.other ? <Status status={row.other.status} /> : <span className="faint">not there</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {step && <Values one={one} other={other} step={step} />}
    </>
  );
}

interface Row {
  step: string;
  one?: Step;
  other?: Step;
  isSame: boolean;
}

function sideBySide(left: Step[], right: Step[]): Row[] {
  const others = new Map(right.map((step) => [step.step, step]));
  const rows: Row[] = left.map((one) => {
    const other = others.get(one.step);
    others.delete(one.step);
    return { step: one.step, one, other, isSame: one.status === other?.status && one.visits.total === other.visits.total };
  });
  return [...rows, ...[...others.values()].map((other) => ({ step: other.step, other, isSame: false }))];
}

interface Parting {
  step: string | null;
  left: RunEvent | null;
  right: RunEvent | null;
  differences: { path: string; left?: Json; right?: Json }[];
}

interface Compared {
  same_document: boolean;
  is_same: boolean;
  first_difference: Parting | null;
  first_decision: Parting | null;
}

/** The first event that differs, whatever its times and ids, and the first at which something else was decided. */
function PartingOf({ compared }: { compared: Compared }) {
  const { first_difference: first, first_decision: decision } = compared;
  const isLater = decision && first && (decision.left?.seq !== first.left?.seq || decision.right?.seq !== first.right?.seq);
  return (
    <>
      <p className="parting" data-testid="parting" role="status">
        {first ? partingWords(first) : "Their histories are the same, but for times and ids."}{" "}
        {isLater && `Something else is decided ${placeOf(decision)}. `}
        {!compared.same_document && <span className="faint">Their documents differ.</span>}
      </p>
      {first && first.differences.length > 0 && (
        <table className="table framed compared" data-testid="parting-values">
          <thead>
            <tr>
              <th scope="col">Differs</th>
              <th scope="col">One</th>
              <th scope="col">The other</th>
            </tr>
          </thead>
          <tbody>
            {first.differences.slice(0, 20).map((each) => (
              <tr key={each.path}>
                <td className="mono">{oneLine(each.path, 100)}</td>
                <td className="mono">{each.left === undefined ? "" : oneLine(JSON.stringify(each.left), 300)}</td>
                <td className="mono">{each.right === undefined ? "" : oneLine(JSON.stringify(each.right), 300)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function placeOf(parting: Parting): string {
  const numbers = [...new Set([parting.left?.seq, parting.right?.seq].filter((seq) => seq !== undefined))];
  return `at event ${numbers.join(" and ")}${parting.step ? `, step ${oneLine(parting.step, 80)}` : ""}`;
}

function partingWords(parting: Parting): string {
  const say = (event: RunEvent | null): string =>
    event ? `${eventName(event)}${eventStep(event) ? ` of ${eventStep(event)}` : ""}` : "nothing more";
  const [left, right] = [say(parting.left), say(parting.right)];
  if (left === right) return `They part ${placeOf(parting)}: ${left} has other values.`;
  return `They part ${placeOf(parting)}: ${left} on one side, ${right} on the other.`;
}

function Values({ one, other, step }: { one: string; other: string; step: string }) {
  const [left, right] = [useDetails(one, step), useDetails(other, step)];
  const text = (value: Json | undefined): string => JSON.stringify(value ?? null, null, 2);
  return (
    <section className="panel-part" data-testid="compared-values">
      {(["input", "output"] as const).map((side) => (
        <section key={side}>
          <h3>{side === "input" ? "Input" : "Output"}</h3>
          <Difference one={text(left?.[side])} other={text(right?.[side])} label={side} />
        </section>
      ))}
      {(left?.error || right?.error) && (
        <div className="pair">
          <JsonView value={(left?.error ?? undefined) as Json | undefined} label="error of one" />
          <JsonView value={(right?.error ?? undefined) as Json | undefined} label="error of the other" />
        </div>
      )}
    </section>
  );
}

function useDetails(id: string, step: string): StepDetails | undefined {
  return useAnswer<"GET /api/v1/runs/{id}/steps/{step}", StepDetails>("GET /api/v1/runs/{id}/steps/{step}", {
    path: { id, step },
    query: { limit: 1 },
  }).answer;
}
