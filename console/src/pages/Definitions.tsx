export default function Definitions(_: Record<string, string>) { return <p>…</p>; }
