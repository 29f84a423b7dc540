// Starts LangGraph's in-memory server with the graph of graph.mjs. It prints its URL.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { startServer } from "@langchain/langgraph-api/server";

const here = dirname(fileURLToPath(import.meta.url));
const cwd = mkdtempSync(join(process.env.TMPDIR ?? tmpdir(), "langgraph-"));
const { host } = await startServer({
  host: "127.0.0.1", port: Number(process.argv[2] ?? 0), nWorkers: 30, cwd,
  graphs: { agent: `${relative(cwd, join(here, "graph.mjs"))}:graph` },
});
console.log(`listening http://${host}`);
