// Drives MCP with the official SDKs for TypeScript, of both generations. Usage:
//   node client.mjs MODULES GENERATION VERSION SESSION TRANSPORT
// MODULES is a directory that has them in node_modules, GENERATION is 1 or 2,
// VERSION of the protocol is what has to come of the negotiation, and TRANSPORT
// is JSON: {"url", "headers"} or {"command", "args", "env"}. SESSION has a
// kernel for Python. It prints ok at its end.
import assert from 'node:assert/strict';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, generation, version, session, target] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(path.join(modules, 'node_modules/@modelcontextprotocol', file)).href);
const to = JSON.parse(target);

let sdk, stdio;
let options = {};
if (generation === '1') {
  sdk = { ...(await load('sdk/dist/esm/client/index.js')), ...(await load('sdk/dist/esm/client/streamableHttp.js')) };
  stdio = await load('sdk/dist/esm/client/stdio.js');
} else {
  sdk = await load('client/dist/index.mjs');
  stdio = await load('client/dist/stdio.mjs');
  options = { versionNegotiation: { mode: 'auto' } };
}

async function connect() {
  const client = new sdk.Client({ name: 'test', version: '1' }, options);
  await client.connect(to.url
    ? new sdk.StreamableHTTPClientTransport(new URL(to.url), { requestInit: { headers: to.headers } })
    : new stdio.StdioClientTransport(to));
  const call = async (name, args, how = {}) => {
    const params = { name, arguments: { session_id: session, ...args } };
    how = { timeout: 300_000, ...how };
    const result = await (generation === '1' ? client.callTool(params, undefined, how) : client.callTool(params, how));
    return { failed: result.isError === true, ...result.structuredContent };
  };
  return { client, call };
}

const { client, call } = await connect();
if (generation === '2') assert.equal(client.getNegotiatedProtocolVersion(), version);
const { tools } = await client.listTools();
assert.equal(tools.length, 18);
assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 2);

let out = await call('execute_code', { code: 'x = 20', timeout: 120 });
assert.equal(out.success, true, JSON.stringify(out));
out = await call('execute_code', { code: 'x + 1' });
assert.equal(out.result['text/plain'], '21', JSON.stringify(out));

// Progress comes while the call runs: it is what ends it.
let heard = 0;
out = await call('execute_terminal', { command: 'rm -f go; echo working; while [ ! -e go ]; do sleep 0.05; done; rm go; echo done', timeout: 300 }, {
  onprogress: async ({ progress, message }) => {
    assert.ok(progress > 0);
    if (message === 'working' && heard++ === 0) await call('write_file', { path: 'go', content: '' });
  },
});
assert.equal(out.stdout, 'working\ndone\n', JSON.stringify(out));

// A call that is given up ends the code and keeps what it had.
const giveUp = new AbortController();
const given = call('execute_code', { code: "import time\nx = 5\nopen('begun', 'w').close()\ntime.sleep(600)", timeout: 300 }, { signal: giveUp.signal });
while ((await call('read_file', { path: 'begun' })).failed) await new Promise((r) => setTimeout(r, 50));
giveUp.abort();
await assert.rejects(given);
out = await call('execute_code', { code: 'x', timeout: 120 });
assert.equal(out.result?.['text/plain'], '5', JSON.stringify(out));

// What one client begins another one resumes where it was left.
const { command_id: id } = await call('start_command', { command: 'echo first; while [ ! -e next ]; do sleep 0.05; done; rm next; echo second' });
let at = 0;
for (let text = ''; text === ''; at = out.next_offset) text = (out = await call('get_output', { command_id: id, offset: at, wait: 5 })).stdout;
assert.equal(out.stdout, 'first\n', JSON.stringify(out));
await client.close();
const next = await connect();
await next.call('write_file', { path: 'next', content: '' });
let rest = '';
do {
  out = await next.call('get_output', { command_id: id, offset: at, wait: 5 });
  rest += out.stdout;
  at = out.next_offset;
} while (out.status === 'running' || out.more);
assert.equal(rest, 'second\n', JSON.stringify(out));
assert.equal(out.exit_code, 0);
await next.call('execute_terminal', { command: 'rm begun' });

const refused = await next.call('execute_terminal', { session_id: 'none', command: 'true' });
assert.ok(refused.failed && refused.error, JSON.stringify(refused));
await next.client.close();
console.log('ok');
