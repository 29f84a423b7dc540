// Does with a server what clients of LangGraph's platform do, through the official SDK.
// Usage: node client.mjs VERSION URL [WHERE]
import assert from "node:assert/strict";
import http from "node:http";

const [version, url, where] = process.argv.slice(2);
const { Client } = await import(`langgraph-sdk-${version}`);
const client = new Client({ apiUrl: url });
const human = (content, id) => ({ messages: [{ type: "human", content, ...(id && { id }) }] });
const collect = async (stream) => {
  const list = [];
  for await (const e of stream) list.push(e);
  return list;
};
const texts = (state) => state.values.messages.map((m) => m.content);

// Assistants.
const [assistant] = await client.assistants.search({ graphId: "agent", limit: 1 });
assert.equal(assistant.assistant_id, "fe096781-5601-53d2-b2f6-0d3403f7e9ca");
assert.equal((await client.assistants.get("agent")).graph_id, "agent");
const graph = await client.assistants.getGraph("agent");
assert.deepEqual(graph.nodes.map((n) => n.id), ["__start__", "agent", "tools", "__end__"]);
assert.ok((await client.assistants.getSchemas("agent")).input_schema);
assert.deepEqual(await client.assistants.getSubgraphs("agent"), {});
const mine = await client.assistants.create({ graphId: "agent", name: "mine", metadata: { who: "me" } });
assert.equal((await client.assistants.update(mine.assistant_id, { metadata: { more: 1 } })).version, 2);
assert.equal((await client.assistants.search({ metadata: { who: "me" } })).length, 1);
assert.deepEqual((await client.assistants.getVersions(mine.assistant_id)).map((v) => v.version), [2, 1]);
assert.equal((await client.assistants.setLatest(mine.assistant_id, 1)).version, 1);
assert.deepEqual((await client.assistants.get(mine.assistant_id)).metadata, { who: "me" });
await client.assistants.delete(mine.assistant_id);
await assert.rejects(client.assistants.get(mine.assistant_id), /404/);

// A thread, a run that calls a tool, and everything that a run shows.
const thread = await client.threads.create({ metadata: { title: "one" } });
const modes = ["values", "updates", "messages", "messages-tuple", "custom", "events", "debug", "tasks", "checkpoints"];
let created;
const events = await collect(client.runs.stream(thread.thread_id, "agent", {
  input: human("cubby-tool", "h1"), streamMode: modes, streamSubgraphs: true, streamResumable: true, onRunCreated: (r) => (created = r),
}));
assert.equal(events[0].event, "metadata");
assert.equal(created.run_id, events[0].data.run_id);
assert.equal(created.thread_id, thread.thread_id);
const named = new Set(events.map((e) => e.event));
for (const name of ["values", "updates", "messages", "messages/metadata", "messages/partial", "messages/complete", "events", "debug", "tasks", "checkpoints"])
  assert.ok(named.has(name), `no event ${name}`);
const last = events.findLast((e) => e.event === "values").data;
assert.deepEqual(last.messages.map((m) => m.type), ["human", "ai", "tool", "ai"]);
assert.equal(last.messages[0].id, "h1");
assert.equal(last.messages[3].content, "It was not there.");
const pieces = events.filter((e) => e.event === "messages" && e.data[0].id === last.messages[3].id);
assert.equal(pieces.map((e) => e.data[0].content).join(""), "It was not there.");
assert.equal(pieces[0].data[1].langgraph_node, "agent");

// Coming back to it: all, and the rest behind each event.
const again = await collect(client.runs.joinStream(thread.thread_id, created.run_id, { lastEventId: "-1" }));
assert.deepEqual(again, events);
const middle = events[Math.floor(events.length / 2)];
const rest = await collect(client.runs.joinStream(thread.thread_id, created.run_id, { lastEventId: middle.id, streamMode: modes }));
assert.deepEqual(rest, events.slice(events.indexOf(middle) + 1));
const narrow = await collect(client.runs.joinStream(thread.thread_id, created.run_id, { lastEventId: "-1", streamMode: ["updates"] }));
assert.deepEqual(new Set(narrow.map((e) => e.event)), new Set(["metadata", "updates"]));

