import { useState } from "react";
import type { Step } from "../api/shapes";
import type { RunAnswer } from "../api/types";
import { ActionDialog } from "./ActionDialog";
import { ACTIONS, mayDo, type Action } from "./actions";

interface Props {
  run: RunAnswer;
  steps: Step[];
  step: string;
  at: number | undefined;
  onActed(): void;
}

export function Actions({ run, steps, step, at, onActed }: Props) {
  const [chosen, setChosen] = useState<Action>();
  const possible: Action[] = Object.values(ACTIONS).filter((action) => mayDo(action, run));
  if (possible.length === 0) return null;
  const gate = steps.find((each) => each.kind === "gate" && each.status === "waits")?.name ?? "";
  const values: Record<string, Record<string, string>> = {
    approve: { step: gate },
    reject: { step: gate },
    redrive: { from: step },
  };
  return (
    <div className="actions" role="group" aria-label="Actions" data-testid="actions">
      {possible
        .filter((action) => gate || !action.route.includes("gates"))
        .map((action) => (
          <button key={action.id} type="button" data-testid={`act-${action.id}`} onClick={() => setChosen(action)}>
            {action.title}…
          </button>
        ))}
      {chosen && (
        <ActionDialog
          action={chosen}
          run={run}
          steps={steps}
          at={at}
          values={values[chosen.id]}
          onClose={() => setChosen(undefined)}
          onActed={onActed}
        />
      )}
    </div>
  );
}
