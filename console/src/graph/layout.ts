// Places nodes and leads edges around them. Dagre lays out what is directly inside each frame, the innermost frames
// first. Pure; runs in a worker.
import { Graph, layout } from "@dagrejs/dagre";
import { pathAround, pathBack, pathToItself, type Band, type Point } from "./path";

export interface Box {
  id: string;
  parent: string;
  x: number; // in its frame
  y: number;
  width: number;
  height: number;
}

/** The line of an edge, and the middle of its label. */
export interface Line {
  path: string;
  label: Point;
}

export interface Layout {
  boxes: Box[];
  lines: (Line | null)[]; // of the edges, in their order; null: its ends are in different frames
}

export interface LaidNode {
  id: string;
  parent?: string;
}

export interface LaidEdge {
  from: string;
  to: string;
  label?: number; // its width in pixels
}

type Size = { width: number; height: number };
type Placed = Point & Size;
interface Frame {
  lines: { edge: number; draw(by: Point): Line }[];
}

export const NODE = { width: 196, height: 54 };
const HEAD = 42; // of a frame, above what is in it
const PAD = 14;
const BETWEEN_RANKS = 48;
const ARROW = 12; // which a line ends with, straight
const BETWEEN_NODES = 22;
const LABEL = 14; // its height
const BESIDE_RANK = 8;
const BESIDE_NODE = 20;
const LANE = 12; // between lines that go beside each other

export function place(nodes: LaidNode[], edges: LaidEdge[]): Layout {
  const parents = new Map(nodes.map((node) => [node.id, node.parent ?? ""]));
  const inside = new Map<string, string[]>();
  for (const { id, parent } of nodes) {
    const frame = parents.has(parent ?? "") ? (parent ?? "") : "";
    parents.set(id, frame);
    inside.set(frame, [...(inside.get(frame) ?? []), id]);
  }
  const boxes: Box[] = [];
  const frames = new Map<string, Frame>();

  const lay = (frame: string): Size => {
    const members = inside.get(frame) ?? [];
    const graph = new Graph({ multigraph: true, compound: false });
    graph.setGraph({ rankdir: "TB", nodesep: BETWEEN_NODES, edgesep: LANE, ranksep: BETWEEN_RANKS });
    for (const id of members) graph.setNode(id, inside.has(id) ? framed(lay(id)) : { ...NODE });
    const own = edges.map((edge, index) => ({ ...edge, index, ...endsIn(edge, frame, parents) })).filter(({ a, b }) => a && b);
    const back = backwards(members, own.map(({ a, b }) => [a, b] as const));
    const forward = own.filter(({ a, b }, number) => a !== b && !back.has(number));
    for (const { a, b, index, label } of forward) {
      graph.setEdge(a, b, { width: label ?? 0, height: label ? LABEL : 0, labelpos: "c" }, String(index));
    }
    layout(graph);

    const at = new Map(members.map((id) => [id, graph.node(id) as Placed]));
    const bends = forward.map(({ a, b, index }) => graph.edge(a, b, String(index)) as { points: Point[] } & Placed);
    const bands = bandsOf([...at.values(), ...bends.filter((bend) => bend.width > 0)]);
    const lines: Frame["lines"] = [];
    let [left, right] = [0, 0];
    const span = (one: number, other: number): void => void ([left, right] = [Math.min(left, one), Math.max(right, other)]);
    for (const box of at.values()) span(box.x - box.width / 2, box.x + box.width / 2);
    forward.forEach(({ a, b, from, to, index, label }, number) => {
      const bend = bends[number]!;
      const kept = bend.points.slice(1, -1).flatMap((point) => bandAt(bands, point) ?? []);
      for (const { x } of kept) span(x - LANE, x + LANE);
      if (label) span(bend.x - label / 2, bend.x + label / 2);
      if (from !== a || to !== b) return;
      const [source, target] = [at.get(a)!, at.get(b)!];
      const middle = label ? { x: bend.x, y: bend.y } : { x: (source.x + target.x) / 2, y: (bottom(source) + top(target)) / 2 };
      const way = [
        { x: source.x, top: bottom(source), bottom: bandAt(bands, source)!.bottom },
        ...kept,
        { x: target.x, top: bandAt(bands, target)!.top - ARROW, bottom: top(target) },
      ];
      const draw = (by: Point): Line => ({ path: pathAround(way.map((band) => movedBand(band, by))), label: shift(middle, by) });
      lines.push({ edge: index, draw });
    });
    const lanes: Band[] = [];
    own.forEach(({ a, b, from, to, index, label }, number) => {
      if ((a !== b && !back.has(number)) || from !== a || to !== b) return;
      const [source, target] = [at.get(a)!, at.get(b)!];
      const beside = [...at.values()].filter((box) => bottom(box) >= top(target) && top(box) <= bottom(source));
      let lane = Math.max(...(a === b ? [source] : beside).map((box) => box.x + box.width / 2)) + BESIDE_NODE;
      while (lanes.some((taken) => taken.x === lane && taken.top < bottom(source) && taken.bottom > top(target))) lane += LANE;
      lanes.push({ x: lane, top: top(target), bottom: bottom(source) });
      span(left, lane + Math.max(1, (label ?? 0) / 2));
      const isLast = (box: Placed): boolean => ![...at.values()].some((other) => other.x > box.x && Math.round(other.y) === Math.round(box.y));
      const low = isLast(source) ? null : bandAt(bands, source)!.bottom + BESIDE_RANK;
      const high = isLast(target) ? null : bandAt(bands, target)!.top - BESIDE_RANK;
      const draw = (by: Point): Line => ({
        path:
          a === b
            ? pathToItself(moved(source, by))
            : pathBack(moved(source, by), low === null ? null : low + by.y, lane + by.x, moved(target, by), high === null ? null : high + by.y),
        label: shift({ x: lane, y: (source.y + target.y) / 2 }, by),
      });
      lines.push({ edge: index, draw });
    });

    let height = 0;
    for (const [id, box] of at) {
      const x = box.x - box.width / 2 - left + (frame ? PAD : 0);
      const y = top(box) + (frame ? HEAD : 0);
      boxes.push({ id, parent: frame, x, y, width: box.width, height: box.height });
      height = Math.max(height, bottom(box));
    }
    frames.set(frame, { lines: lines.map(({ edge: number, draw }) => ({ edge: number, draw: (by) => draw(shift({ x: -left, y: 0 }, by)) })) });
    return { width: right - left, height };
  };
  lay("");

  // Lines are drawn on the whole picture, boxes in their frames.
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const corner = (frame: string): Point => {
    const box = byId.get(frame);
    return box ? shift({ x: box.x, y: box.y }, corner(box.parent)) : { x: 0, y: 0 };
  };
  const lines: Layout["lines"] = edges.map(() => null);
  for (const [frame, { lines: drawn }] of frames) {
    const by = shift(corner(frame), frame ? { x: PAD, y: HEAD } : { x: 0, y: 0 });
    for (const { edge, draw } of drawn) lines[edge] = draw(by);
  }
  return { boxes, lines };
}

