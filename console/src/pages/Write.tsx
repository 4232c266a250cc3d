// A document left; right its graph and its problems while one types, and a trial of it with mocks in virtual time.
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { addressTo, usePlace } from "../address";
import { ask, mayAsk, Refused } from "../api/client";
import type { Graph, Problem as DocumentProblem } from "../api/shapes";
import type { Json } from "../api/types";
import { useAnswer } from "../api/use";
import { Problems } from "../definitions/Problems";
import { Sandbox } from "../definitions/Sandbox";
import { EXAMPLES } from "../definitions/examples";
import type { Resource } from "../definitions/kinds";
import { textOf } from "../definitions/text";
import { Problem } from "../parts/Problem";
import { Tabs } from "../parts/Tabs";

const Editor = lazy(() => import("../editor/Editor"));
const GraphCanvas = lazy(() => import("../graph/GraphCanvas"));
const KEPT = "perdure.draft";
const PAUSE = 350; // milliseconds without a key

interface Checked {
  language: string | null;
  valid: boolean;
  problems: DocumentProblem[];
  warnings: DocumentProblem[];
  findings: { kind: string; certainty: string; message: string; line?: number; hint?: string }[];
  graph: Graph | null;
}

export default function Write() {
  const { query } = usePlace();
  const [kind, namespace, name] = ["kind", "namespace", "name"].map((word) => query.get(word) ?? "") as [string, string, string];
  const stored = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}", Resource>(
    kind && name ? "GET /api/v1/resources/{kind}/{namespace}/{name}" : null,
    { path: { kind, namespace, name } },
  );
  if (!mayAsk("POST /api/v1/check")) return <p className="empty">Writing documents needs a token with the role author.</p>;
  if (kind && stored.error) return <Problem error={stored.error} />;
  if (kind && !stored.answer) return <p className="loading">…</p>;
  const begin = stored.answer ? textOf(stored.answer as unknown as Json) : (sessionStorage.getItem(KEPT) ?? EXAMPLES.story);
  return <Workbench key={`${kind}/${namespace}/${name}`} begin={begin} isStored={!!stored.answer} />;
}

function Workbench({ begin, isStored }: { begin: string; isStored: boolean }) {
  const [source, setSource] = useState({ text: begin, number: 0 });
  const [text, setText] = useState(begin);
  const [checked, setChecked] = useState<Checked>();
  const [error, setError] = useState<Error>();
  const [said, setSaid] = useState("");
  const [view, setView] = useState<"graph" | "try">("graph");
  const providers = useAnswer<"GET /api/v1/providers", { items: { name?: string }[] }>("GET /api/v1/providers");
  const words = useMemo(() => wordsFor(text, providers.answer?.items ?? []), [text, providers.answer]);

  useEffect(() => {
    if (!isStored) sessionStorage.setItem(KEPT, text.slice(0, 1_000_000));
    const stop = new AbortController();
    const timer = setTimeout(() => {
      ask("POST /api/v1/check", { body: { document: text }, signal: stop.signal })
        .then((answer) => {
          setChecked(answer as unknown as Checked);
          setError(undefined);
        })
        .catch((problem: Error) => !stop.signal.aborted && setError(problem));
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, isStored]);

  const problems = useMemo(() => [...(checked?.problems ?? []), ...(checked?.warnings ?? []), ...findingsOf(checked)], [checked]);
  const save = async (): Promise<void> => {
    setSaid("");
    try {
      const answer = await ask("POST /api/v1/resources:apply", { body: { documents: [text] } });
      setSaid(answer.changes.map((change) => `${String(change["kind"])} ${String(change["name"])} ${String(change["result"])}`).join(", "));
      setError(undefined);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  const load = (language: keyof typeof EXAMPLES): void => {
    setText(EXAMPLES[language]);
    setSource({ text: EXAMPLES[language], number: source.number + 1 });
  };
  return (
    <div className="page tall write">
      <div className="page-head">
        <h1>Write</h1>
        <span className="faint" data-testid="verdict" role="status">
          {checked ? `${checked.language ?? "no language"} · ${checked.valid ? "no problem" : `${checked.problems.length} to correct`}` : "…"}
        </span>
        <span className="right">
          Begin with{" "}
          {(Object.keys(EXAMPLES) as (keyof typeof EXAMPLES)[]).map((language) => (
            <button key={language} type="button" className="quiet small" data-testid={`example-${language}`} onClick={() => load(language)}>
              a {language}
            </button>
          ))}
        </span>
        <button type="button" className="primary" data-testid="save" disabled={!checked?.valid} onClick={() => void save()}>
          Save to the catalog
        </button>
      </div>
      {said && (
        <p role="status" data-testid="saved">
          {said}. <a href={addressTo(["definitions"])}>Definitions</a>
        </p>
      )}
      {error && !(error instanceof Refused && error.status === 422 && !said && error.problems.length === 0) && <Problem error={error} />}
      <div className="bench">
        <Suspense fallback={<p className="loading">…</p>}>
          <section className="bench-text" aria-label="Document">
            <Editor key={source.number} text={source.text} label="Document" problems={problems} words={words} onChange={setText} />
          </section>
          <section className="bench-side" aria-label="Findings">
            <Problems problems={problems} />
            <Tabs<"graph" | "try">
              label="Beside the document"
              tabs={[
                { id: "graph", title: "Graph" },
                { id: "try", title: "Try it" },
              ]}
              chosen={view}
              onChoose={setView}
            />
            {view === "graph" &&
              (checked?.graph ? (
                <GraphCanvas graph={checked.graph} label="Graph of the document" />
              ) : (
                <p className="empty">The graph appears when the document has no problem.</p>
              ))}
            {view === "try" && <Sandbox text={text} isValid={checked?.valid ?? false} />}
          </section>
        </Suspense>
      </div>
    </div>
  );
}

/** What may go wrong in a run of a document that is in order. */
function findingsOf(checked: Checked | undefined): DocumentProblem[] {
  return (checked?.findings ?? []).map((finding) => ({
    code: `${finding.kind}, ${finding.certainty}`,
    message: finding.message,
    line: finding.line,
    hint: finding.hint,
    severity: "warning",
  }));
}

/** What is offered while typing: providers, and every name that the document already has. */
function wordsFor(text: string, providers: { name?: string }[]): string[] {
  const own = text.slice(0, 200_000).match(/[A-Za-z_][\w-]{2,40}/g) ?? [];
  return [...new Set([...providers.map((each) => each.name ?? ""), ...own])].filter(Boolean).slice(0, 2_000);
}
