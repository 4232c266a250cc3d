export default function Compare(_: Record<string, string>) { return <p>…</p>; }
