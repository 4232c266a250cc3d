// The frame around every page: navigation, the connection, keys.
import { lazy, Suspense, useEffect, useState } from "react";
import { goTo, usePlace } from "./address";
import { mayAsk } from "./api/client";
import { useIsLost } from "./api/connection";
import type { Routes } from "./api/types";
import { KeyHelp, useKeys } from "./keys";
import { LogIn } from "./pages/LogIn";
import { Runs } from "./pages/Runs";
import { useSession } from "./session";

const Run = lazy(() => import("./pages/Run"));
const Definitions = lazy(() => import("./pages/Definitions"));
const Definition = lazy(() => import("./pages/Definition"));
const Write = lazy(() => import("./pages/Write"));
const System = lazy(() => import("./pages/System"));
const Compare = lazy(() => import("./pages/Compare"));

const PAGES: { id: string; title: string; key: string; route?: keyof Routes }[] = [
  { id: "runs", title: "Runs", key: "r" },
  { id: "definitions", title: "Definitions", key: "d" },
  { id: "write", title: "Write", key: "w", route: "POST /api/v1/check" },
  { id: "system", title: "System", key: "s" },
];
const KNOWN = [...PAGES.map(({ id }) => id as string), "compare"];

export function App() {
  const session = useSession();
  const place = usePlace();
  const isLost = useIsLost();
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [page = "runs", ...rest] = place.path;

  const pages = PAGES.filter(({ route }) => !route || mayAsk(route));
  const jumps = pages.map((each) => ({
    keys: `g ${each.key}`,
    does: `go to ${each.title}`,
    act: () => goTo(`#/${each.id}`),
  }));
  useKeys([...jumps, { keys: "?", does: "show the keys", act: () => setHelpOpen(true) }]);

  useEffect(() => {
    const title = PAGES.find((each) => each.id === page)?.title ?? "Perdure";
    document.title = rest.length ? `${rest.at(-1)?.slice(0, 60)} · Perdure` : `${title} · Perdure`;
  }, [page, rest]);

  if (!session.isKnown) return <p className="loading">…</p>;
  if (!session.who) return <LogIn session={session} />;
  return (
    <div className="shell">
      <a className="skip" href="#page" onClick={(event) => (event.preventDefault(), document.getElementById("page")?.focus())}>
        Skip to the page
      </a>
      <header className="top">
        <a className="brand" href="#/runs">
          Perdure
        </a>
        <nav aria-label="Pages">
          {pages.map((each) => (
            <a
              key={each.id}
              href={`#/${each.id}`}
              data-testid={`go-${each.id}`}
              aria-current={page === each.id || (page === "compare" && each.id === "runs") ? "page" : undefined}
            >
              {each.title}
            </a>
          ))}
        </nav>
        <div className="who">
          <span data-testid="who" title={`role ${session.who.role}`}>
            {session.who.name} <span className="faint">{session.who.role}</span>
          </span>
          <button type="button" className="quiet small" onClick={() => setHelpOpen(true)} aria-label="Keys">
            ?
          </button>
          <button type="button" className="quiet small" data-testid="log-out" onClick={() => void session.logOut()}>
            Log out
          </button>
        </div>
      </header>
      <div className="banner" role="status" data-testid="banner" hidden={!isLost}>
        {isLost && "The server does not answer. What is shown may be old; the console tries again by itself."}
      </div>
      <main id="page" tabIndex={-1}>
        <Suspense fallback={<p className="loading">…</p>}>
          {page === "runs" && (rest[0] ? <Run key={rest[0]} id={rest[0]} /> : <Runs />)}
          {page === "definitions" &&
            (rest.length >= 3 ? (
              <Definition key={rest.join("/")} kind={rest[0] ?? ""} namespace={rest[1] ?? ""} name={rest[2] ?? ""} />
            ) : (
              <Definitions />
            ))}
          {page === "write" && <Write />}
          {page === "system" && <System />}
          {page === "compare" && <Compare />}
          {!KNOWN.includes(page) && (
            <p className="empty" data-testid="no-page">
              There is no page “{page.slice(0, 60)}”. <a href="#/runs">Runs</a>
            </p>
          )}
        </Suspense>
      </main>
      {isHelpOpen && <KeyHelp onClose={() => setHelpOpen(false)} />}
    </div>
  );
}
