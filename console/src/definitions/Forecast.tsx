// What runs of a definition have taken up to now: how long, how often they fail, which steps decide it.
import { useAnswer } from "../api/use";
import { Refused } from "../api/client";
import { Problem } from "../parts/Problem";
import { count, lasting, oneLine } from "../words";

interface Spread {
  p50: number;
  p95: number;
  p99: number;
}

interface Forecasted {
  runs: number;
  needed: number;
  is_enough: boolean;
  same_version: boolean;
  failed: number;
  seconds: Spread | null;
  steps: { step: string; visits: number; failed: number; seconds: Spread | null; critical: number }[];
}

export function Forecast({ name, namespace, language }: { name: string; namespace: string; language: string }) {
  const { answer, error } = useAnswer<"GET /api/v1/forecast", Forecasted>("GET /api/v1/forecast", { query: { name, namespace, language } });
  if (error instanceof Refused && error.status === 400) return <p className="empty">It has not been run yet.</p>;
  if (error) return <Problem error={error} />;
  if (!answer) return <p className="loading">…</p>;
  if (!answer.is_enough) {
    return (
      <p className="empty" data-testid="forecast">
        {count(answer.runs, "run")} ended, too few to tell: {answer.needed} are needed.
      </p>
    );
  }
  return (
    <div className="scroll padded" data-testid="forecast">
      <p className="effect">
        Half of {count(answer.runs, "run")} {answer.same_version ? "of this version " : ""}took at most {seconds(answer.seconds?.p50)}, 95 of 100 at most{" "}
        {seconds(answer.seconds?.p95)}; {share(answer.failed)} failed.
      </p>
      <div className="wide">
        <table className="table">
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Visits</th>
              <th scope="col">Half within</th>
              <th scope="col">95 of 100 within</th>
              <th scope="col">Failed</th>
              <th scope="col">On the critical path</th>
            </tr>
          </thead>
          <tbody>
            {answer.steps.slice(0, 500).map((step) => (
              <tr key={step.step}>
                <td>{oneLine(step.step, 100)}</td>
                <td className="number">{step.visits.toLocaleString("en")}</td>
                <td className="number">{seconds(step.seconds?.p50)}</td>
                <td className="number">{seconds(step.seconds?.p95)}</td>
                <td className="number">{share(step.failed)}</td>
                <td className="number">{share(step.critical)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function seconds(number: number | undefined): string {
  return number === undefined ? "" : lasting(number * 1000);
}

function share(number: number): string {
  return `${(100 * number).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}
