// Drives a daemon through the client that openapi-typescript and openapi-fetch
// make of api/openapi.json. The daemon has no isolation and no kernels.

import assert from 'node:assert/strict';
import createClient from 'openapi-fetch';
import type { components, paths } from './schema.js';

const api = createClient<paths, 'application/json'>({ baseUrl: process.argv[2] as string });

const made = await api.POST('/v1/sandboxes', { body: { labels: { made: 'by node' } } });
assert.equal(made.response.status, 201);
assert.ok(made.data, JSON.stringify(made.error));
const isolation: 'gvisor' | 'container' = made.data.isolation;
assert.equal(isolation, 'container');
const id = made.data.id;

const run = await api.POST('/v1/sandboxes/{id}/exec', {
  params: { path: { id } },
  body: { cmd: ['sh', '-c', 'echo out; echo err >&2; exit 3'] },
});
assert.ok(run.data, JSON.stringify(run.error));
const code: number | null = run.data.exit_code;
assert.equal(code, 3);
assert.equal(run.data.stdout, 'out\n');

const started = await api.POST('/v1/sandboxes/{id}/exec', { params: { path: { id } }, body: { cmd: 'true', wait: false } });
assert.equal(started.response.status, 202);

const listed = await api.GET('/v1/sandboxes', { params: { query: { limit: 10 } } });
assert.ok(listed.data?.sandboxes.some((b) => b.id === id));
const history = await api.GET('/v1/sandboxes/{id}/events', { params: { path: { id } } });
assert.equal(history.data?.events[0]?.kind, 'sandbox.created');

const missing = await api.GET('/v1/sandboxes/{id}', { params: { path: { id: 'nothing' } } });
assert.equal(missing.response.status, 404);
const problem: components['schemas']['Problem'] | undefined = missing.error;
assert.equal(problem?.error.code, 'not_found');

// null is what the type says that it can be.
const cell: Pick<components['schemas']['Execution'], 'error' | 'result'> = { error: null, result: null };
assert.equal(cell.error, null);

const gone = await api.DELETE('/v1/sandboxes/{id}', { params: { path: { id } } });
assert.equal(gone.response.status, 204);
console.log('node: ok');
