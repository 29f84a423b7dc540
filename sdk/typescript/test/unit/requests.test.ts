import { expect, test } from 'vitest';
import {
  CanceledError,
  CapacityError,
  Client,
  ConflictError,
  CubbyError,
  ForbiddenError,
  InternalError,
  InUseError,
  InvalidRequestError,
  LowMemoryError,
  NotFoundError,
  QuotaExceededError,
  RequestTimeoutError,
  type Sandbox,
  TooLargeError,
  UnauthorizedError,
  UnavailableError,
  UnreachableError,
  UnsupportedError,
  WrongStateError,
} from '../../src/index.js';
import { cut, exec, json, plain, problem, sandbox, script, scripted, silent } from './script.js';

const classes = {
  invalid_request: InvalidRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  conflict: ConflictError,
  wrong_state: WrongStateError,
  shared_files: ConflictError,
  in_use: InUseError,
  too_large: TooLargeError,
  sandbox_capacity: CapacityError,
  low_memory: LowMemoryError,
  quota_exceeded: QuotaExceededError,
  sandbox_unavailable: UnavailableError,
  unavailable: UnavailableError,
  timeout: RequestTimeoutError,
  canceled: CanceledError,
  unsupported: UnsupportedError,
  internal: InternalError,
};

test.each(Object.entries(classes))('the error %s has its class', async (code, Class) => {
  const { box } = await scripted([problem(418, code, { hint: 'do this', retryable: true }, { 'Retry-After': '7' })]);
  const e = await box.exec('true').catch((e: unknown) => e);
  expect(e).toBeInstanceOf(Class);
  expect(e).toMatchObject({
    name: Class.name,
    code,
    message: `this is ${code}`,
    hint: 'do this',
    requestId: 'r1',
    retryable: true,
    retryAfter: 7,
    status: 418,
  });
});

test('an unknown code is a CubbyError', async () => {
  const { box } = await scripted([problem(400, 'toString')]);
  const e = await box.exec('true').catch((e: unknown) => e);
  expect((e as CubbyError).constructor).toBe(CubbyError);
  expect(e).toMatchObject({ code: 'toString' });
});

test.each([
  [400, 'invalid_request', false],
  [401, 'unauthorized', false],
  [404, 'not_found', false],
  [429, 'sandbox_unavailable', true],
  [500, 'internal', false],
  [502, 'sandbox_unavailable', true],
  [504, 'timeout', true],
])('an answer %d of something else is an error', async (status, code, retryable) => {
  const { box } = await scripted([plain(status, '<html>')]);
  await expect(box.exec('true')).rejects.toMatchObject({ code, status, retryable, hint: expect.stringMatching(/URL/) });
});

test('an answer that is not the API is an error', async () => {
  const { box } = await scripted([plain(200, '<html>'), json(200, []), json(200, { seq: 'x' }), plain(200, '')]);
  for (let i = 0; i < 4; i++) await expect(box.exec('true')).rejects.toMatchObject({ code: 'internal' });
});

test('a redirect is not followed: the token stays here', async () => {
  const { box, asked } = await scripted([plain(302, '', { Location: 'http://127.0.0.1:2/' })]);
  await expect(box.exec('true')).rejects.toMatchObject({ status: 302 });
  expect(asked).toHaveLength(1);
  expect(asked[0]).toMatchObject({ url: '/prefix/v1/sandboxes/b/exec', headers: { authorization: 'Bearer secret' } });
});

test('harmless requests are repeated when the daemon is busy or gone', async () => {
  const busy = problem(503, 'sandbox_unavailable', { retryable: true }, { 'Retry-After': '0' });
  const { box, asked } = await scripted([busy, cut, json(200, sandbox)]);
  expect((await box.refresh()).createdAt).toEqual(new Date('2026-01-02T03:04:05.123Z'));
  expect(asked).toHaveLength(3);
});

