// A worker for streaming steps of a Perdure server in JavaScript: Node's standard library only.
//
//   node --experimental-websocket stream-worker.mjs http://127.0.0.1:8420 TOKEN POOL          (Node 22: without the flag)
//
// Each step has a WebSocket of its own; one more waits for the next step. A message that was not acknowledged when a
// connection is lost comes again in another one. SIGTERM: another worker takes the steps, then this one ends.
import { hostname } from "node:os";

const [server, token, pool] = process.argv.slice(2);
const CREDITS = 32; // messages that may be on their way to a step here

// What this worker can do: the name of a provider, and a function for each message. What it returns is published, then
// the message is done. `config` is the step's `with`, `message` has payload, inputs, metadata, messageId, envelope.
const providers = {
  "engram:double@1.0.0": async (config, message) => ({ n: 2 * message.payload.n, by: config.name }),
};

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const steps = new Set(); // open sockets that have a step
let stopping = false;
let waiting; // the socket that waits for a step

// Resolves when the socket has a step, or is closed without one: true or false.
function wait_for_step() {
  const url = `${server.replace(/^http/, "ws")}/api/v1/worker/stream`;
  const socket = (waiting = new WebSocket(url, { headers: { Authorization: `Bearer ${token}` } }));
  const send = (type, members = {}) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ type, ...members }));
  let config, perform, number = 0;
  let queue = Promise.resolve(); // messages are handled one after the other

  async function handle({ id, message }) {
    try {
      const payload = await perform(config, message);
      if (payload !== undefined) send("publish", { number: ++number, replyTo: id, message: { payload } });
      send("done", { id });
      send("credits", { messages: 1 });
    } catch (error) {
      send("failed", { error: { message: String(error.message ?? error), retryable: true } });
      socket.close();
    }
  }

  return new Promise((resolve) => {
    socket.onopen = () =>
      send("offer", { worker: `${hostname()}-${process.pid}`, pools: [pool], providers: Object.keys(providers) });
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === "step") {
        steps.add(socket);
        config = frame.arguments.inputs;
        perform = providers[frame.provider];
        console.error(`doing step ${frame.step} of ${frame.storyRun}`);
        send("ready", { credits: CREDITS });
        resolve(true);
      } else if (frame.type === "message") {
        queue = queue.then(() => handle(frame));
      } else if (frame.type === "end") {
        queue = queue.then(() => send("returned")); // no more messages will come
      } else if (frame.type === "stop") {
        socket.close(); // the step is closed, or another worker has it
      } else if (frame.type === "refused") {
        console.error(`a publication was refused: ${frame.message}`);
      } // published, kept, pause, resume, cancelled: a worker may listen to them, and need not
    };
    socket.onclose = ({ reason }) => {
      steps.delete(socket);
      if (reason) console.error(reason);
      resolve(false);
    };
    socket.onerror = () => resolve(false);
  });
}

function stop() {
  stopping = true;
  for (const socket of steps) socket.send(JSON.stringify({ type: "leaving" }));
  if (!steps.has(waiting)) waiting?.close();
}
process.on("SIGTERM", stop);
process.on("SIGINT", stop);

console.error(`working for ${pool}`);
for (let seconds = 0.1; !stopping; ) {
  const found = await wait_for_step();
  if (found) {
    seconds = 0.1;
  } else if (!stopping) {
    await pause(seconds * (0.8 + 0.4 * Math.random()));
    seconds = Math.min(2 * seconds, 10);
  }
}
while (steps.size) await pause(0.05);
