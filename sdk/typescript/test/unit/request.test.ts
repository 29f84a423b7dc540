import { expect, test } from 'vitest';
import { body, query } from '../../src/request.js';
import { Transport } from '../../src/transport.js';
import { toWire } from '../../src/wire.js';

// What it says is checked by the compiler: an error that does not come is one.
test('what the API does not take does not compile', () => {
  // @ts-expect-error a misspelt parameter
  query<'list-files'>({ pth: '.' });
  // @ts-expect-error a parameter of another type
  query<'list-execs'>({ limit: '1' });
  // @ts-expect-error a word that is none of the API's
  body<'create-sandbox'>({ isolation: 'vm' });
  // @ts-expect-error a field that must be there
  body<'move-file'>({ from: 'a' });
  // @ts-expect-error a field of another type, after names became snake_case
  body<'create-sandbox'>(toWire({ idleTimeoutSeconds: '1' }));
  // @ts-expect-error a body that was not checked
  () => new Transport().call('POST', '/v1/sandboxes', { json: { isolation: 'gvisor' } });
  // @ts-expect-error a query that was not checked
  () => new Transport().call('GET', '/v1/sandboxes', { query: { thread: 't' } });
  expect(
    body<'create-sandbox'>(toWire({ env: { A_B: 'c' }, idleTimeoutSeconds: 1, limits: { memoryBytes: 2 } })),
  ).toEqual({
    env: { A_B: 'c' },
    idle_timeout_seconds: 1,
    limits: { memory_bytes: 2 },
  });
});
