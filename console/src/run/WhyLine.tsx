// Why the run stands as it does, in one sentence, with the button that changes it. The chain behind it unfolds.
import { useState } from "react";
import { change } from "../address";
import type { Step, Why } from "../api/shapes";
import type { RunAnswer } from "../api/types";
import { useAnswer } from "../api/use";
import { familyOf } from "../parts/Status";
import { Lasted, Time } from "../parts/Time";
import { ActionDialog } from "./ActionDialog";
import { ACTIONS, mayDo, type Action, type Values } from "./actions";
import { wordsOf } from "./commands";

interface Props {
  run: RunAnswer;
  steps: Step[];
  at: number | undefined;
  version: number;
  onActed(): void;
}

interface Offer {
  action: Action;
  title: string;
  values: Values;
}

export function WhyLine({ run, steps, at, version, onActed }: Props) {
  const { answer } = useAnswer<"GET /api/v1/runs/{id}/why", Why>("GET /api/v1/runs/{id}/why", { path: { id: run.id }, query: { at: at?.toString() } }, version);
  const [isOpen, setOpen] = useState(false);
  const [offer, setOffer] = useState<Offer>();
  if (!answer) return <div className="why" />;
  const [first, ...causes] = answer.chain;
  const isWaiting = at === undefined && run.ended_at === null;
  const offers = at === undefined ? offersOf(run, answer).filter((each) => mayDo(each.action, run)) : []; // acts change the present
  return (
    <section className={`why is-${familyOf(run.status)}`} aria-label="Why" data-testid="why">
      <div className="why-line">
        <p data-testid="why-text">
          {sentence(first?.text ?? "")}
          {first && (
            <span className="faint">
              {" "}
              · {isWaiting ? <>for <Lasted from={first.at} to={null} /></> : <Time at={first.at} absolute={at !== undefined} />}
            </span>
          )}
        </p>
        <div className="why-buttons">
          {offers.map((each) => (
            <button
              key={each.title}
              type="button"
              className={each.action.isDanger ? "danger" : "primary"}
              data-testid={`why-${each.action.id}`}
              onClick={() => setOffer(each)}
            >
              {each.title}
            </button>
          ))}
          {causes.length > 0 && (
            <button type="button" className="quiet small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
              {isOpen ? "Less" : "Causes"}
            </button>
          )}
        </div>
      </div>
      {isOpen && (
        <ol className="causes">
          {causes.map((cause, index) => (
            <li key={index}>
              {cause.text}{" "}
              <button type="button" className="quiet small" onClick={() => change({ at: cause.seq })}>
                event {cause.seq}
              </button>
            </li>
          ))}
        </ol>
      )}
      {offer && (
        <ActionDialog
          action={offer.action}
          run={run}
          steps={steps}
          at={at}
          values={offer.values}
          onClose={() => setOffer(undefined)}
          onActed={onActed}
        />
      )}
    </section>
  );
}

function sentence(text: string): string {
  return text ? text[0]?.toUpperCase() + text.slice(1) : "";
}

/** What the server says would help, as buttons; and what a run can be asked in its state. */
function offersOf(run: RunAnswer, why: Why): Offer[] {
  const offers: Offer[] = [];
  for (const line of why.commands) {
    const [, verb, , subject = ""] = wordsOf(line);
    if (verb === "approve") {
      offers.push({ action: ACTIONS.approve, title: "Approve", values: { step: subject } });
      offers.push({ action: ACTIONS.reject, title: "Reject", values: { step: subject } });
    } else if (verb === "patch") {
      offers.push({ action: ACTIONS.patch, title: "Patch ctx…", values: {} });
    } else if (verb === "signal") {
      offers.push({ action: ACTIONS.signal, title: `Signal ${subject}…`, values: { name: subject } });
    } else if (verb === "unpause") {
      offers.push({ action: ACTIONS.resume, title: "Resume", values: {} });
    }
  }
  if (run.status === "paused" && !offers.some((each) => each.action.id === "resume")) {
    offers.push({ action: ACTIONS.resume, title: "Resume", values: {} });
  }
  if (run.status === "failed" || run.status === "timed_out") {
    offers.push({ action: ACTIONS.redrive, title: "Redrive", values: {} });
  }
  return offers.filter((each, at) => offers.findIndex((other) => other.title === each.title) === at);
}
