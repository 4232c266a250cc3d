import { useState, type FormEvent } from "react";
import type { Session } from "../session";

export function LogIn({ session }: { session: Session }) {
  const [token, setToken] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void session.logIn(token.trim());
  };
  return (
    <main className="log-in">
      <h1>Perdure</h1>
      <form onSubmit={submit}>
        <label htmlFor="token">Access token</label>
        <input
          id="token"
          data-testid="token"
          type="password"
          autoComplete="off"
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <button type="submit" className="primary" data-testid="log-in" disabled={!token.trim()}>
          Log in
        </button>
      </form>
      {session.problem && (
        <p className="problem" role="alert" data-testid="log-in-problem">
          {session.problem}
        </p>
      )}
      <p className="faint">
        The first start of a server leaves an address that logs in once, and a token beside it. Another token:{" "}
        <code>perdure token create --name NAME --role operator</code>
      </p>
    </main>
  );
}
