import { place } from "./layout";

self.onmessage = (message: MessageEvent) => {
  const { number, nodes, edges } = message.data;
  try {
    self.postMessage({ number, layout: place(nodes, edges) });
  } catch (error) {
    self.postMessage({ number, problem: String(error) });
  }
};