// A line that breaks in the middle: the SDK comes back by itself, and misses nothing.
const upstream = new URL(url);
let broken = 0;
const proxy = http.createServer((req, res) => {
  const to = http.request({ host: upstream.hostname, port: upstream.port, path: req.url, method: req.method, headers: { ...req.headers, host: upstream.host } }, (from) => {
    res.writeHead(from.statusCode, from.headers);
    if (!req.url.includes("/stream") || broken++) return void from.pipe(res);
    let sent = 0;
    from.on("data", (d) => {
      if (res.destroyed) return;
      res.write(d);
      if ((sent += d.length) > 600) setTimeout(() => res.destroy(), 50);
    });
    from.on("end", () => res.destroy());
  });
  req.pipe(to);
});
await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
const shaky = new Client({ apiUrl: `http://127.0.0.1:${proxy.address().port}${upstream.pathname.replace(/\/$/, "")}` });
const t2 = (await shaky.threads.create()).thread_id;
const whole = await collect(shaky.runs.stream(t2, "agent", { input: human("cubby-slow"), streamMode: ["values", "messages-tuple"], onDisconnect: "continue" }));
assert.ok(broken > 1, "the connection was not broken");
assert.match(whole.filter((e) => e.event === "messages").map((e) => e.data[0].content).join(""), /^This takes a long time, .* the end of it\.$/);
assert.equal(new Set(whole.map((e) => e.id)).size, whole.length);
proxy.closeAllConnections();
proxy.close();

// States, history, branches.
assert.deepEqual(texts(await client.threads.getState(thread.thread_id)).slice(-1), ["It was not there."]);
const history = await client.threads.getHistory(thread.thread_id, { limit: 20 });
assert.deepEqual(history.map((s) => s.metadata.step), [3, 2, 1, 0, -1]);
assert.equal(history.at(-1).parent_checkpoint, null);
const asked = history.find((s) => s.metadata.step === 0);
assert.deepEqual(await client.threads.getState(thread.thread_id, asked.checkpoint.checkpoint_id), asked);
assert.deepEqual(await client.threads.getState(thread.thread_id, asked.checkpoint), asked);
const edited = await client.runs.wait(thread.thread_id, "agent", { input: human("cubby-again"), checkpoint: asked.parent_checkpoint });
assert.deepEqual(edited.messages.map((m) => m.content), ["cubby-again", "Another answer."]);
const children = (await client.threads.getHistory(thread.thread_id, { limit: 50 })).filter((s) => s.parent_checkpoint?.checkpoint_id === asked.parent_checkpoint.checkpoint_id);
assert.equal(children.length, 2);
const updated = await client.threads.updateState(thread.thread_id, { values: { messages: [{ type: "remove", id: edited.messages[1].id, content: "" }] }, asNode: "agent" });
const head = await client.threads.getState(thread.thread_id);
assert.equal(head.checkpoint.checkpoint_id, updated.checkpoint.checkpoint_id);
assert.deepEqual(texts(head), ["cubby-again"]);

// A question to a person, and the answers to it.
const t3 = (await client.threads.create({ graphId: "agent" })).thread_id;
const asks = await collect(client.runs.stream(t3, "agent", { input: human("cubby-tool"), interruptBefore: ["stop_session"], streamMode: ["values", "updates"] }));
const question = asks.findLast((e) => e.event === "values").data.__interrupt__[0];
assert.equal(question.value.action_requests[0].name, "stop_session");
assert.deepEqual(question.value.review_configs[0].allowed_decisions, ["approve", "edit", "reject"]);
const waiting = await client.threads.get(t3);
assert.equal(waiting.status, "interrupted");
assert.deepEqual(Object.values(waiting.interrupts), [[question]]);
// The run that answers does not say again what is asked about.
for (const resume of ["yes", {}, [], true, { decisions: [] }, { decisions: [{ type: "dance" }] }]) {
  for (const input of [undefined, null, {}, human("cubby-plain")]) await assert.rejects(client.runs.wait(t3, "agent", { input, command: { resume } }), /422/);
}
await client.runs.wait(t3, "agent", { input: null });
assert.deepEqual(Object.values((await client.threads.get(t3)).interrupts), [[question]]);
const resumed = await client.runs.wait(t3, "agent", { command: { resume: { decisions: [{ type: "approve" }] } } });
assert.equal(resumed.messages.at(-1).content, "It was not there.");
const rejecting = { command: { resume: { decisions: [{ type: "reject", message: "no" }] }, goto: [], update: [] } };
for (const answer of [
  (t) => client.runs.wait(t, "agent", rejecting),
  (t) => client.runs.wait(t, "agent", { ...rejecting, input: human("cubby-tool") }),
  (t) => client.runs.create(t, "agent", rejecting).then((r) => client.runs.join(t, r.run_id)),
  (t) => collect(client.runs.stream(t, "agent", rejecting)),
  (t) => client.runs.create(t, "agent", { ...rejecting, multitaskStrategy: "enqueue" }).then((r) => collect(client.runs.joinStream(t, r.run_id))),
]) {
  const t = (await client.threads.create({ graphId: "agent" })).thread_id;
  await client.runs.wait(t, "agent", { input: human("cubby-tool"), config: { configurable: { interrupt_on: { stop_session: true } } } });
  await answer(t);
  const said = (await client.threads.getState(t)).values.messages;
  assert.match(said.at(-2).content, /did not allow/);
}
for (const wish of [{ interruptBefore: ["nope"] }, { config: { configurable: { interrupt_on: ["stop_session"] } } }, { context: { interrupt_on: { nope: true } } }]) {
  await assert.rejects(client.runs.wait(t3, "agent", { input: human("cubby-tool"), ...wish }), /422/);
}

