// Many runs at once. A preview says how many it concerns before anything is sent.
import { useState } from "react";
import { ask, mayAsk } from "../api/client";
import type { BatchBody, BatchResult, RunItem } from "../api/types";
import { Line } from "../parts/Copy";
import { Dialog } from "../parts/Dialog";
import { Problem } from "../parts/Problem";
import { curl } from "../run/commands";
import { count } from "../words";
import { isFiltered, type RunFilters } from "./filters";

type Verb = "cancel" | "redrive" | "delete";
const VERBS: { verb: Verb; title: string; does: string; fits(run: RunItem): boolean }[] = [
  { verb: "cancel", title: "Cancel", does: "is asked to stop", fits: (run) => !run.ended_at },
  { verb: "redrive", title: "Redrive", does: "is reopened at what failed", fits: (run) => !!run.ended_at },
  { verb: "delete", title: "Delete", does: "is removed with all below it, for ever", fits: (run) => !!run.ended_at },
];

interface Props {
  chosen: ReadonlySet<string>;
  runs: RunItem[];
  filters: RunFilters;
  onDone(): void;
}

export function BatchBar({ chosen, runs, filters, onDone }: Props) {
  const [verb, setVerb] = useState<Verb>();
  const [isAll, setAll] = useState(false);
  if (chosen.size === 0 || !mayAsk("POST /api/v1/runs:batch")) return null;
  const canBeAll = isFiltered(filters) && !filters.q;
  return (
    <div className="batch" role="region" aria-label="Selected runs" data-testid="batch">
      <strong>{count(chosen.size, "run")} selected</strong>
      {VERBS.map((each) => (
        <button key={each.verb} type="button" data-testid={`batch-${each.verb}`} onClick={() => (setAll(false), setVerb(each.verb))}>
          {each.title}…
        </button>
      ))}
      {canBeAll &&
        VERBS.map((each) => (
          <button
            key={each.verb}
            type="button"
            className="quiet"
            data-testid={`batch-all-${each.verb}`}
            onClick={() => (setAll(true), setVerb(each.verb))}
          >
            {each.title} all that match…
          </button>
        ))}
      {verb && isAll && (
        <AllDialog verb={verb} filters={filters} onClose={() => setVerb(undefined)} onDone={onDone} />
      )}
      {verb && !isAll && (
        <ChosenDialog
          verb={verb}
          runs={runs.filter((run) => chosen.has(run.id))}
          onClose={() => setVerb(undefined)}
          onDone={onDone}
        />
      )}
    </div>
  );
}

interface DialogProps {
  verb: Verb;
  onClose(): void;
  onDone(): void;
}

function ChosenDialog({ verb, runs, onClose, onDone }: DialogProps & { runs: RunItem[] }) {
  const about = VERBS.find((each) => each.verb === verb)!;
  const fit = runs.filter(about.fits);
  const [done, setDone] = useState<{ good: number; bad: Error[] }>();
  const send = async (): Promise<void> => {
    const bad: Error[] = [];
    for (const run of fit) {
      const path = { id: run.id };
      try {
        if (verb === "delete") await ask("DELETE /api/v1/runs/{id}", { path });
        else if (verb === "cancel") await ask("POST /api/v1/runs/{id}/cancel", { path, body: {} });
        else await ask("POST /api/v1/runs/{id}/redrive", { path, body: {} });
      } catch (error) {
        bad.push(error as Error);
      }
    }
    setDone({ good: fit.length - bad.length, bad });
  };
  return (
    <Dialog title={`${about.title} ${count(fit.length, "run")}`} onClose={done ? onDone : onClose} testId="batch-dialog">
      <p data-testid="preview">
        Each of {count(fit.length, "run")} {about.does}
        {fit.length < runs.length ? `; ${count(runs.length - fit.length, "run")} cannot be, and ${runs.length - fit.length === 1 ? "stays" : "stay"} as ${runs.length - fit.length === 1 ? "it is" : "they are"}` : ""}.
      </p>
      <ul className="scroll-list">
        {fit.slice(0, 100).map((run) => (
          <li key={run.id}>
            {run.name} <span className="faint mono">{run.id}</span>
          </li>
        ))}
      </ul>
      <Line label="the same as commands" text={fit.slice(0, 20).map((run) => `perdure ${verb} ${verb === "delete" ? "run " : ""}${run.id}`).join("\n")} />
      {done && (
        <p role="status">
          {count(done.good, "run")} done{done.bad.length ? `, ${count(done.bad.length, "run")} refused` : ""}.
        </p>
      )}
      {done?.bad.slice(0, 5).map((error, index) => <Problem key={index} error={error} />)}
      <footer className="dialog-foot">
        {done ? (
          <button type="button" onClick={onDone}>
            Close
          </button>
        ) : (
          <button type="button" className="danger" data-testid="confirm" disabled={fit.length === 0} onClick={() => void send()}>
            {about.title} {count(fit.length, "run")}
          </button>
        )}
      </footer>
    </Dialog>
  );
}

function AllDialog({ verb, filters, onClose, onDone }: DialogProps & { filters: RunFilters }) {
  const about = VERBS.find((each) => each.verb === verb)!;
  const [plan, setPlan] = useState<BatchResult>();
  const [error, setError] = useState<Error>();
  const [done, setDone] = useState(0);
  const [isOver, setOver] = useState(false);
  const { q: _, ...filter } = filters;
  const body: BatchBody = { verb, filter };
  const preview = (): void => {
    ask("POST /api/v1/runs:batch", { body: { ...body, dry_run: true } }).then(setPlan, setError);
  };
  const send = async (): Promise<void> => {
    try {
      let cursor = "";
      let total = 0;
      do {
        const piece = await ask("POST /api/v1/runs:batch", { body: { ...body, cursor } });
        total += piece.count;
        setDone(total);
        cursor = piece.next ?? "";
      } while (cursor);
      setOver(true);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Dialog title={`${about.title} all runs that match`} onClose={isOver ? onDone : onClose} testId="batch-dialog">
      {plan ? (
        <p data-testid="preview">
          {count(plan.count, "run")}
          {plan.more ? ", and more," : ""}: each {about.does}.
        </p>
      ) : (
        <p>A dry run counts them; nothing is changed.</p>
      )}
      <Line label="the same as a request" text={curl("POST", "/api/v1/runs:batch", body)} />
      <Problem error={error} />
      {done > 0 && <p role="status">{count(done, "run")} done.</p>}
      <footer className="dialog-foot">
        {!plan && (
          <button type="button" data-testid="dry-run" onClick={preview}>
            Count them
          </button>
        )}
        {plan && !isOver && (
          <button type="button" className="danger" data-testid="confirm" onClick={() => void send()}>
            {about.title} them
          </button>
        )}
        {isOver && (
          <button type="button" onClick={onDone}>
            Close
          </button>
        )}
      </footer>
    </Dialog>
  );
}
