import type { Shared } from "./selection";
export default function StreamsView(_: Shared) { return <p>…</p>; }
