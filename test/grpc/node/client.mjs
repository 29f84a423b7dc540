// Does what agentbox's documentation shows, with gRPC's own client for Node,
// and prints the number of each snippet that did. Usage: node client.mjs
// HOST:PORT DIRECTORY PACKAGE, where the directory has the protocol, and the
// package is one that the daemon's index has. A failed check ends it with an
// error.
import assert from 'node:assert/strict';
import { promisify } from 'node:util';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const [address, protocols, name] = process.argv.slice(2);
const loaded = loader.loadSync('sandbox/v1/sandbox.proto', { includeDirs: [protocols], keepCase: true, defaults: true });
const client = new (grpc.loadPackageDefinition(loaded).sandbox.v1.SandboxService)(address, grpc.credentials.createInsecure());
const limit = () => ({ deadline: Date.now() + 180_000 });
const call = (method, request) => promisify(client[method].bind(client))(request, limit());
const done = (...snippets) => snippets.forEach((s) => console.log(s));

const { session } = await call('CreateSession', {});
const session_id = session.session_id;
assert.ok(session_id && session.container_id && session.allowed_hosts.includes('pypi.org'));
assert.equal(session.allowed_hosts.length, 9);
done('2.2');
const run = (command, more) => call('Exec', { session_id, command, ...more });
const other = async (request) => (await call('CreateSession', request)).session;
const destroy = async (id) => (await call('DestroySession', { session_id: id })).success;

const two = await run("python3 -c 'print(1+1)'", { timeout: 30 });
assert.deepEqual([two.stdout, two.exit_code], ['2\n', 0]);
done('2.3');

assert.equal((await call('WriteFile', { session_id, path: 'script.py', content: "print('hello')", mode: 'w' })).success, true);
assert.equal((await run('python3 script.py')).stdout, 'hello\n');
done('2.4');

const installed = await call('PipInstall', { session_id, packages: [name] });
assert.equal(installed.exit_code, 0, JSON.stringify(installed));
assert.equal((await run(`python3 -c 'import ${name}'`)).exit_code, 0);
done('2.5');

const gone = (await other({})).session_id;
assert.equal(await destroy(gone), true);
assert.equal(await destroy(gone), false);
assert.match((await run('true', { session_id: gone })).stderr, /^Session not found: destroyed /);
done('2.6');

assert.match((await run('python3 --version')).stdout, /^Python 3\./);
const content = "print('Hello from gRPC!')";
assert.equal((await call('WriteFile', { session_id, path: 'test.py', content, mode: 'w' })).success, true);
assert.equal((await call('ReadFile', { session_id, path: 'test.py' })).content, content);
assert.equal((await run('python3 test.py')).stdout, 'Hello from gRPC!\n');
assert.match((await run('uname -r')).stdout, /\d/);
assert.ok((await call('ListSessions', {})).sessions.some((s) => s.session_id === session_id));
done('2.7', '2.8');

// 2.9 is the SDK, whose calls these are; what it has beside is ExecStream. The
// command goes on only when its first line was read here.
const events = [];
for await (const e of client.ExecStream({ session_id, command: 'echo live; until test -e go; do sleep 0.1; done; exit 3' }, limit())) {
  events.push([e.type, e.data, e.exit_code]);
  if (e.data === 'live\n') await run('touch go');
}
assert.deepEqual(events, [['stdout', 'live\n', undefined], ['exit', '', 3]]);
done('2.9');

const named = await other({ allowed_hosts: ['example.com'] });
assert.deepEqual(named.allowed_hosts, ['example.com']);
await destroy(named.session_id);
done('2.10');

const standard = await other({ allowed_hosts: [] });
assert.deepEqual(standard.allowed_hosts, session.allowed_hosts);
await destroy(standard.session_id);
done('2.11');

const alone = await other({ allowed_hosts: ['localhost'] });
const blocked = await run("curl -sS -o /dev/null -w '%{http_code}' http://example.com; curl -sS https://example.com", { session_id: alone.session_id });
assert.equal(blocked.stdout, '403');
assert.match(blocked.stderr, /403/);
await destroy(alone.session_id);
done('2.12');

assert.equal((await run('echo hello')).stdout, 'hello\n');
const failed = await run('echo error >&2');
assert.deepEqual([failed.stderr, failed.exit_code], ['error\n', 0]);
assert.equal((await run('exit 42')).exit_code, 42);
assert.equal((await run('pwd', { workdir: '/tmp' })).stdout, '/tmp\n');
done('2.13');

assert.equal((await call('WriteFile', { session_id, path: 'lines', content: 'line1\n', mode: 'w' })).success, true);
assert.equal((await call('WriteFile', { session_id, path: 'lines', content: 'line2\n', mode: 'a' })).success, true);
assert.equal((await call('ReadFile', { session_id, path: 'lines' })).content, 'line1\nline2\n');
done('2.14');

const missing = await call('ReadFile', { session_id, path: 'missing' });
assert.ok(!missing.success && missing.error);
done('2.15');

assert.equal((await run('touch /workspace/test && echo ok')).stdout, 'ok\n');
done('2.16');

await assert.rejects(call('GetSession', { session_id: 'unknown' }), { code: grpc.status.NOT_FOUND, details: 'Session not found' });
done('2.17');

assert.equal(await destroy(session_id), true);
client.close();
