// A worker for a Perdure server in JavaScript: Node's standard library only.
//
//   node worker.mjs http://127.0.0.1:8420 TOKEN POOL
//
// It leases tasks, keeps the leases while it works, and answers each task once. A lost answer is sent again: the same
// answer twice is the same. SIGTERM: what is in hand is finished, nothing more is taken.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";

const [server, token, pool] = process.argv.slice(2);
const worker = `${hostname()}-${process.pid}`;
const SLOTS = 4;

// What this worker can do: the name of a provider, and its function. `task` has arguments, input, idempotency_key.
const providers = {
  async greet(task) {
    return `Hello, ${task.arguments.name}!`;
  },
  // An effect happens once for its key, over all attempts and deliveries of the task.
  async charge(task, run) {
    const effect = "charge";
    const claim = await run.post(`effects/${effect}/claim`);
    if (claim.state === "completed") return claim.result; // an earlier delivery did it
    if (claim.state === "held") throw { code: "Platform.EffectInDoubt", message: "held", details: { effect } };
    await run.post("log", { message: `charging ${task.arguments.amount} under ${task.idempotency_key}` });
    const receipt = { amount: task.arguments.amount };
    await run.post(`effects/${effect}/complete`, { result: receipt });
    return receipt;
  },
};

class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    Object.assign(this, { status, code: problem.code });
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// One request. What is safe to repeat is repeated until it was heard: all of this protocol is.
async function post(path, body = {}, headers = {}) {
  for (let wait = 0.1; ; wait = Math.min(2 * wait, 10)) {
    try {
      const reply = await fetch(`${server}/api/v1/worker/${path}`, {
        method: "POST",
        headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", ...headers },
        body: JSON.stringify(body),
      });
      if (reply.ok) return await reply.json();
      if (reply.status !== 429 && reply.status < 500) throw new Refused(reply.status, await reply.json());
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    await pause(wait * (0.5 + Math.random() / 2));
  }
}

const inHand = new Map(); // by lease

async function perform(task) {
  const run = { post: (path, body) => post(`tasks/${task.lease}/${path}`, body) };
  try {
    let answer;
    try {
      answer = ["complete", { output: (await providers[task.provider](task, run)) ?? null }];
    } catch (error) {
      if (error instanceof Refused && error.status === 410) return; // another worker has the task now
      const { code = "Worker.Failed", message = String(error), details } = error;
      answer = ["fail", { code, message, details }];
    }
    await run.post(...answer);
  } catch (error) {
    console.error(`${task.run} task ${task.task}: ${error.message}`); // 410: the answer changed nothing
  } finally {
    inHand.delete(task.lease);
  }
}

async function beat() {
  const leases = [...inHand.keys()].map((lease) => ({ lease }));
  if (leases.length) await post("heartbeat", { worker, leases });
}

let stopping = false;
process.on("SIGTERM", () => (stopping = true));
process.on("SIGINT", () => (stopping = true));
const beating = setInterval(() => beat().catch((error) => console.error(error.message)), 10_000);

console.error(`working for ${pool}`);
while (!stopping) {
  const max = SLOTS - inHand.size;
  if (max === 0) {
    await pause(0.01);
    continue;
  }
  const offer = { worker, pools: [pool], providers: Object.keys(providers), max, wait: inHand.size ? 0.2 : 5 };
  // Under one key a lost answer costs nothing: the same tasks come again.
  const { tasks } = await post("lease", offer, { "Idempotency-Key": randomUUID() });
  for (const task of tasks) inHand.set(task.lease, perform(task));
}
await Promise.all(inHand.values());
clearInterval(beating);
await post("leave", { worker, pools: [pool] });
