export default function Definition(_: Record<string, string>) { return <p>…</p>; }
