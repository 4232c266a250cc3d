// The document is run in memory, in virtual time, with mocks for everything it calls. Nothing is stored.
import { useState } from "react";
import { ask } from "../api/client";
import type { Json } from "../api/types";
import { JsonView } from "../parts/JsonView";
import { Problem } from "../parts/Problem";
import { Status } from "../parts/Status";
import { count, lasting, oneLine } from "../words";

interface Tried {
  run: { status: string; waits_for: string[] };
  result: { status: string; value?: Json; error?: Json } | null;
  seconds: number;
  is_cut: boolean;
  calls: Record<string, Json>[];
  steps: { step: string; status: string }[];
  events: Json[];
}

const FIELDS = [
  { name: "input", title: "Input", begin: "{}" },
  { name: "mocks", title: "Mocks, by provider or Engram", begin: '{"echo": {"answer": {"text": "hello"}}}' },
  { name: "gates", title: "Gates, by step", begin: "{}" },
  { name: "signals", title: "Signals, by name", begin: "{}" },
] as const;

export function Sandbox({ text, isValid }: { text: string; isValid: boolean }) {
  const [values, setValues] = useState<Record<string, string>>(() => Object.fromEntries(FIELDS.map((field) => [field.name, field.begin])));
  const [tried, setTried] = useState<Tried>();
  const [error, setError] = useState<Error>();
  const attempt = async (): Promise<void> => {
    setError(undefined);
    try {
      const given = Object.fromEntries(FIELDS.map((field) => [field.name, JSON.parse(values[field.name] || "{}") as Json]));
      const answer = await ask("POST /api/v1/sandbox", { body: { document: text, ...given } as never });
      setTried(answer as unknown as Tried);
    } catch (problem) {
      setTried(undefined);
      setError(problem as Error);
    }
  };
  return (
    <div className="sandbox scroll padded">
      <div className="sandbox-fields">
        {FIELDS.map((field) => (
          <div className="field" key={field.name}>
            <label htmlFor={`try-${field.name}`}>{field.title}</label>
            <textarea
              id={`try-${field.name}`}
              data-testid={`try-${field.name}`}
              rows={2}
              spellCheck={false}
              value={values[field.name]}
              onChange={(event) => setValues({ ...values, [field.name]: event.target.value })}
            />
          </div>
        ))}
      </div>
      <button type="button" className="primary" data-testid="try" disabled={!isValid} onClick={() => void attempt()}>
        Run it here
      </button>
      <Problem error={error} />
      {tried && (
        <div data-testid="tried">
          <p>
            <Status status={tried.result?.status ?? tried.run.status} /> after {lasting(tried.seconds * 1000)} of virtual time
            {tried.is_cut ? ", cut off" : ""}, {count(tried.calls.length, "call")}
          </p>
          {tried.run.waits_for.length > 0 && !tried.result && <p>It waits for {oneLine(tried.run.waits_for.join("; "), 300)}</p>}
          {tried.result && <JsonView value={tried.result.error ?? tried.result.value} label="result" />}
          <h3>Steps</h3>
          <ul>
            {tried.steps.map((step) => (
              <li key={step.step}>
                <Status status={step.status} /> {oneLine(step.step, 80)}
              </li>
            ))}
          </ul>
          <h3>Calls</h3>
          <JsonView value={tried.calls as Json} label="calls" open={1} />
        </div>
      )}
    </div>
  );
}
