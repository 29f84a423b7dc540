// Calls a daemon's gRPC service with gRPC's own client for Node.
// Usage: node client.mjs HOST:PORT DIRECTORY, where the directory has the
// protocol. A failed check ends it with an error.
import assert from 'node:assert/strict';
import { promisify } from 'node:util';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const [address, protocols] = process.argv.slice(2);
const loaded = loader.loadSync('sandbox/v1/sandbox.proto', { includeDirs: [protocols], keepCase: true, defaults: true });
const client = new (grpc.loadPackageDefinition(loaded).sandbox.v1.SandboxService)(address, grpc.credentials.createInsecure());
const call = (method, request) => promisify(client[method].bind(client))(request);

const { session } = await call('CreateSession', {});
const session_id = session.session_id;
assert.ok(session_id && session.container_id);
assert.equal(session.allowed_hosts.length, 8);
const run = (command, more) => call('Exec', { session_id, command, ...more });

assert.equal((await run("python3 -c 'print(1+1)'", { timeout: 30 })).stdout, '2\n');
assert.match((await run('python3 --version')).stdout, /^Python 3\./);
assert.equal((await run('exit 42')).exit_code, 42);
assert.equal((await run('pwd', { workdir: '/tmp' })).stdout, '/tmp\n');

const content = "print('Hello from gRPC!')";
assert.equal((await call('WriteFile', { session_id, path: 'test.py', content, mode: 'w' })).success, true);
assert.equal((await call('ReadFile', { session_id, path: 'test.py' })).content, content);
assert.equal((await run('python3 test.py')).stdout, 'Hello from gRPC!\n');

const events = [];
for await (const e of client.ExecStream({ session_id, command: 'echo live; exit 3' })) events.push([e.type, e.data, e.exit_code]);
assert.deepEqual(events, [['stdout', 'live\n', undefined], ['exit', '', 3]]);

await assert.rejects(call('GetSession', { session_id: 'unknown' }), { code: grpc.status.NOT_FOUND, details: 'Session not found' });
assert.ok((await call('ListSessions', {})).sessions.some((s) => s.session_id === session_id));
assert.equal((await call('DestroySession', { session_id })).success, true);
assert.equal((await call('DestroySession', { session_id })).success, false);
client.close();
console.log('ok');
