// Before anything is sent: what it does, to what, and how the same is done elsewhere.
import { useState } from "react";
import { addressTo, goTo } from "../address";
import type { Step } from "../api/shapes";
import type { RunAnswer, RunPage } from "../api/types";
import { useAnswer } from "../api/use";
import { Line } from "../parts/Copy";
import { Dialog } from "../parts/Dialog";
import { Problem } from "../parts/Problem";
import { Status } from "../parts/Status";
import { commandOf, perform, requestOf, type Action, type Field, type Values } from "./actions";

interface Props {
  action: Action;
  run: RunAnswer;
  steps: Step[];
  at: number | undefined;
  values?: Values;
  onClose(): void;
  onActed(): void;
}

export function ActionDialog({ action, run, steps, at, values: given = {}, onClose, onActed }: Props) {
  const [values, setValues] = useState<Values>(() => ({
    ...Object.fromEntries(action.fields.map((field) => [field.name, field.initial ?? ""])),
    ...given,
  }));
  const [error, setError] = useState<Error>();
  const [isSending, setSending] = useState(false);
  const problem = problemOf(action, values);

  const send = async (): Promise<void> => {
    setSending(true);
    setError(undefined);
    try {
      const answer = (await perform(action, run, values, at)) as { id?: string } | null;
      if (action.id === "delete") goTo("#/runs");
      else if (action.id === "fork" && answer?.id) goTo(addressTo(["runs", answer.id]));
      else onActed();
      onClose();
    } catch (refused) {
      setError(refused as Error);
      setSending(false);
    }
  };

  return (
    <Dialog title={`${action.title}: ${run.name.slice(0, 80)}`} onClose={onClose} testId="action-dialog">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!problem && !isSending) void send();
        }}
      >
        {action.fields.map((field) => (
          <FieldInput
            key={field.name}
            field={field}
            steps={steps}
            value={values[field.name] ?? ""}
            onChange={(value) => setValues({ ...values, [field.name]: value })}
          />
        ))}
        <p className="effect" data-testid="preview">
          {action.does(run, values)}
          {action.id === "fork" && <strong> {at === undefined ? "At the latest event." : `At event ${at}.`}</strong>}
        </p>
        {action.showsTree && <Tree id={run.id} />}
        {problem ? (
          <p className="problem">{problem}</p>
        ) : (
          <>
            <h3>The same as a command</h3>
            <Line label="command line" testId="command" text={commandOf(action, run, values, at)} />
            <h3>The same as a request</h3>
            <Line label="request" testId="request" text={requestOf(action, run, values, at)} />
          </>
        )}
        <Problem error={error} />
        <footer className="dialog-foot">
          <button type="button" onClick={onClose}>
            Leave it
          </button>
          <button
            type="submit"
            className={action.isDanger ? "danger" : "primary"}
            data-testid="confirm"
            disabled={!!problem || isSending}
          >
            {action.title}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function problemOf(action: Action, values: Values): string {
  for (const field of action.fields) {
    const value = values[field.name] ?? "";
    if (field.isNeeded && !value) return `${field.title} is needed.`;
    if (field.kind === "json" && value) {
      try {
        JSON.parse(value);
      } catch (error) {
        return `${field.title} is not JSON: ${(error as Error).message}`;
      }
    }
  }
  return "";
}

interface FieldProps {
  field: Field;
  steps: Step[];
  value: string;
  onChange(value: string): void;
}

function FieldInput({ field, steps, value, onChange }: FieldProps) {
  const id = `field-${field.name}`;
  return (
    <div className="field">
      <label htmlFor={id}>{field.title}</label>
      {field.kind === "json" ? (
        <textarea id={id} data-testid={id} rows={3} spellCheck={false} value={value} onChange={(event) => onChange(event.target.value)} />
      ) : field.kind === "step" ? (
        <input id={id} data-testid={id} list={`${id}-steps`} value={value} onChange={(event) => onChange(event.target.value)} />
      ) : (
        <input id={id} data-testid={id} value={value} onChange={(event) => onChange(event.target.value)} />
      )}
      {field.kind === "step" && (
        <datalist id={`${id}-steps`}>
          {steps.slice(0, 500).map((step) => (
            <option key={step.step} value={step.name} />
          ))}
        </datalist>
      )}
      {field.hint && <span className="faint">{field.hint}</span>}
    </div>
  );
}

/** The runs below a run, which go with it. */
function Tree({ id, depth = 0 }: { id: string; depth?: number }) {
  const { answer } = useAnswer<"GET /api/v1/runs/{id}/children", RunPage>("GET /api/v1/runs/{id}/children", { path: { id } });
  if (!answer?.items.length) return depth === 0 ? <p className="faint">No run is below it.</p> : null;
  return (
    <ul className="tree" data-testid="tree">
      {answer.items.slice(0, 50).map((child) => (
        <li key={child.id}>
          <Status status={child.status} /> {child.name.slice(0, 80)}
          {depth < 4 && <Tree id={child.id} depth={depth + 1} />}
        </li>
      ))}
      {answer.next && <li className="faint">and more</li>}
    </ul>
  );
}
