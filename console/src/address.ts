// Where the reader is: everything that a link should keep is behind the `#` of the address, which no server sees.
import { useMemo, useSyncExternalStore } from "react";

export interface Place {
  path: string[];
  query: URLSearchParams;
}

type Words = Record<string, string | number | string[] | null | undefined>;

export function placeOf(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function addressTo(path: string[], words: Words = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(words)) {
    if (Array.isArray(value)) value.forEach((each) => query.append(name, each));
    else if (value !== null && value !== undefined && value !== "") query.append(name, String(value));
  }
  const text = query.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function goTo(address: string): void {
  window.location.hash = address;
}

/** The same page with some words changed; `replace` leaves no step behind for the back button. */
export function change(words: Words, { replace = false } = {}): void {
  const { path, query } = placeOf(window.location.hash);
  for (const [name, value] of Object.entries(words)) {
    query.delete(name);
    if (Array.isArray(value)) value.forEach((each) => query.append(name, each));
    else if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  const address = `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
  if (address === window.location.hash) return;
  if (replace) {
    window.history.replaceState(null, "", address);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    window.location.hash = address;
  }
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

export function usePlace(): Place {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash);
  return useMemo(() => placeOf(hash), [hash]);
}
