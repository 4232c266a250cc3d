import type { ReactNode } from "react";
import { addressTo } from "../address";
import { useAnswer } from "../api/use";
import { useIsLost } from "../api/connection";
import type { RunAnswer } from "../api/types";
import { CopyButton } from "../parts/Copy";
import { Status } from "../parts/Status";
import { Lasted, Time } from "../parts/Time";
import { oneLine } from "../words";

const KINDS: Record<string, string> = { flow: "flows", playbook: "playbooks", story: "stories" };

interface Props {
  run: RunAnswer;
  at: number | undefined;
  isLive: boolean;
  forkedFrom: string;
  children: ReactNode;
}

export function Header({ run, at, isLive, forkedFrom, children }: Props) {
  const isLost = useIsLost();
  const labels = Object.entries(run.labels);
  const kind = KINDS[run.language];
  return (
    <header className="run-head">
      <div className="run-title">
        <h1 title={run.name}>
          <bdi>{oneLine(run.name, 200)}</bdi>
        </h1>
        <span data-testid="status">
          <Status status={run.status} />
        </span>
        {at !== undefined && (
          <span className="past" data-testid="then">
            at event {at.toLocaleString("en")}
          </span>
        )}
        {!run.ended_at && at === undefined && (
          <span className={isLive && !isLost ? "live" : "faint"} data-testid="run-live">
            {isLive && !isLost ? "live" : "not live"}
          </span>
        )}
        {run.stuck && <span className="is-bad">stuck: {oneLine(run.stuck)}</span>}
        {children}
      </div>
      <dl className="facts">
        <Fact name="id">
          <code>{run.id}</code> <CopyButton text={run.id} />{" "}
          <a className="small-link" href={addressTo(["compare"], { a: run.id })} data-testid="compare">
            Compare
          </a>
        </Fact>
        <Fact name="language">{run.language}</Fact>
        {kind && (
          <Fact name="definition">
            <a href={addressTo(["definitions", kind, run.namespace, run.name])}>
              <bdi>{oneLine(run.name, 60)}</bdi>
            </a>
          </Fact>
        )}
        <Fact name="namespace">{run.namespace}</Fact>
        <Fact name="started">
          <Time at={run.started_at} absolute /> <span className="faint">(<Time at={run.started_at} />)</span>
        </Fact>
        <Fact name="lasted">
          <Lasted from={run.started_at} to={run.ended_at} />
        </Fact>
        {!run.ended_at && at === undefined && <ExpectedEnd id={run.id} />}
        {run.started_by && <Fact name="by">{oneLine(run.started_by.name, 80)}</Fact>}
        {(run.tasks.done > 0 || run.tasks.open > 0) && (
          <Fact name="tasks">
            {run.tasks.done.toLocaleString("en")} done{run.tasks.open ? `, ${run.tasks.open.toLocaleString("en")} open` : ""}
          </Fact>
        )}
        {run.parent && (
          <Fact name="parent">
            <a href={addressTo(["runs", run.parent])}>{run.parent.slice(0, 10)}</a>
          </Fact>
        )}
        {forkedFrom && <Fact name="forked from">{oneLine(forkedFrom, 60)}</Fact>}
        {labels.length > 0 && (
          <Fact name="labels">
            {labels.map(([name, value]) => (
              <a key={name} className="tag" href={addressTo(["runs"], { label: `${name}=${value}` })}>
                {oneLine(`${name}=${value}`, 60)}
              </a>
            ))}
          </Fact>
        )}
      </dl>
    </header>
  );
}

/** After what earlier runs of the same definition took; nothing, as long as these are too few. */
function ExpectedEnd({ id }: { id: string }) {
  const { answer } = useAnswer<"GET /api/v1/runs/{id}/forecast", { expected: { ends_at: { p50: string; p95: string } | null } | null }>(
    "GET /api/v1/runs/{id}/forecast",
    { path: { id } },
  );
  const ends = answer?.expected?.ends_at;
  if (!ends) return null;
  return (
    <Fact name="should end">
      <Time at={ends.p50} /> <span className="faint">(95 of 100: <Time at={ends.p95} />)</span>
    </Fact>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
