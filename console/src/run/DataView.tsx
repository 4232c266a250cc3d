// What went in and came out: of the run, and of each step side by side.
import { useState } from "react";
import type { RunEvent, Step, StepDetails } from "../api/shapes";
import type { Json } from "../api/types";
import { ask } from "../api/client";
import { useAnswer } from "../api/use";
import { JsonView, saveFile } from "../parts/JsonView";
import { Problem } from "../parts/Problem";
import { Status } from "../parts/Status";
import { oneLine } from "../words";
import { useEvent } from "./Scrubber";
import type { Shared } from "./selection";

export function DataView({ run, steps, at, version, selected, onSelect }: Shared) {
  const path = { id: run.id };
  const [problem, setProblem] = useState<Error>();
  const picture = useAnswer("GET /api/v1/runs/{id}/picture", { path, query: { at } }, version);
  const result = useAnswer(run.ended_at && at === undefined ? "GET /api/v1/runs/{id}/result" : null, { path }, version);
  const started = useEvent(run.id, 1);
  const evaluated = useEvent(run.id, run.language === "playbook" ? 2 : undefined);
  const output = result.answer as { value?: Json; error?: Json } | undefined;
  const visible = steps.filter((step) => step.started_at || step.status !== "not started");
  return (
    <div className="data scroll" data-testid="data">
      <div className="pair">
        <section>
          <h3>Input</h3>
          <JsonView value={inputOf(started, evaluated)} label="input" run={run.id} />
        </section>
        <section>
          <h3>{output?.error ? "Error" : "Output"}</h3>
          {at === undefined && run.ended_at ? (
            <JsonView value={output?.error ?? output?.value} label="output" run={run.id} />
          ) : (
            <p className="faint">{at === undefined ? "not yet" : "the run had not ended, or it is shown as it was earlier"}</p>
          )}
        </section>
      </div>
      <section>
        <h3>{TITLES[run.language] ?? "State"}</h3>
        <Problem error={picture.error} />
        <JsonView value={stateOf(run.language, picture.answer as Json)} label="state" run={run.id} open={1} />
      </section>
      <section>
        <h3>Capsule</h3>
        <p>
          The run with its document, history and values in one file, which <code>perdure open</code> shows anywhere.{" "}
          <button type="button" className="small" data-testid="capsule" onClick={() => void saveCapsule(run.id).catch(setProblem)}>
            Download
          </button>
        </p>
        <Problem error={problem} />
      </section>
      <section>
        <h3>Steps</h3>
        <ul className="step-data">
          {visible.slice(0, 300).map((step) => (
            <StepData
              key={step.step}
              run={run.id}
              step={step}
              version={version}
              isSelected={step.step === selected}
              onSelect={() => onSelect(step.step)}
            />
          ))}
        </ul>
        {visible.length > 300 && <p className="faint">The first 300 of {visible.length} steps.</p>}
      </section>
    </div>
  );
}

async function saveCapsule(id: string): Promise<void> {
  const { lines } = (await ask("GET /api/v1/runs/{id}/capsule", { path: { id } })) as unknown as { lines: string[] };
  saveFile(new Blob(lines, { type: "application/octet-stream" }), `${id}.perdure`);
}

const TITLES: Record<string, string> = { playbook: "ctx and steps", story: "StoryRun", flow: "Result" };

function inputOf(started: RunEvent | undefined, evaluated: RunEvent | undefined): Json | undefined {
  const payload = started?.["payload"] as Record<string, Json> | undefined;
  const workload = (evaluated?.["payload"] as Record<string, Json> | undefined)?.["workload"];
  return workload ?? payload?.["inputs"] ?? started?.["input"];
}

function stateOf(language: string, picture: Json | undefined): Json | undefined {
  if (language !== "playbook" || !picture || typeof picture !== "object" || Array.isArray(picture)) return picture;
  const { ctx = {}, result = null, failures = [], ...rest } = picture;
  return { ctx, result, failures, ...rest };
}

interface StepProps {
  run: string;
  step: Step;
  version: number;
  isSelected: boolean;
  onSelect(): void;
}

function StepData({ run, step, version, isSelected, onSelect }: StepProps) {
  const [isOpen, setOpen] = useState(false);
  const { answer, error } = useAnswer<"GET /api/v1/runs/{id}/steps/{step}", StepDetails>(
    isOpen ? "GET /api/v1/runs/{id}/steps/{step}" : null,
    { path: { id: run, step: step.step }, query: { limit: 1 } },
    version,
  );
  return (
    <li className={isSelected ? "is-selected" : ""}>
      <button type="button" className="step-head" aria-expanded={isOpen} onClick={() => (setOpen(!isOpen), isOpen || isSelected || onSelect())}>
        <Status status={step.status} /> <strong>{oneLine(step.step, 100)}</strong> <span className="faint">{step.kind}</span>
      </button>
      <Problem error={error} />
      {isOpen && answer && (
        <div className="pair">
          <section>
            <h4>In</h4>
            <JsonView value={answer.input ?? undefined} label={`${step.name}-input`} run={run} />
          </section>
          <section>
            <h4>Out</h4>
            <JsonView value={answer.output ?? undefined} label={`${step.name}-output`} run={run} />
          </section>
        </div>
      )}
    </li>
  );
}
