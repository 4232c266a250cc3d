import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  esbuild: { jsx: "automatic" },
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the page's policy allows no inline files
    modulePreload: { polyfill: false },
    emptyOutDir: true,
    chunkSizeWarningLimit: 1000,
  },
  worker: { format: "es" },
});