// States that are made, and lists of parts of things.
const made = await client.threads.create({ graphId: "agent", metadata: { made: version }, supersteps: [
  { updates: [{ values: { messages: [{ type: "human", content: "hi", id: "h1" }] }, asNode: "__input__" }] },
  { updates: [{ values: { messages: [{ type: "human", content: "hi", id: "h1" }] }, asNode: "__start__" }] },
  { updates: [{ values: { messages: [{ type: "ai", content: "yes", id: "a1" }] }, asNode: "agent" }] },
] });
assert.deepEqual(texts(await client.threads.getState(made.thread_id)), ["hi", "yes"]);
assert.deepEqual((await client.threads.getHistory(made.thread_id)).map((s) => s.next), [[], ["agent"], ["__start__"]]);
await client.threads.updateState(made.thread_id, { values: [{ messages: human("one").messages }, { messages: human("two").messages }], asNode: "agent" });
assert.deepEqual(texts(await client.threads.getState(made.thread_id)), ["hi", "yes", "one", "two"]);
const [part] = await client.threads.search({ metadata: { made: version }, select: ["thread_id"], extract: { last: "values.messages[-1].content", none: "values.nope[3]" } });
if (version !== "1.8") assert.deepEqual(part, { thread_id: made.thread_id, extracted: { last: "two", none: null } });
const sent = await client.runs.wait(made.thread_id, "agent", { command: { goto: { node: "agent", input: human("cubby-plain") } } });
assert.equal(sent.messages.at(-1).content, "Hello there, this is plain.");
const [shown] = await client.runs.list(made.thread_id, { select: ["run_id", "status"] });
if (version !== "1.8") assert.deepEqual(Object.keys(shown).sort(), ["run_id", "status"]);
await assert.rejects(client.threads.create({ ttl: 60 }), /422/);
const t4 = (await client.threads.create()).thread_id;
await client.runs.wait(t4, "agent", { input: human("cubby-tool"), interruptBefore: "*" });
assert.equal((await client.threads.get(t4)).status, "interrupted");
await client.runs.wait(t4, "agent", { input: {}, command: { goto: "__end__" } });
assert.equal((await client.threads.get(t4)).status, "idle");

// What goes wrong.
const failing = await collect(client.runs.stream((await client.threads.create()).thread_id, "agent", { input: human("cubby-error") }));
assert.equal(failing.at(-1).event, "error");
assert.match(failing.at(-1).data.message, /the model said no/);
await assert.rejects(client.runs.wait(null, "agent", { input: human("cubby-error") }), /the model said no/);
await assert.rejects(client.threads.get("1f0caa98-bfa9-6bbf-bf5b-d7e4ef1b6a7c"), /404/);
await assert.rejects(client.runs.wait(thread.thread_id, "nope", { input: human("x") }), /404/);

// Runs that take long: busy threads, cancellation, joining.
const t5 = (await client.threads.create()).thread_id;
const slow = await client.runs.create(t5, "agent", { input: human("cubby-slow") });
assert.ok(["pending", "running"].includes(slow.status));
await assert.rejects(client.runs.create(t5, "agent", { input: human("cubby-plain"), multitaskStrategy: "reject" }), /422/);
await client.runs.cancel(t5, slow.run_id, true);
assert.equal((await client.runs.get(t5, slow.run_id)).status, "interrupted");
const next = await client.runs.create(t5, "agent", { input: human("cubby-plain") });
await client.runs.join(t5, next.run_id);
assert.equal((await client.runs.get(t5, next.run_id)).status, "success");
assert.deepEqual((await client.runs.list(t5)).map((r) => r.run_id), [next.run_id, slow.run_id]);
await client.runs.delete(t5, slow.run_id);
assert.equal((await client.runs.list(t5)).length, 1);