test('repetitions are bounded', async () => {
  const { box, asked } = await scripted([cut, cut, cut, cut]);
  await expect(box.refresh()).rejects.toBeInstanceOf(UnreachableError);
  expect(asked).toHaveLength(3);
  const late = problem(503, 'sandbox_unavailable', { retryable: true }, { 'Retry-After': '31' });
  await expect((await scripted([late])).box.refresh()).rejects.toMatchObject({ retryAfter: 31 });
  await expect((await scripted([cut], { retries: 0 })).box.refresh()).rejects.toMatchObject({ code: 'unreachable' });
  const full = await scripted([problem(503, 'sandbox_capacity', { retryable: true })]);
  await expect(full.box.start()).rejects.toMatchObject({ name: 'CapacityError' });
});

test('what is not harmless is not repeated', async () => {
  const acts: ((box: Sandbox) => Promise<unknown>)[] = [
    (b) => b.exec('true'),
    (b) => b.startExec('true'),
    (b) => b.runCode('1'),
    (b) => b.install(['a']),
    (b) => b.process(1).signal('INT'),
    (b) => b.files.write('f', 'x', { append: true }),
    (b) => b.files.write('f', new Blob(['x']).stream()),
    (b) => b.files.move('a', 'b'),
    (b) => b.files.mkdir('a'),
    (b) => b.importFiles([]),
  ];
  for (const act of acts) {
    const { box, asked } = await scripted([cut, cut]);
    await expect(act(box)).rejects.toBeInstanceOf(UnreachableError);
    expect(asked).toHaveLength(1);
  }
});

test('a create whose answer was lost is repeated with its key', async () => {
  const running = problem(409, 'conflict', {}, { 'Retry-After': '0' });
  const { client, asked } = await scripted([cut, running, running, running, json(201, sandbox)]);
  await client.sandboxes.create({ tenantId: 'acme', limits: { memoryBytes: 1 }, env: { camelCase: '1' } });
  expect(new Set(asked.map((r) => r.headers['idempotency-key'])).size).toBe(1);
  expect(JSON.parse(asked[4]?.body ?? '')).toEqual({
    tenant_id: 'acme',
    limits: { memory_bytes: 1 },
    env: { camelCase: '1' },
  });
  const taken = await scripted([problem(409, 'conflict')]);
  await expect(taken.client.sandboxes.create({ id: 'taken' })).rejects.toMatchObject({ name: 'ConflictError' });
});

test('a destroy whose answer was lost is done', async () => {
  await (await scripted([cut, problem(404, 'not_found')])).box.destroy();
  const { box } = await scripted([problem(404, 'not_found'), problem(404, 'not_found')]);
  await expect(box.destroy()).rejects.toMatchObject({ code: 'not_found' });
  await box[Symbol.asyncDispose]();
});

test('a call ends with its time', async () => {
  const { box, client } = await scripted([silent, silent, silent], { requestTimeoutMs: 50 });
  await expect(box.refresh()).rejects.toMatchObject({ name: 'RequestTimeoutError', retryable: true });
  await expect(client.ready()).rejects.toMatchObject({ name: 'RequestTimeoutError' });
  await expect(box.exec('true', { requestTimeoutMs: 50 })).rejects.toMatchObject({ name: 'RequestTimeoutError' });
});

test('a call ends with its signal, also between repetitions', async () => {
  const late = problem(503, 'sandbox_unavailable', { retryable: true }, { 'Retry-After': '30' });
  const { box, asked } = await scripted([late, silent]);
  const leave = new AbortController();
  const refreshed = box.refresh({ signal: leave.signal });
  const left = expect(refreshed).rejects.toThrow('enough');
  await expect.poll(() => asked.length, { timeout: 30_000 }).toBe(1);
  leave.abort(new Error('enough'));
  await left;
  await expect(box.refresh({ signal: AbortSignal.abort('never') })).rejects.toBe('never');
  const timed = box.refresh({ signal: AbortSignal.timeout(50) });
  await expect(timed).rejects.toMatchObject({ name: 'TimeoutError' });
});

