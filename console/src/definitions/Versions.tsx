// What an entry said before, with what changed between two versions.
import { useMemo, useState } from "react";
import type { Json } from "../api/types";
import { useAnswer } from "../api/use";
import { Difference } from "../parts/Difference";
import { Problem } from "../parts/Problem";
import { Time } from "../parts/Time";
import { size } from "../words";
import { textOf } from "./text";

interface Version {
  version: number;
  created_at: string;
  bytes: number;
}

export function Versions({ path }: { path: { kind: string; namespace: string; name: string } }) {
  const { answer, error } = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}/versions", { items: Version[] }>(
    "GET /api/v1/resources/{kind}/{namespace}/{name}/versions",
    { path },
  );
  const [chosen, setChosen] = useState<number>();
  const items = answer?.items ?? [];
  const newer = chosen ?? items[0]?.version;
  const older = items.find((item) => newer !== undefined && item.version < newer)?.version;
  const [one, other] = [useVersion(path, older), useVersion(path, newer)];
  if (error) return <Problem error={error} />;
  return (
    <div className="versions">
      <ul aria-label="Versions">
        {items.map((item) => (
          <li key={item.version}>
            <button type="button" aria-pressed={item.version === newer} data-testid="version" onClick={() => setChosen(item.version)}>
              version {item.version}
            </button>{" "}
            <Time at={item.created_at} /> <span className="faint">{size(item.bytes)}</span>
          </li>
        ))}
      </ul>
      <div className="scroll" data-testid="version-diff">
        {older === undefined ? (
          <pre className="padded" tabIndex={0}>
            {other}
          </pre>
        ) : (
          <Difference one={one} other={other} label={`from version ${older} to ${newer}`} />
        )}
      </div>
    </div>
  );
}

function useVersion(path: { kind: string; namespace: string; name: string }, version: number | undefined): string {
  const { answer } = useAnswer<"GET /api/v1/resources/{kind}/{namespace}/{name}/versions/{version}", { document: Json }>(
    version === undefined ? null : "GET /api/v1/resources/{kind}/{namespace}/{name}/versions/{version}",
    { path: { ...path, version: String(version) } },
  );
  return useMemo(() => (answer ? textOf(answer.document) : ""), [answer]);
}
