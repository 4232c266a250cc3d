// Runs are moved to another version of their document, after a dry run; and moved back.
import { useEffect, useState } from "react";
import { ask } from "../api/client";
import type { Json, MigrationAnswer, MigrationPlan } from "../api/types";
import { Line } from "../parts/Copy";
import { Dialog } from "../parts/Dialog";
import { downloadJson } from "../parts/JsonView";
import { Problem } from "../parts/Problem";
import { command, curl } from "../run/commands";
import { count, oneLine } from "../words";

const AT_ONCE = 1000; // runs that one request may move

export function MoveDialog({ plan, onClose }: { plan: MigrationPlan; onClose(): void }) {
  const [preview, setPreview] = useState<MigrationAnswer>();
  const [moved, setMoved] = useState<MigrationAnswer>();
  const [undone, setUndone] = useState<MigrationAnswer>();
  const [error, setError] = useState<Error>();
  const runs = plan.moves.flatMap((move) => move.runs);
  const few = runs.length > AT_ONCE ? firstOf(plan, AT_ONCE) : plan;
  useEffect(() => {
    ask("POST /api/v1/migrations", { body: { plan: few, dry_run: true } }).then(setPreview, setError);
  }, []);
  const move = (): void => void ask("POST /api/v1/migrations", { body: { plan: few } }).then(setMoved, setError);
  const back = (moved?.runs ?? []).filter((run) => run["outcome"] === "moved").map((run) => run["id"] ?? "");
  const undo = (): void => void ask("POST /api/v1/migrations", { body: { undo: back } }).then(setUndone, setError);
  const shown = undone ?? moved ?? preview;
  return (
    <Dialog title={`Move ${count(runs.length, "run")} of ${oneLine(plan.name, 60)}`} onClose={onClose} testId="move-dialog">
      <p className="effect" data-testid="preview">
        {undone ? "Back to the version before: " : moved ? "Moved: " : "A dry run says: "}
        {shown ? resultsOf(shown) : "…"}
      </p>
      {!moved && (
        <p className="faint">
          Each run goes on with this version of its document from where it is; its history says so. A run decides for itself, and one that has gone on
          since may refuse. A move can be undone until a step begins that the version before does not have.
          {runs.length > AT_ONCE ? ` One request moves ${count(AT_ONCE, "run")}: the others are moved after these.` : ""}
        </p>
      )}
      <ul className="scroll-list">
        {(shown?.runs ?? [])
          .filter((run) => run["reason"])
          .slice(0, 100)
          .map((run) => (
            <li key={run["id"]}>
              <span className="mono">{run["id"]}</span> {run["outcome"]}: {oneLine(run["reason"] ?? "", 300)}
            </li>
          ))}
      </ul>
      <Problem error={error} />
      <h3>The same as a command</h3>
      <Line label="command" text={back.length ? back.slice(0, 20).map((run) => command("migrate", "--undo", run)).join("\n") : "perdure migrate --plan plan.json"} />
      <h3>The same as a request</h3>
      <Line label="request" text={back.length ? curl("POST", "/api/v1/migrations", { undo: back.slice(0, 20) }) : planned()} />
      <footer className="dialog-foot">
        <button type="button" className="quiet" onClick={() => downloadJson(plan as unknown as Json, "plan")}>
          Download the plan
        </button>
        {moved ? (
          <>
            {!undone && back.length > 0 && (
              <button type="button" className="danger" data-testid="undo" onClick={undo}>
                Undo
              </button>
            )}
            <button type="button" className="primary" data-testid="close" onClick={onClose}>
              Close
            </button>
          </>
        ) : (
          <button type="button" className="primary" data-testid="confirm" disabled={!preview?.counts["safe"]} onClick={move}>
            Move {count(preview?.counts["safe"] ?? 0, "run")}
          </button>
        )}
      </footer>
    </Dialog>
  );
}

/** The plan is too long for a line: it is read from the file. */
function planned(): string {
  return `jq '{plan: .}' plan.json | ${curl("POST", "/api/v1/migrations").replace(/^curl -X POST/, "curl -X POST -H 'Content-Type: application/json' -d @-")}`;
}

function resultsOf(answer: MigrationAnswer): string {
  return Object.entries(answer.counts)
    .filter(([, number]) => number > 0)
    .map(([result, number]) => `${number.toLocaleString("en")} ${result}`)
    .join(", ");
}

function firstOf(plan: MigrationPlan, most: number): MigrationPlan {
  let left = most;
  const moves = plan.moves.map((move) => {
    const runs = move.runs.slice(0, left);
    left -= runs.length;
    return { ...move, runs };
  });
  return { ...plan, moves: moves.filter((move) => move.runs.length > 0) };
}
