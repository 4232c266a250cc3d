// A start of a definition: a form made from the schema of its input, or JSON. The server validates it before it counts.
import { useMemo, useState } from "react";
import { addressTo, goTo } from "../address";
import { ask } from "../api/client";
import type { Json } from "../api/types";
import { useAnswer } from "../api/use";
import { Line } from "../parts/Copy";
import { Dialog } from "../parts/Dialog";
import { Problem } from "../parts/Problem";
import { command, curl } from "../run/commands";

interface Schema {
  type?: string;
  properties?: Record<string, { type?: string; default?: Json; description?: string; enum?: Json[] }>;
  required?: string[];
}

interface Props {
  kind: string;
  namespace: string;
  name: string;
  onClose(): void;
}

export function RunDialog({ kind, namespace, name, onClose }: Props) {
  const path = { kind, namespace, name };
  const schemas = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}/schema", { input: Schema | null; arguments: Schema | null }>(
    "GET /api/v1/resources/{kind}/{namespace}/{name}/schema",
    { path },
  );
  const schema = schemas.answer?.input ?? undefined;
  const fields = useMemo(() => Object.entries(schema?.properties ?? {}), [schema]);
  const [isText, setText] = useState(false);
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setWhole] = useState("");
  const [error, setError] = useState<Error>();
  const usesText = isText || (schemas.answer !== undefined && fields.length === 0);

  let input: Json | undefined;
  let problem = "";
  try {
    input = usesText ? (text.trim() ? (JSON.parse(text) as Json) : undefined) : inputOf(fields, values);
  } catch (failed) {
    problem = (failed as Error).message;
  }
  const missing = usesText ? [] : (schema?.required ?? []).filter((field) => !values[field] && schema?.properties?.[field]?.default === undefined);
  if (!problem && missing.length) problem = `${missing.join(", ")}: needed`;
  const body = { name, namespace, ...(input === undefined ? {} : { input }) };

  const start = async (): Promise<void> => {
    try {
      const run = (await ask("POST /api/v1/runs", { body })) as { id: string };
      goTo(addressTo(["runs", run.id]));
    } catch (refused) {
      setError(refused as Error);
    }
  };
  return (
    <Dialog title={`Run ${name.slice(0, 80)}`} onClose={onClose} testId="run-dialog">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!problem) void start();
        }}
      >
        {!usesText &&
          fields.map(([field, about]) => (
            <div className="field" key={field}>
              <label htmlFor={`input-${field}`}>
                {field}
                {schema?.required?.includes(field) ? " (needed)" : ""}
              </label>
              {about.enum ? (
                <select
                  id={`input-${field}`}
                  data-testid={`input-${field}`}
                  value={values[field] ?? ""}
                  onChange={(event) => setValues({ ...values, [field]: event.target.value })}
                >
                  <option value="" />
                  {about.enum.map((each) => (
                    <option key={String(each)}>{String(each)}</option>
                  ))}
                </select>
              ) : (
                <input
                  id={`input-${field}`}
                  data-testid={`input-${field}`}
                  placeholder={about.default === undefined ? "" : JSON.stringify(about.default).slice(0, 80)}
                  value={values[field] ?? ""}
                  onChange={(event) => setValues({ ...values, [field]: event.target.value })}
                />
              )}
              <span className="faint">
                {[about.type, about.description].filter(Boolean).join(": ").slice(0, 200)}
              </span>
            </div>
          ))}
        {usesText && (
          <div className="field">
            <label htmlFor="input-json">Input (JSON)</label>
            <textarea id="input-json" data-testid="input-json" rows={6} value={text} onChange={(event) => setWhole(event.target.value)} />
          </div>
        )}
        {fields.length > 0 && (
          <button
            type="button"
            className="quiet small"
            onClick={() => {
              if (!isText) setWhole(JSON.stringify(input ?? {}, null, 2));
              setText(!isText);
            }}
          >
            {isText ? "As a form" : "As JSON"}
          </button>
        )}
        {problem && <p className="problem">{problem}</p>}
        <Problem error={error} />
        <Line
          label="command line"
          text={command("run", name, "--namespace", namespace, ...(input === undefined ? [] : ["--input", JSON.stringify(input)]))}
        />
        <Line label="request" text={curl("POST", "/api/v1/runs", body)} />
        <footer className="dialog-foot">
          <button type="submit" className="primary" data-testid="confirm" disabled={!!problem}>
            Run
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function inputOf(fields: [string, { type?: string }][], values: Record<string, string>): Json | undefined {
  const given = fields.filter(([name]) => values[name] !== undefined && values[name] !== "");
  if (given.length === 0) return undefined;
  return Object.fromEntries(given.map(([name, about]) => [name, valueOf(name, about.type, values[name] ?? "")]));
}

function valueOf(name: string, type: string | undefined, text: string): Json {
  if (type === "string") return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    if (type === undefined) return text;
    throw new Error(`${name}: not ${type === "array" || type === "object" ? "JSON" : `of type ${type}`}`);
  }
}
