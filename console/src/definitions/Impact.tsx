// What another version of a document means for its open runs: which can go on with it, and moving them to it.
import { useEffect, useState } from "react";
import { addressTo } from "../address";
import { ask } from "../api/client";
import type { ImpactAnswer, MigrationPlan } from "../api/types";
import { Problem } from "../parts/Problem";
import { Status, StatusIcon } from "../parts/Status";
import { count, oneLine } from "../words";
import { MoveDialog } from "./MoveDialog";

interface Judged {
  id: string;
  status: string;
  verdict: string;
  obstacles: { place: string; reason: string }[];
}

interface Props {
  text: string;
  name: string;
  namespace: string;
  steps: string[]; // of the new document
  isValid: boolean;
}

const UNNAMED = "?"; // in a plan: somebody has to say which step of the new document this one is
const DROPPED = "\u0000";
const ICONS: Record<string, string> = { safe: "done", "needs mapping": "partial", blocked: "failed", current: "skipped" };
const WORDS: Record<string, string> = { "needs mapping": "need a mapping", current: "have it already" };

export function Impact({ text, name, namespace, steps, isValid }: Props) {
  const [answer, setAnswer] = useState<ImpactAnswer & { text: string }>();
  const [error, setError] = useState<Error>();
  const [mapping, setMapping] = useState<Record<string, string | null>>({});
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [isMoving, setMoving] = useState(false);
  const judge = (chosen = mapping): void => {
    setError(undefined);
    ask("POST /api/v1/impact", { body: { document: text, name, namespace: namespace || null, mapping: chosen } }).then(
      (found) => setAnswer({ ...found, text }),
      setError,
    );
  };
  useEffect(() => {
    if (isValid) judge();
    // Typing goes on: it is judged again when somebody asks for it.
  }, [isValid]);

  const choose = (step: string, value: string): void => {
    const { [step]: _, ...rest } = mapping;
    const chosen = value === "" ? rest : { ...rest, [step]: value === DROPPED ? null : value };
    setMapping(chosen);
    judge(chosen);
  };
  if (!isValid) return <p className="empty">Open runs are judged when the document has no problem.</p>;
  if (error) return <Problem error={error} />;
  if (!answer) return <p className="loading">…</p>;
  const runs = answer.runs as unknown as Judged[];
  const unnamed = [...new Set(answer.plan.moves.flatMap((move) => Object.keys(move.mapping ?? {})))];
  const safe = runs.filter((run) => run.verdict === "safe");
  const plan = planOf(answer.plan, new Set(safe.filter((run) => !left.has(run.id)).map((run) => run.id)));
  const moved = plan.moves.reduce((sum, move) => sum + move.runs.length, 0);
  return (
    <div className="scroll padded impact" data-testid="impact">
      <p className="verdicts" data-testid="verdicts">
        {Object.entries(answer.counts).map(([verdict, number]) => (
          <span key={verdict} className={number ? "status" : "status faint"}>
            <StatusIcon status={ICONS[verdict]} /> <strong className="number">{number.toLocaleString("en")}</strong> {WORDS[verdict] ?? verdict}
          </span>
        ))}
        {answer.text !== text && (
          <button type="button" className="small" data-testid="judge" onClick={() => judge()}>
            The document has changed: judge again
          </button>
        )}
        <button type="button" className="primary right" data-testid="move" disabled={moved === 0 || answer.text !== text} onClick={() => setMoving(true)}>
          Move {count(moved, "run")}…
        </button>
      </p>
      {answer.more && <p className="faint">Only the latest 10,000 open runs were judged.</p>}
      {unnamed.length > 0 && (
        <fieldset className="fields mapping">
          <legend>Steps that runs know, and this version does not have</legend>
          {unnamed.map((step) => (
            <label key={step}>
              <code>{oneLine(step, 80)}</code> is{" "}
              <select data-testid={`map-${step}`} value={mapping[step] === null ? DROPPED : (mapping[step] ?? "")} onChange={(event) => choose(step, event.target.value)}>
                <option value="">not decided</option>
                <option value={DROPPED}>gone: drop what is known of it</option>
                {steps.map((each) => (
                  <option key={each} value={each}>
                    {oneLine(each, 60)}
                  </option>
                ))}
              </select>
            </label>
          ))}
        </fieldset>
      )}
      {runs.length === 0 ? (
        <p className="empty">No open run has another version: this change touches nothing that runs now.</p>
      ) : (
        <div className="wide">
          <table className="table" data-testid="judged">
            <thead>
              <tr>
                <th className="narrow">
                  <span className="unseen">Move</span>
                </th>
                <th>Run</th>
                <th>Status</th>
                <th>Verdict</th>
                <th>Why</th>
              </tr>
            </thead>
            <tbody>
              {runs.slice(0, 500).map((run) => (
                <tr key={run.id} data-testid="judged-run">
                  <td className="narrow">
                    {run.verdict === "safe" && (
                      <input
                        type="checkbox"
                        aria-label={`Move ${run.id}`}
                        checked={!left.has(run.id)}
                        onChange={() => setLeft(toggled(left, run.id))}
                      />
                    )}
                  </td>
                  <td>
                    <a className="mono" href={addressTo(["runs", run.id])}>
                      {run.id}
                    </a>
                  </td>
                  <td>
                    <Status status={run.status} />
                  </td>
                  <td>
                    <span className="status">
                      <StatusIcon status={ICONS[run.verdict]} /> {run.verdict}
                    </span>
                  </td>
                  <td className="cell-why">{oneLine(run.obstacles.map(({ place, reason }) => (place ? `${place}: ${reason}` : reason)).join("; "), 400)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {runs.length > 500 && <p className="faint">… and {count(runs.length - 500, "run")} more.</p>}
        </div>
      )}
      {isMoving && (
        <MoveDialog
          plan={plan}
          onClose={() => {
            setMoving(false);
            judge();
          }}
        />
      )}
    </div>
  );
}

/** The plan for these runs only; nothing in it is left to be named. */
function planOf(plan: MigrationPlan, runs: ReadonlySet<string>): MigrationPlan {
  const moves = plan.moves.map((move) => ({
    ...move,
    mapping: Object.fromEntries(Object.entries(move.mapping ?? {}).filter(([, name]) => name !== UNNAMED)),
    runs: move.runs.filter((run) => runs.has(run)),
  }));
  return { ...plan, moves: moves.filter((move) => move.runs.length > 0) };
}

function toggled(names: ReadonlySet<string>, name: string): ReadonlySet<string> {
  const changed = new Set(names);
  if (!changed.delete(name)) changed.add(name);
  return changed;
}
