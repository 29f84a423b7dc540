// A chat application: useStream of the SDK that Agent Chat UI has, in a page that is
// none. Usage: node usestream.mjs URL
import assert from "node:assert/strict";
import { JSDOM } from "jsdom";

const [url] = process.argv.slice(2);
const dom = new JSDOM("<div id=root></div>", { url: "http://localhost/" });
for (const [name, value] of Object.entries({ window: dom.window, document: dom.window.document, navigator: dom.window.navigator, IS_REACT_ACT_ENVIRONMENT: true }))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
const React = await import("react");
const { createRoot } = await import("react-dom/client");
const { useStream } = await import("langgraph-sdk-1.8/react");

let now;
const custom = [];
let threadId = null;
function Chat() {
  const [thread, setThread] = React.useState(threadId);
  now = useStream({
    apiUrl: url, assistantId: "agent", threadId: thread, onThreadId: (id) => { threadId = id; setThread(id); },
    fetchStateHistory: true, reconnectOnMount: true, messagesKey: "messages", onCustomEvent: (e) => custom.push(e), throttle: false,
  });
  // What is shown is what is asked for.
  void now.messages;
  return null;
}

let root;
const mount = () => React.act(async () => { root = createRoot(document.getElementById("root")); root.render(React.createElement(Chat)); });
const until = async (what, check) => {
  for (const end = Date.now() + 20000; !check(); ) {
    if (Date.now() > end) throw new Error(`never ${what}: ${JSON.stringify({ messages: now.messages, error: now.error, loading: now.isLoading, interrupt: now.interrupt })}`);
    await React.act(() => new Promise((done) => setTimeout(done, 20)));
  }
};
// A run may have ended before a render shows that it began.
const submit = async (values, options) => {
  let ended = false;
  const end = () => { ended = true; };
  await React.act(async () => { now.submit(values, { streamMode: ["values"], streamSubgraphs: true, streamResumable: true, ...options }).then(end, end); });
  await until("began", () => now.isLoading || ended);
  await React.act(async () => {}); // what has ended is rendered
};
const contents = () => now.messages.map((m) => m.content);

await mount();

// The first message makes the thread; the answer grows while it comes.
const lengths = new Set();
await submit({ messages: [{ type: "human", content: "cubby-slow" }] });
await until("answered", () => { const m = now.messages.at(-1); if (m?.type === "ai") lengths.add(m.content.length); return !now.isLoading; });
assert.ok(threadId);
assert.equal(now.error, undefined);
assert.deepEqual(contents(), ["cubby-slow", "This takes a long time, as everybody can see who waits for the end of it."]);
assert.ok(lengths.size > 3, `the answer came in ${lengths.size} sizes`);

// Regenerating and editing make branches.
await submit(undefined, { checkpoint: now.getMessagesMetadata(now.messages[1]).firstSeenState.parent_checkpoint });
await until("regenerated", () => !now.isLoading);
await until("had two branches", () => now.messages.length === 2 && now.getMessagesMetadata(now.messages[1])?.branchOptions?.length === 2);
await submit({ messages: [{ type: "human", content: "cubby-again" }] }, { checkpoint: now.getMessagesMetadata(now.messages[0]).firstSeenState.parent_checkpoint });
await until("edited", () => !now.isLoading);
assert.deepEqual(contents(), ["cubby-again", "Another answer."]);
const options = now.getMessagesMetadata(now.messages[0]).branchOptions;
assert.equal(options.length, 2);
await React.act(async () => now.setBranch(options[0]));
assert.equal(contents()[0], "cubby-slow");
await React.act(async () => now.setBranch(options[1]));

// A tool, with a question to a person before it.
await submit({ messages: [{ type: "human", content: "cubby-tool" }] }, { interruptBefore: ["stop_session"] });
await until("asked", () => !now.isLoading);
assert.equal(now.interrupt.value.action_requests?.[0]?.name ?? now.interrupt.value.actionRequests[0].name, "stop_session");
await submit({}, { command: { resume: { decisions: [{ type: "reject", message: "not now" }] } } });
await until("went on", () => !now.isLoading);
assert.equal(now.interrupt, undefined);
assert.equal(now.messages.at(-2).type, "tool");
assert.match(now.messages.at(-2).content, /not now/);
assert.equal(now.messages.at(-1).content, "It was not there.");

// An error is one.
await submit({ messages: [{ type: "human", content: "cubby-error" }] });
await until("failed", () => now.error);
assert.match(now.error.message, /the model said no/);

// A page that is loaded again while a run goes on finds it.
threadId = null;
await React.act(async () => root.unmount());
await mount();
await submit({ messages: [{ type: "human", content: "cubby-slow" }] });
await until("began to answer", () => now.messages.at(-1)?.type === "ai");
await React.act(async () => root.unmount());
await mount();
await until("came back", () => now.isLoading);
await until("ended", () => !now.isLoading);
assert.equal(now.messages.at(-1).content, "This takes a long time, as everybody can see who waits for the end of it.");

console.log("useStream: ok");
process.exit(0);
