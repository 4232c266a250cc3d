// The same act elsewhere: as a command line, and as a request.
import type { Json } from "../api/types";

export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export function command(...words: string[]): string {
  return ["perdure", ...words.map(quoted)].join(" ");
}

export function curl(method: string, address: string, body?: unknown): string {
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push("-H", '"Authorization: Bearer $TOKEN"');
  if (body !== undefined) parts.push("-H 'Content-Type: application/json' -d", quoted(JSON.stringify(body as Json)));
  parts.push(quoted(`${window.location.origin}${address}`));
  return parts.join(" ");
}

/** The words of a command line, as a shell reads them. */
export function wordsOf(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((found) => found[1] ?? found[2] ?? found[3] ?? "");
}
