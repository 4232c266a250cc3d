// An expression in the language of the run, as the step would read it, now or at the scrubber's moment. Records nothing.
import { useState, type FormEvent } from "react";
import { ask } from "../api/client";
import type { Json, RunAnswer } from "../api/types";
import { JsonView } from "../parts/JsonView";
import { Problem } from "../parts/Problem";

const EXAMPLES: Record<string, string> = {
  flow: "step.input",
  playbook: "{{ ctx }}",
  story: "{{ inputs }}",
};

export function Scratchpad({ run, step, at }: { run: RunAnswer; step: string; at: number | undefined }) {
  const [text, setText] = useState(EXAMPLES[run.language] ?? "");
  const [value, setValue] = useState<Json>();
  const [error, setError] = useState<Error>();
  const evaluate = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setError(undefined);
    try {
      const body = { step, expression: text, ...(at === undefined ? {} : { at }) };
      const answer = await ask("POST /api/v1/runs/{id}/evaluate", { path: { id: run.id }, body });
      setValue(answer["value"] ?? null);
    } catch (problem) {
      setValue(undefined);
      setError(problem as Error);
    }
  };
  return (
    <form className="scratchpad" onSubmit={(event) => void evaluate(event)}>
      <input
        aria-label="Expression"
        data-testid="expression"
        className="mono"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" data-testid="evaluate">
        Evaluate
      </button>
      <Problem error={error} />
      {value !== undefined && (
        <div data-testid="value">
          <JsonView value={value} label="value" run={run.id} />
        </div>
      )}
    </form>
  );
}
