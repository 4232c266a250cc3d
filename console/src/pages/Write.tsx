// A document left; right its graph and its problems while one types, and a trial of it with mocks in virtual time.
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { addressTo, usePlace } from "../address";
import { ask, mayAsk, Refused } from "../api/client";
import type { Json } from "../api/types";
import { useAnswer } from "../api/use";
import { lineOfStep, listedOf, stepsOf, withExample, type Checked, type Finding } from "../definitions/checked";
import { Impact } from "../definitions/Impact";
import { Problems } from "../definitions/Problems";
import { Sandbox } from "../definitions/Sandbox";
import { EXAMPLES } from "../definitions/examples";
import { KINDS, type Resource } from "../definitions/kinds";
import { textOf } from "../definitions/text";
import { merged, offersOf, type Offer } from "../editor/completion";
import { offersAt } from "../editor/schema";
import { Problem } from "../parts/Problem";
import { Tabs } from "../parts/Tabs";
import { count } from "../words";

const Editor = lazy(() => import("../editor/Editor"));
const GraphCanvas = lazy(() => import("../graph/GraphCanvas"));
const KEPT = "perdure.draft";
type Side = "graph" | "try" | "impact";
const PAUSE = 350; // milliseconds without a key

export default function Write() {
  const { query } = usePlace();
  const [kind, namespace, name] = ["kind", "namespace", "name"].map((word) => query.get(word) ?? "") as [string, string, string];
  const stored = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}", Resource>(
    kind && name ? "GET /api/v1/resources/{kind}/{namespace}/{name}" : null,
    { path: { kind, namespace, name } },
  );
  const canRun = KINDS.find((each) => each.plural === kind)?.canRun;
  const source = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}/source", { text: string }>(
    canRun && name ? "GET /api/v1/resources/{kind}/{namespace}/{name}/source" : null,
    { path: { kind, namespace, name } },
  );
  if (!mayAsk("POST /api/v1/check")) return <p className="empty">Writing documents needs a token with the role author.</p>;
  if (kind && stored.error) return <Problem error={stored.error} />;
  if (kind && (!stored.answer || (canRun && !source.answer && !source.error))) return <p className="loading">…</p>;
  const begin = source.answer?.text ?? (stored.answer ? textOf(stored.answer as unknown as Json) : undefined) ?? sessionStorage.getItem(KEPT) ?? EXAMPLES.story;
  return <Workbench key={`${kind}/${namespace}/${name}`} begin={begin} isStored={!!stored.answer} name={name} namespace={namespace} />;
}

interface Begun {
  begin: string;
  isStored: boolean;
  name: string;
  namespace: string;
}

function Workbench({ begin, isStored, name, namespace }: Begun) {
  const [source, setSource] = useState({ text: begin, number: 0 });
  const [text, setText] = useState(begin);
  const [checked, setChecked] = useState<Checked>();
  const [error, setError] = useState<Error>();
  const [said, setSaid] = useState("");
  const [view, setView] = useState<Side>("graph");
  const providers = useProviders();
  const words = useMemo(() => merged(providers, text), [providers, text]);
  const [language, setLanguage] = useState("");
  useEffect(() => {
    if (checked?.language) setLanguage(checked.language); // a document that cannot be read keeps the one it had
  }, [checked]);
  const schema = useAnswer(language ? "GET /api/v1/schemas/{language}" : null, { path: { language } });

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

  const problems = useMemo(() => listedOf(checked), [checked]);
  const [line, setLine] = useState<{ number: number }>();
  const [example, setExample] = useState<Finding>();
  const isKnown = example !== undefined && checked?.findings.includes(example) === true;
  const graph = checked?.graph && isKnown ? withExample(checked.graph, example) : checked?.graph;
  const isFlow = checked?.language === "flow"; // which has no name of its own
  const [flowName, setFlowName] = useState(name);
  const isNamed = !isFlow || flowName !== "";
  const save = async (): Promise<void> => {
    setSaid("");
    try {
      const files = isFlow ? { files: [`${flowName}.json`] } : {};
      const answer = await ask("POST /api/v1/resources:apply", { body: { documents: [text], namespace, ...files } });
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
          {checked ? `${checked.language ?? "no language"} · ${checked.valid ? (checked.findings.length ? count(checked.findings.length, "finding") : "no problem") : `${checked.problems.length} to correct`}` : "…"}
        </span>
        <span className="right">
          Begin with{" "}
          {(Object.keys(EXAMPLES) as (keyof typeof EXAMPLES)[]).map((language) => (
            <button key={language} type="button" className="quiet small" data-testid={`example-${language}`} onClick={() => load(language)}>
              a {language}
            </button>
          ))}
        </span>
        {isFlow && (
          <input
            aria-label="Name of the Flow"
            placeholder="name of the Flow"
            data-testid="flow-name"
            value={flowName}
            onChange={(event) => setFlowName(event.target.value)}
          />
        )}
        <button type="button" className="primary" data-testid="save" disabled={!checked?.valid || (isFlow && !flowName)} onClick={() => void save()}>
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
            <Editor
              key={source.number}
              text={source.text}
              label="Document"
              problems={problems}
              words={words}
              offersAt={(typed, position) => offersAt(schema.answer, typed, position)}
              line={line}
              onChange={setText}
            />
          </section>
          <section className="bench-side" aria-label="Findings">
            <Problems
              problems={problems}
              onLine={(number) => setLine({ number })}
              shown={isKnown ? example : undefined}
              onExample={(finding) => {
                setExample(finding);
                setView("graph");
              }}
            />
            <Tabs<Side>
              label="Beside the document"
              tabs={[
                { id: "graph", title: "Graph" },
                { id: "try", title: "Try it" },
                ...(mayAsk("POST /api/v1/impact") && isNamed ? [{ id: "impact" as const, title: "Open runs" }] : []),
              ]}
              chosen={view}
              onChoose={setView}
            />
            {view === "graph" &&
              (graph ? (
                <Suspense fallback={<p className="loading">…</p>}>
                  <GraphCanvas
                    graph={graph}
                    label="Graph of the document"
                    onSelect={(node) => {
                      const number = lineOfStep(text, node.label);
                      if (number) setLine({ number });
                    }}
                  />
                </Suspense>
              ) : (
                <p className="empty">The graph appears when the document has no problem.</p>
              ))}
            {view === "impact" && isNamed && (
              <Impact text={text} name={isFlow ? flowName : name} namespace={namespace} steps={stepsOf(checked?.graph)} isValid={checked?.valid ?? false} />
            )}
            {view === "try" && <Sandbox text={text} isValid={checked?.valid ?? false} />}
          </section>
        </Suspense>
      </div>
    </div>
  );
}

/** What is offered while typing: providers with their parameters, members of the kinds of a Story. */
/** What is offered where the schema of the language says nothing: providers and their parameters. */
function useProviders(): Offer[][] {
  const providers = useAnswer<"GET /api/v1/providers", { items: { name?: string; description?: string; parameters?: Json }[] }>("GET /api/v1/providers");
  return useMemo(() => {
    const listed = (providers.answer?.items ?? []).filter((each) => each.name);
    const names = listed.map((each) => ({ label: each.name ?? "", type: "function", detail: "provider", info: each.description ?? "" }));
    return [names, ...listed.map((each) => offersOf(each.parameters, each.name ?? ""))];
  }, [providers.answer]);
}
