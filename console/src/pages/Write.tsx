export default function Write(_: Record<string, string>) { return <p>…</p>; }
