// A conversation with cubby's agent over the LangGraph SDK. Before the agent runs a
// shell command, a person decides; at the end its files are saved here.
//
// Run the daemon with a model, for example
//
//     OPENAI_API_KEY=… cubby serve --agent-model openai/gpt-5-mini
//
// then:
//
//     npm ci
//     node approval.mjs "List the ten largest files below /usr in sizes.csv."
//
// CUBBY_URL and CUBBY_TOKEN say where the daemon is.
import { writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "@langchain/langgraph-sdk";

const { CUBBY_URL = "http://127.0.0.1:9090", CUBBY_TOKEN } = process.env;
const task = process.argv.slice(2).join(" ") || "List the ten largest files below /usr in sizes.csv.";

const headers = CUBBY_TOKEN ? { Authorization: `Bearer ${CUBBY_TOKEN}` } : {};
const client = new Client({ apiUrl: `${CUBBY_URL}/agent`, apiKey: null, defaultHeaders: headers });
const person = createInterface({ input: process.stdin });
const answers = person[Symbol.asyncIterator]();

const thread = await client.threads.create();
const exported = [];

// print begins a new line where something else goes on: a message, a call, its output.
let last, midLine;
function print(source, text = "") {
  if (!text) return;
  process.stdout.write(source !== last && midLine ? `\n${text}` : text);
  last = source;
  midLine = !text.endsWith("\n");
}

const textOf = ({ content }) => (typeof content === "string" ? content : content.map((block) => block.text ?? "").join(""));

// run does one run of the thread, and prints what the agent says, what it calls, and
// what its commands print while they run.
async function run(payload) {
  const events = client.runs.stream(thread.thread_id, "agent", {
    ...payload,
    streamMode: ["messages-tuple", "custom"],
    config: { configurable: { interrupt_on: { execute_terminal: true } } },
  });
  for await (const { event, data } of events) {
    if (event === "error") throw new Error(`${data.error}: ${data.message}`);
    if (event === "custom" && data.type === "tool_output") print(data.tool_call_id, data.text);
    if (event !== "messages") continue;
    const [message] = data; // a whole result of a tool, or a piece of what the model says
    if (message.type === "tool") exported.push(...(message.artifact?.files ?? []));
    else print(message.id, textOf(message));
    for (const { id, name, args } of message.tool_call_chunks ?? []) {
      print(name ? `call ${id}` : last, name ? `> ${name} ${args ?? ""}` : args);
    }
  }
  print("end", "\n");
}

// say sends a message. While the agent waits for a decision, the person is asked.
async function say(content) {
  await run({ input: { messages: [{ role: "user", content }] } });
  for (;;) {
    const { tasks } = await client.threads.getState(thread.thread_id);
    const [interrupt] = tasks.flatMap((task) => task.interrupts);
    if (!interrupt) return;
    const decisions = [];
    for (const { name, args } of interrupt.value.action_requests) {
      process.stdout.write(`May it use ${name}: ${JSON.stringify(args)}? [y/n] `);
      const { value: answer = "n" } = await answers.next();
      decisions.push(answer.startsWith("y") ? { type: "approve" } : { type: "reject", message: "The user does not want this." });
    }
    await run({ command: { resume: { decisions } } });
  }
}

try {
  await say(task);
  await say("Export the files that you made.");
  for (const file of exported) {
    const response = await fetch(file.download_url, { headers });
    if (!response.ok) throw new Error(`${file.path}: ${await response.text()}`);
    await writeFile(basename(file.path), Buffer.from(await response.arrayBuffer()));
    console.log(`[saved ${basename(file.path)}]`);
  }
} catch (error) {
  console.error(String(error));
  process.exitCode = 1;
} finally {
  person.close();
  await client.threads.delete(thread.thread_id); // with its sandbox
}
