export default function System(_: Record<string, string>) { return <p>…</p>; }