const top = (box: Placed): number => box.y - box.height / 2;
const bottom = (box: Placed): number => box.y + box.height / 2;
const shift = (point: Point, by: Point): Point => ({ x: point.x + by.x, y: point.y + by.y });
const moved = (box: Placed, by: Point): Placed => ({ ...box, ...shift(box, by) });
const movedBand = (band: Band, by: Point): Band => ({ x: band.x + by.x, top: band.top + by.y, bottom: band.bottom + by.y });

function framed(size: Size): Size {
  return { width: Math.max(NODE.width, size.width + 2 * PAD), height: size.height + HEAD + PAD };
}

/** What dagre puts on one rank has one middle: the rank is as high as the highest of it. */
function bandsOf(boxes: Placed[]): Map<number, number> {
  const heights = new Map<number, number>();
  for (const box of boxes) heights.set(Math.round(box.y), Math.max(heights.get(Math.round(box.y)) ?? 0, box.height));
  return heights;
}

/** Where a line crosses a rank: straight down, between what is there. */
function bandAt(bands: Map<number, number>, point: Point): Band | undefined {
  const height = bands.get(Math.round(point.y));
  return height === undefined ? undefined : { x: point.x, top: point.y - height / 2, bottom: point.y + height / 2 };
}

/** The nodes directly inside the frame that the ends of an edge are, or are inside of. */
function endsIn(edge: LaidEdge, frame: string, parents: Map<string, string>): { a: string; b: string } {
  const [a, b] = [ancestorIn(edge.from, frame, parents), ancestorIn(edge.to, frame, parents)];
  return a === b && (a !== edge.from || b !== edge.to) ? { a: "", b: "" } : { a, b };
}

function ancestorIn(id: string, frame: string, parents: Map<string, string>): string {
  let at = id;
  for (let depth = 0; depth < 100 && parents.has(at); depth += 1) {
    const parent = parents.get(at) ?? "";
    if (parent === frame) return at;
    at = parent;
  }
  return "";
}

/** Which edges lead back to where they came from, beginning with what nothing leads to. */
function backwards(members: string[], edges: (readonly [string, string])[]): Set<number> {
  const after = new Map<string, { to: string; number: number }[]>();
  const reached = new Set<string>();
  edges.forEach(([from, to], number) => {
    if (from === to) return;
    after.set(from, [...(after.get(from) ?? []), { to, number }]);
    reached.add(to);
  });
  const back = new Set<number>();
  const state = new Map<string, "open" | "done">();
  for (const start of [...members.filter((id) => !reached.has(id)), ...members]) {
    if (state.has(start)) continue;
    const stack = [{ id: start, next: 0 }];
    state.set(start, "open");
    while (stack.length) {
      const here = stack.at(-1)!;
      const edge = after.get(here.id)?.[here.next++];
      if (!edge) {
        state.set(here.id, "done");
        stack.pop();
      } else if (state.get(edge.to) === "open") {
        back.add(edge.number);
      } else if (!state.has(edge.to)) {
        state.set(edge.to, "open");
        stack.push({ id: edge.to, next: 0 });
      }
    }
  }
  return back;
}
