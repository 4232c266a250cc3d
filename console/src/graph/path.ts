// The lines of edges as SVG paths. Pure.

export interface Point {
  x: number;
  y: number;
}

/** A place where a line goes straight down past other nodes. */
export interface Band {
  x: number;
  top: number;
  bottom: number;
}

interface Placed extends Point {
  width: number;
  height: number;
}

const ROUND = 8;
const ASIDE = 24; // of the middle, where edges to the next rank are

/** From a node down to another: straight past what lies beside the bands, and curved in the gaps between them. */
export function pathAround(bands: Band[]): string {
  const parts: string[] = [];
  let [x, y] = [0, 0];
  for (const band of bands) {
    const middle = (y + band.top) / 2;
    const curve = `C${at(x, middle)}${at(band.x, middle)}${at(band.x, band.top)}`;
    parts.push(parts.length === 0 ? `M${at(band.x, band.top)}` : x === band.x ? `L${at(x, band.top)}` : curve);
    if (band.bottom > band.top) parts.push(`L${at(band.x, band.bottom)}`);
    [x, y] = [band.x, band.bottom];
  }
  return parts.join("");
}

/** From a node to one above it, around on the right. Where another node is beside an end, below or above that one. */
export function pathBack(source: Placed, low: number | null, lane: number, target: Placed, high: number | null): string {
  const leave = low === null ? [] : [{ x: source.x + ASIDE, y: source.y + source.height / 2 }];
  const enter = high === null ? [] : [{ x: target.x + ASIDE, y: target.y - target.height / 2 }];
  const [from, to] = [low ?? source.y, high ?? target.y];
  return rounded([
    ...leave,
    { x: leave[0]?.x ?? source.x + source.width / 2, y: from },
    { x: lane, y: from },
    { x: lane, y: to },
    { x: enter[0]?.x ?? target.x + target.width / 2, y: to },
    ...enter,
  ]);
}

/** Straight from corner to corner, with round corners. */
function rounded(corners: Point[]): string {
  return corners
    .map((corner, index) => {
      const [before, after] = [corners[index - 1], corners[index + 1]];
      if (!before) return `M${at(corner.x, corner.y)}`;
      if (!after) return `L${at(corner.x, corner.y)}`;
      const [one, other] = [towards(corner, before), towards(corner, after)];
      return `L${at(one.x, one.y)}Q${at(corner.x, corner.y)}${at(other.x, other.y)}`;
    })
    .join("");
}

function towards(corner: Point, end: Point): Point {
  const length = Math.hypot(end.x - corner.x, end.y - corner.y) || 1;
  const share = Math.min(ROUND, length / 2) / length;
  return { x: corner.x + (end.x - corner.x) * share, y: corner.y + (end.y - corner.y) * share };
}

export function pathToItself(node: Placed): string {
  const [x, y] = [node.x + node.width / 2, node.y];
  return `M${at(x, y + 10)}C${at(x + 28, y + 18)}${at(x + 28, y - 18)}${at(x, y - 10)}`;
}

function at(x: number, y: number): string {
  return `${Math.round(x * 10) / 10},${Math.round(y * 10) / 10} `;
}