// Threads.
const copy = await client.threads.copy(t5);
assert.deepEqual(texts(await client.threads.getState(copy.thread_id)), texts(await client.threads.getState(t5)));
await client.threads.update(t5, { metadata: { title: "five" } });
const found = await client.threads.search({ metadata: { graph_id: "agent", title: "five" } });
assert.equal(found.length, 1);
assert.equal(found[0].values.messages.at(-1).content, "Hello there, this is plain.");
await client.threads.delete(t5);
await assert.rejects(client.threads.get(t5), /404/);
const stateless = await client.runs.wait(null, "agent", { input: human("cubby-plain") });
assert.equal(stateless.messages.at(-1).content, "Hello there, this is plain.");

// A webhook.
const hooked = await new Promise((done, failed) => {
  const receiver = http.createServer(async (req, res) => {
    let body = "";
    for await (const piece of req) body += piece;
    res.end();
    receiver.close();
    done({ headers: req.headers, body: JSON.parse(body) });
  });
  receiver.listen(0, "127.0.0.1", () => {
    client.runs.create(null, "agent", { input: human("cubby-plain"), webhook: `http://127.0.0.1:${receiver.address().port}/hook` }).catch(failed);
  });
});
assert.equal(hooked.body.status, "success");
assert.equal(hooked.body.values.messages.at(-1).content, "Hello there, this is plain.");
assert.match(hooked.headers["webhook-signature"], /^v1,/);

// Crons.
const cron = await client.crons.create("agent", { schedule: "0 9 * * 1-5", input: human("cubby-plain"), metadata: { sdk: version + where } });
assert.ok(Date.parse(cron.next_run_date) > Date.now());
const bound = await client.crons.createForThread(copy.thread_id, "agent", { schedule: "@daily", input: human("cubby-plain") });
assert.equal(bound.thread_id, copy.thread_id);
assert.deepEqual((await client.crons.search({ threadId: copy.thread_id })).map((c) => c.cron_id), [bound.cron_id]);
assert.ok((await client.crons.search({ assistantId: cron.assistant_id, limit: 100 })).length >= 2);
if (client.crons.update) assert.equal((await client.crons.update(cron.cron_id, { schedule: "@hourly", enabled: false })).enabled, false);
if (client.crons.count) assert.equal(await client.crons.count({ threadId: copy.thread_id }), 1);
await client.crons.delete(cron.cron_id);
await client.crons.delete(bound.cron_id);
await assert.rejects(client.crons.create("agent", { schedule: "often" }), /422.*schedule/);

// The store.
const place = ["sdk", version.replace(".", "-"), where ?? "below"];
await client.store.putItem(place, "/memories/tea.md", { content: ["Ann likes green tea"], n: 1 });
await client.store.putItem([...place, "more"], "b", { n: 2 }, { ttl: 60, index: false });
const item = await client.store.getItem(place, "/memories/tea.md");
assert.deepEqual(item.value, { content: ["Ann likes green tea"], n: 1 });
assert.ok(Date.parse(item.createdAt) > 0 && Date.parse(item.updatedAt) > 0);
assert.equal((await client.store.searchItems(place)).items.length, 2);
assert.deepEqual((await client.store.searchItems(place, { filter: { n: { $gte: 2 } } })).items.map((i) => i.key), ["b"]);
const [best] = (await client.store.searchItems(place, { query: "green tea", limit: 3 })).items;
assert.deepEqual([best.key, best.score], ["/memories/tea.md", 1]);
assert.deepEqual((await client.store.listNamespaces({ prefix: place })).namespaces, [place, [...place, "more"]]);
await assert.rejects(client.store.putItem(["a.b"], "k", {}), /periods/);
await client.store.deleteItem(place, "/memories/tea.md");
assert.equal(await client.store.getItem(place, "/memories/tea.md"), null);

console.log(`sdk ${version}${where ? ` ${where}` : ""}: ok`);
process.exit(0);