test('a wait goes on while the daemon is gone', async () => {
  const still = json(200, { ...exec, status: 'running', exit_code: null });
  const { box, asked } = await scripted([
    still,
    cut,
    cut,
    plain(502, ''),
    still,
    json(200, { ...exec, stdout: 'end' }),
  ]);
  expect((await box.exec('true')).stdout).toBe('end');
  expect(asked.map((r) => r.method)).toEqual(['POST', 'GET', 'GET', 'GET', 'GET', 'GET']);
  const never = await scripted([still, cut], { resumeMs: 0, retries: 0 });
  await expect(never.box.exec('true')).rejects.toBeInstanceOf(UnreachableError);
});

test('input whose answer was lost is written again where it was', async () => {
  const { box, asked } = await scripted([
    json(202, { ...exec, status: 'running' }),
    cut,
    json(200, { offset: 2 }),
    json(200, { offset: 3 }),
    json(200, { offset: 9 }),
  ]);
  const process = await box.startExec('cat', { stdin: true });
  await process.writeStdin('abc');
  expect(asked.slice(1).map((r) => [r.url.split('?')[1], r.body])).toEqual([
    ['offset=0', 'abc'],
    ['offset=0', 'abc'],
    ['offset=2', 'c'],
  ]);
  await expect(process.writeStdin('d')).rejects.toMatchObject({ code: 'internal' });
});

test('a transfer that breaks off is an error', async () => {
  const { box } = await scripted([
    (response) => {
      response.writeHead(200, { 'Content-Length': '10' });
      response.write('part', () => response.socket?.destroy());
    },
    (response) => {
      response.writeHead(200);
      response.write('part');
    },
  ]);
  const stream = await box.files.open('f');
  await expect(new Response(stream).text()).rejects.toBeInstanceOf(UnreachableError);
  const slow = box.files.open('f', { requestTimeoutMs: 200 }).then((body) => new Response(body).text());
  await expect(slow).rejects.toMatchObject({ name: 'RequestTimeoutError' });
});

test('names cannot reach another resource', async () => {
  const { client, asked } = await scripted([json(200, sandbox)]);
  await client.sandboxes.get('a/../b?c');
  expect(asked[0]?.url).toBe('/prefix/v1/sandboxes/a%2F..%2Fb%3Fc');
  for (const id of ['', '.', '..']) await expect(client.sandboxes.get(id)).rejects.toBeInstanceOf(InvalidRequestError);
});

test('a daemon that is not there', async () => {
  const { url } = await script();
  expect(new Client({ baseUrl: `${url}/` }).url).toBe(url);
  const client = new Client({ baseUrl: 'http://127.0.0.1:2', retries: 0 });
  await expect(client.health()).rejects.toMatchObject({
    code: 'unreachable',
    hint: expect.stringMatching(/cubby serve/),
  });
  for (const baseUrl of ['nonsense', 'ftp://host', 'http://user:secret@host']) {
    expect(() => new Client({ baseUrl })).toThrow(InvalidRequestError);
  }
  expect(() => new Client({ token: 'ü' })).toThrow(InvalidRequestError);
});

test('lists come page by page', async () => {
  const { client, asked } = await scripted([
    json(200, { sandboxes: [{ id: 'x' }], next_cursor: 'c1' }),
    json(200, { sandboxes: [{ id: 'y' }] }),
    json(200, {}),
  ]);
  const ids: string[] = [];
  for await (const box of client.sandboxes.list({ labels: { a: '1', b: '2' }, pageSize: 1 })) ids.push(box.id);
  expect(ids).toEqual(['x', 'y']);
  expect(asked.map((r) => r.url.split('?')[1])).toEqual([
    'label=a%3D1&label=b%3D2&limit=1',
    'label=a%3D1&label=b%3D2&limit=1&cursor=c1',
  ]);
  await expect(client.sandboxes.list().next()).rejects.toMatchObject({ code: 'internal' });
});

test('what keeps a daemon from being ready', async () => {
  const problems = [{ part: 'disk', message: 'full' }];
  const { client } = await scripted([json(503, { problems }), json(200, {}), plain(500, 'x'), plain(503, '<html>')]);
  expect(await client.ready()).toEqual(problems);
  expect(await client.ready()).toEqual([]);
  await expect(client.ready()).rejects.toMatchObject({ status: 500 });
  await expect(client.ready()).rejects.toMatchObject({ code: 'internal' });
});
