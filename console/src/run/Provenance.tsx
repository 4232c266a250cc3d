// Why a value of a step is what it is: through which expressions it was made, and what those have read.
import { useState, type FormEvent } from "react";
import { change } from "../address";
import { ask } from "../api/client";
import { Problem } from "../parts/Problem";

interface Link {
  seq: number;
  text: string;
  depth: number;
}

export function Provenance({ run, step }: { run: string; step: string }) {
  const [field, setField] = useState("output");
  const [chain, setChain] = useState<Link[]>();
  const [error, setError] = useState<Error>();
  const explain = (event: FormEvent): void => {
    event.preventDefault();
    setError(undefined);
    setChain(undefined);
    ask("GET /api/v1/runs/{id}/why", { path: { id: run }, query: { step, field: field.trim() } }).then(
      (answer) => setChain((answer as unknown as { chain: Link[] }).chain),
      setError,
    );
  };
  return (
    <form className="scratchpad" onSubmit={explain}>
      <input
        aria-label="Value"
        data-testid="field"
        className="mono"
        spellCheck={false}
        title="input.NAME, output.NAME, output.items[0], result"
        value={field}
        onChange={(event) => setField(event.target.value)}
      />
      <button type="submit" data-testid="explain" disabled={!field.trim()}>
        Explain
      </button>
      <Problem error={error} />
      {chain && (
        <ol className="causes" data-testid="provenance">
          {chain.slice(0, 200).map((link, index) => (
            <li key={index} style={{ paddingLeft: `${Math.min(link.depth, 12) * 0.8}rem` }}>
              {link.text}{" "}
              <button type="button" className="quiet small" onClick={() => change({ at: link.seq })}>
                event {link.seq}
              </button>
            </li>
          ))}
        </ol>
      )}
    </form>
  );
}
