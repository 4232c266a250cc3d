import { place } from "./layout";

self.onmessage = (message: MessageEvent) => {
  const { number, nodes, edges, apart } = message.data;
  try {
    self.postMessage({ number, boxes: place(nodes, edges, apart) });
  } catch (error) {
    self.postMessage({ number, problem: String(error) });
  }
};
