// Lines of two texts, matched by their longest common part. Pure.
export interface Change {
  kind: "+" | "-" | " " | "…";
  text: string;
}

const MOST = 4_000_000; // cells of the table; beyond, everything is shown as replaced

export function compareLines(one: string, other: string): Change[] {
  const a = one.split("\n");
  const b = other.split("\n");
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin += 1;
  let end = 0;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const same = (lines: string[]): Change[] => lines.map((text) => ({ kind: " ", text }));
  const middle = matched(a.slice(begin, a.length - end), b.slice(begin, b.length - end));
  return [...same(a.slice(0, begin)), ...middle, ...same(a.slice(a.length - end))];
}

function matched(a: string[], b: string[]): Change[] {
  const gone = (text: string): Change => ({ kind: "-", text });
  const fresh = (text: string): Change => ({ kind: "+", text });
  if (a.length * b.length > MOST) return [...a.map(gone), ...b.map(fresh)];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        a[i] === b[j]
          ? (table[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(table[(i + 1) * width + j] ?? 0, table[i * width + j + 1] ?? 0);
    }
  }
  const changes: Change[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      changes.push({ kind: " ", text: a[i] ?? "" });
      i += 1;
      j += 1;
    } else if ((table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0)) {
      changes.push(gone(a[i++] ?? ""));
    } else {
      changes.push(fresh(b[j++] ?? ""));
    }
  }
  return [...changes, ...a.slice(i).map(gone), ...b.slice(j).map(fresh)];
}
