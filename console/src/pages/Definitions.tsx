// The catalog: what can be run, and what it refers to.
import { mayAsk } from "../api/client";
import { useState } from "react";
import { addressTo, change, usePlace } from "../address";
import { useAnswer } from "../api/use";
import { KINDS, type Resource } from "../definitions/kinds";
import { Problem } from "../parts/Problem";
import { StatusIcon } from "../parts/Status";
import { Tabs } from "../parts/Tabs";
import { Time } from "../parts/Time";
import { oneLine } from "../words";

function Validity({ state }: { state: string }) {
  return (
    <span className="status">
      <StatusIcon status={state === "valid" ? "done" : state === "invalid" ? "failed" : "partial"} /> {state}
    </span>
  );
}

export default function Definitions() {
  const { query } = usePlace();
  const kind = KINDS.find((each) => each.plural === query.get("kind")) ?? KINDS[0]!;
  const [words, setWords] = useState("");
  const { answer, error } = useAnswer<"GET /api/v1/resources/{kind}", { items: Resource[]; next?: string }>(
    "GET /api/v1/resources/{kind}",
    { path: { kind: kind.plural }, query: { limit: 1000 } },
  );
  const items = (answer?.items ?? []).filter((item) => item.metadata.name.toLowerCase().includes(words.toLowerCase()));
  return (
    <div className="page">
      <div className="page-head">
        <h1>Definitions</h1>
        <input
          type="search"
          aria-label="Search definitions"
          placeholder="Search"
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        {mayAsk("POST /api/v1/check") && (
          <a className="right" href={addressTo(["write"])} data-testid="write-new">
            Write a new one
          </a>
        )}
      </div>
      <Tabs
        label="Kinds"
        tabs={KINDS.map((each) => ({ id: each.plural, title: each.title }))}
        chosen={kind.plural}
        onChoose={(plural) => change({ kind: plural })}
      />
      <Problem error={error} />
      <div className="wide framed-below" tabIndex={0} role="region" aria-label="Definitions" hidden={items.length === 0}>
        <table className="table definitions" data-testid="definitions">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Namespace</th>
              <th scope="col">Version</th>
              <th scope="col">Created</th>
              <th scope="col">State</th>
            </tr>
          </thead>
          <tbody>
            {items.map((item) => (
              <tr key={`${item.metadata.namespace}/${item.metadata.name}`}>
                <td>
                  <a href={addressTo(["definitions", kind.plural, item.metadata.namespace ?? "-", item.metadata.name])}>
                    <bdi>{oneLine(item.metadata.name, 120)}</bdi>
                  </a>
                </td>
                <td>{item.metadata.namespace ?? ""}</td>
                <td className="number">{item.metadata.generation ?? ""}</td>
                <td>{item.metadata.creationTimestamp && <Time at={item.metadata.creationTimestamp} />}</td>
                <td>{item.status?.validationStatus && <Validity state={item.status.validationStatus} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {answer?.next && <p className="faint table-foot">The first 1,000 are listed, and searched.</p>}
      {answer && answer.items.length > 0 && items.length === 0 && <p className="empty">No name has these words.</p>}
      {answer && answer.items.length === 0 && (
        <p className="empty">
          None yet. <code>perdure apply -f FILE</code> stores one
          {mayAsk("POST /api/v1/check") && (
            <>
              , or <a href="#/write">write it here</a>
            </>
          )}
          .
        </p>
      )}
    </div>
  );
}
