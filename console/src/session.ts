// Who looks at the page: a session made from a code of the address or from a token, kept in a cookie no script can read.
import { useCallback, useEffect, useRef, useState } from "react";
import { ask, onSessionEnd, Refused, setSession } from "./api/client";
import type { Role, WhoAnswer } from "./api/types";

export interface Session {
  who: WhoAnswer | null;
  isKnown: boolean;
  problem: string;
  logIn(token: string): Promise<void>;
  logOut(): Promise<void>;
}

export function useSession(): Session {
  const [who, setWho] = useState<WhoAnswer | null>(null);
  const [isKnown, setKnown] = useState(false);
  const [problem, setProblem] = useState("");

  const enter = useCallback((found: WhoAnswer | null) => {
    setSession(found?.csrf ?? "", (found?.role as Role | undefined) ?? "");
    setWho(found);
    setKnown(true);
  }, []);

  const begin = useCallback(
    async (body: { token: string } | { code: string }): Promise<void> => {
      try {
        enter(await ask("POST /session", { body }));
        setProblem("");
      } catch (error) {
        setProblem((error as Error).message);
        setKnown(true);
      }
    },
    [enter],
  );

  useEffect(
    () =>
      onSessionEnd(() => {
        enter(null); // the address stays: who logs in again is where they were
        setProblem("The session has ended. Log in again to go on here.");
      }),
    [enter],
  );

  const began = useRef(false);
  useEffect(() => {
    if (began.current) return; // a code counts once
    began.current = true;
    const code = /^#login=(.+)$/.exec(window.location.hash)?.[1];
    if (code) {
      window.history.replaceState(null, "", "#/runs");
      window.dispatchEvent(new HashChangeEvent("hashchange"));
      void begin({ code: decodeURIComponent(code) });
      return;
    }
    ask("GET /api/v1/whoami").then(enter, (error: Error) => {
      if (!(error instanceof Refused && error.status === 401)) setProblem(error.message);
      enter(null);
    });
  }, [begin, enter]);

  return {
    who,
    isKnown,
    problem,
    logIn: (token) => begin({ token }),
    logOut: async () => {
      await ask("DELETE /session").catch(() => undefined);
      enter(null);
      setProblem("");
    },
  };
}
