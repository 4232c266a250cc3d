// A start of a definition: forms made from its schemas, or JSON. The server validates it before it counts.
import { useState } from "react";
import { addressTo, goTo } from "../address";
import { ask } from "../api/client";
import type { Json } from "../api/types";
import { useAnswer } from "../api/use";
import { Line } from "../parts/Copy";
import { Dialog } from "../parts/Dialog";
import { Problem } from "../parts/Problem";
import { command, curl } from "../run/commands";
import { InputForm, NOTHING, valueOf, type Schema } from "./InputForm";

interface Props {
  kind: string;
  namespace: string;
  name: string;
  language: string;
  onClose(): void;
}

export function RunDialog({ kind, namespace, name, language, onClose }: Props) {
  const schemas = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}/schema", { input: Schema | null; arguments: Schema | null }>(
    "GET /api/v1/resources/{kind}/{namespace}/{name}/schema",
    { path: { kind, namespace, name } },
  );
  const [input, setInput] = useState(NOTHING);
  const [given, setGiven] = useState(NOTHING);
  const [token, setToken] = useState("");
  const [error, setError] = useState<Error>();
  const [inputs, parameters] = [schemas.answer?.input ?? undefined, schemas.answer?.arguments ?? undefined];
  const asksArguments = language === "flow";
  const said = valueOf(inputs, input);
  const called = asksArguments ? valueOf(parameters, given) : {};
  const problem = said.problem ?? called.problem ?? "";
  const body = {
    name,
    namespace,
    ...(said.value === undefined ? {} : { input: said.value }),
    ...(called.value === undefined ? {} : { arguments: called.value }),
    ...(token ? { token } : {}),
  };
  const words = (option: string, value: Json | undefined): string[] => (value === undefined ? [] : [option, JSON.stringify(value)]);

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
        {schemas.answer && asksArguments && <InputForm id="argument" title="Arguments" schema={parameters} given={given} onGive={setGiven} />}
        {schemas.answer && <InputForm id="input" title="Input" schema={inputs} given={input} onGive={setInput} />}
        <div className="field">
          <label htmlFor="start-token">Token</label>
          <input id="start-token" data-testid="start-token" value={token} onChange={(event) => setToken(event.target.value)} />
          <span className="faint">optional: the same token starts the same run only once</span>
        </div>
        {problem && <p className="problem">{problem}</p>}
        <Problem error={error ?? schemas.error} />
        <Line
          label="command line"
          text={command(
            "run",
            name,
            "--namespace",
            namespace,
            ...words("--input", said.value),
            ...words("--args", called.value),
            ...(token ? ["--token", token] : []),
          )}
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
