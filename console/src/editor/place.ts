// Where in a document the cursor is: the members that lead there, and the plain values beside them. Pure.
// Documents are incomplete while one types, so they are not parsed: JSON is scanned, YAML is read by its indents.

export interface Level {
  step: string | number | null; // the member or item that leads further in; null at the cursor
  values: Record<string, string>; // members of this object with plain values
  names: Set<string>; // all of them that were seen
}

export interface Place {
  levels: Level[];
  member: string | null; // whose value is typed; null: the name of a member
}

const level = (): Level => ({ step: null, values: {}, names: new Set() });

export function placeIn(text: string, position: number): Place | null {
  return text.trimStart().startsWith("{") ? placeInJson(text.slice(0, position)) : placeInYaml(text, position);
}

/** The place at the end of a text that begins a JSON value, or a flow collection of YAML. */
export function placeInJson(text: string): Place | null {
  const levels: Level[] = [];
  const lists: boolean[] = [];
  let member: string | null = null;
  let word = "";
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at] ?? "";
    const top = levels.at(-1);
    if (sign === '"' || sign === "'") {
      const end = endOfText(text, at);
      if (end < 0) break;
      word = text.slice(at + 1, end);
      at = end;
    } else if (sign === "{" || sign === "[") {
      if (top) top.step = lists.at(-1) ? (typeof top.step === "number" ? top.step : 0) : member;
      levels.push(level());
      lists.push(sign === "[");
      member = null;
      word = "";
    } else if (sign === "}" || sign === "]") {
      levels.pop();
      lists.pop();
      const back = levels.at(-1);
      member = back && !lists.at(-1) ? (back.step as string) : null;
      if (back) back.step = null;
      word = "";
    } else if (sign === ":" && top && !lists.at(-1) && member === null) {
      member = word.trim();
      top.names.add(member);
      word = "";
    } else if (sign === "," && top) {
      if (member !== null && word.trim()) top.values[member] = word.trim();
      member = null;
      word = "";
    } else if (sign !== "\n") {
      word += sign;
    }
  }
  const top = levels.at(-1);
  if (!top) return null;
  if (lists.at(-1)) {
    top.step = 0;
    levels.push(level());
    return { levels, member: null };
  }
  return { levels, member };
}

function endOfText(text: string, begin: number): number {
  for (let at = begin + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === text[begin]) return at;
    else if (text[at] === "\n") return -1;
  }
  return -1;
}

interface Line {
  dashes: number[]; // where items begin on it
  indent: number; // where its member begins
  name: string | null;
  value: string;
}

const MEMBER = /^("[^"]*"|'[^']*'|[^\s:#{}[\],&*!|>'"%@`-][^:#]*?|-[^\s:][^:#]*?):(?:\s+(.*)|)$/;

function readLine(text: string): Line | null {
  const trimmed = text.trimEnd();
  if (!trimmed.trim() || trimmed.trimStart().startsWith("#")) return null;
  let indent = trimmed.length - trimmed.trimStart().length;
  const dashes: number[] = [];
  while (trimmed[indent] === "-" && (trimmed[indent + 1] === " " || indent + 1 === trimmed.length)) {
    dashes.push(indent);
    indent += 1;
    while (trimmed[indent] === " ") indent += 1;
  }
  const match = MEMBER.exec(trimmed.slice(indent));
  return { dashes, indent, name: match ? unquoted(match[1] ?? "") : null, value: (match?.[2] ?? "").trim() };
}

const unquoted = (text: string): string => text.replace(/^(["'])(.*)\1$/, "$2");

function placeInYaml(text: string, position: number): Place | null {
  const begin = text.lastIndexOf("---\n", position - 1);
  const before = text.slice(begin < 0 ? 0 : begin + 4, position).split("\n");
  const typed = before.pop() ?? "";
  const here = readLine(typed) ?? { dashes: [], indent: typed.length, name: null, value: "" };
  const inner: Level[] = [];
  let member: string | null = here.name;
  const flow = /^\s*(?:- +)*(?:[^{[]*:\s+)?([{[].*)$/.exec(typed);
  if (flow?.[1]) {
    const place = placeInJson(flow[1]);
    if (place) {
      inner.push(...place.levels);
      member = place.member;
    }
  }
  // Levels from the cursor outwards.
  let current = level();
  if (inner.length > 0) current.step = here.name ?? 0;
  const levels: Level[] = [current];
  let indent = here.indent;
  let items = [...here.dashes];
  const enclose = (step: string | number): void => {
    current = level();
    current.step = step;
    levels.unshift(current);
  };
  const leaveItems = (): void => {
    while (items.length > 0) {
      indent = items.pop() ?? 0;
      enclose(0);
    }
  };
  leaveItems();
  let isItem = here.dashes.length > 0; // what is looked for is the member that has the list
  for (const line of before.reverse()) {
    const read = readLine(line);
    if (!read || (read.name === null && read.dashes.length === 0)) continue;
    const outermost = read.dashes[0] ?? read.indent;
    if (isItem ? read.dashes.length === 0 && read.indent <= indent : read.indent < indent) {
      if (read.name === null) continue;
      enclose(read.name);
      note(current, read, false);
      indent = read.indent;
      isItem = false;
    } else if (!isItem && read.indent === indent) {
      note(current, read, true);
    } else {
      continue;
    }
    if (read.dashes.length > 0) {
      items = [...read.dashes];
      leaveItems();
      isItem = true;
    }
    if (outermost === 0 && !isItem && indent === 0) continue;
  }
  return { levels: [...levels, ...inner], member };
}

function note(into: Level, line: Line, isSibling: boolean): void {
  if (line.name === null) return;
  into.names.add(line.name);
  if (isSibling && line.value && !/^[{[|>&*]/.test(line.value)) into.values[line.name] = unquoted(line.value.replace(/\s+#.*$/, ""));
}
