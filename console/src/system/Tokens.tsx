// Tokens: who may do what. A new one is shown once; a revoked one is refused at once.
import { useState } from "react";
import { ask, mayAsk } from "../api/client";
import type { TokenBody } from "../api/types";
import { useAnswer } from "../api/use";
import { Line } from "../parts/Copy";
import { Dialog } from "../parts/Dialog";
import { Problem } from "../parts/Problem";
import { command } from "../run/commands";
import { Section, Table, type Row } from "./Table";

const COLUMNS = ["name", "role", "namespaces", "pools", "created_at", "expires_at"];
const ROLES = ["viewer", "operator", "author", "admin", "worker"] as const;
const DAY = 86_400;

export function Tokens() {
  const { answer, error, refresh } = useAnswer<"GET /api/v1/tokens", { items: Row[] }>("GET /api/v1/tokens");
  const [isMaking, setMaking] = useState(false);
  const [revoked, setRevoked] = useState("");
  const close = (): void => {
    setMaking(false);
    setRevoked("");
    refresh();
  };
  return (
    <Section title="Tokens">
      <Problem error={error} />
      {answer && (
        <Table
          rows={answer.items}
          columns={COLUMNS}
          empty="There is none."
          label="Tokens"
          act={(row) =>
            row["revoked_at"] ? (
              <span className="faint">revoked</span>
            ) : (
              <button type="button" className="quiet small" aria-label={`Revoke ${String(row["name"])}`} onClick={() => setRevoked(String(row["name"]))}>
                Revoke…
              </button>
            )
          }
        />
      )}
      {mayAsk("POST /api/v1/tokens") && (
        <button type="button" className="small" data-testid="make-token" onClick={() => setMaking(true)}>
          Make a token…
        </button>
      )}
      {isMaking && <NewToken onClose={close} />}
      {revoked && <Revocation name={revoked} onClose={close} />}
    </Section>
  );
}

function NewToken({ onClose }: { onClose(): void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<(typeof ROLES)[number]>("viewer");
  const [places, setPlaces] = useState("");
  const [days, setDays] = useState("90");
  const [made, setMade] = useState("");
  const [error, setError] = useState<Error>();
  const listed = places.split(/[\s,]+/).filter(Boolean);
  const isWorker = role === "worker";
  const lasts = Number(days) > 0 ? Number(days) : null;
  const body: TokenBody = { name, role, ...(isWorker ? { pools: listed } : { namespaces: listed }), expires_in: lasts && lasts * DAY };
  const make = async (): Promise<void> => {
    try {
      setMade((await ask("POST /api/v1/tokens", { body })).token);
      setError(undefined);
    } catch (refused) {
      setError(refused as Error);
    }
  };
  return (
    <Dialog title="Make a token" onClose={onClose} testId="token-dialog">
      {made ? (
        <>
          <p>Copy it now: it is not shown again, and the server keeps only its digest.</p>
          <Line label="token" text={made} testId="new-token" />
        </>
      ) : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void make();
          }}
        >
          <div className="field">
            <label htmlFor="token-name">Name</label>
            <input id="token-name" data-testid="token-name" required value={name} onChange={(event) => setName(event.target.value)} />
            <span className="faint">as the audit log calls it</span>
          </div>
          <div className="field">
            <label htmlFor="token-role">Role</label>
            <select id="token-role" data-testid="token-role" value={role} onChange={(event) => setRole(event.target.value as typeof role)}>
              {ROLES.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </div>
          <div className="field">
            <label htmlFor="token-places">{isWorker ? "Pools" : "Namespaces"}</label>
            <input id="token-places" data-testid="token-places" value={places} onChange={(event) => setPlaces(event.target.value)} />
            <span className="faint">{isWorker ? "separated by blanks" : "separated by blanks; none means all"}</span>
          </div>
          <div className="field">
            <label htmlFor="token-days">Days until it expires</label>
            <input id="token-days" type="number" min="0" value={days} onChange={(event) => setDays(event.target.value)} />
            <span className="faint">empty means never</span>
          </div>
          <Problem error={error} />
          <Line
            label="command line"
            text={command(
              "token",
              "create",
              "--name",
              name || "NAME",
              "--role",
              role,
              ...listed.flatMap((each) => [isWorker ? "--pool" : "--namespace", each]),
              ...(lasts ? ["--expires", `${lasts}d`] : []),
            )}
          />
          <footer className="dialog-foot">
            <button type="submit" className="primary" data-testid="confirm" disabled={!name}>
              Make it
            </button>
          </footer>
        </form>
      )}
    </Dialog>
  );
}

function Revocation({ name, onClose }: { name: string; onClose(): void }) {
  const [error, setError] = useState<Error>();
  const revoke = async (): Promise<void> => {
    try {
      await ask("DELETE /api/v1/tokens/{name}", { path: { name } });
      onClose();
    } catch (refused) {
      setError(refused as Error);
    }
  };
  return (
    <Dialog title={`Revoke ${name.slice(0, 80)}`} onClose={onClose} testId="revoke-dialog">
      <p>Every request with this token is refused from now on. It cannot be undone.</p>
      <Problem error={error} />
      <Line label="command line" text={command("token", "revoke", name)} />
      <footer className="dialog-foot">
        <button type="button" className="danger" data-testid="confirm" onClick={() => void revoke()}>
          Revoke
        </button>
      </footer>
    </Dialog>
  );
}
