import { expect, test } from 'vitest';
import { type ExecStreamResponse, Sandbox } from '../../src/agentbox.js';
import { type Answer, cut, json, plain, script, silent } from './script.js';

const session = {
  sessionId: 's',
  containerId: 'c',
  createdAt: 1.5,
  allowedHosts: ['pypi.org', 'files.pythonhosted.org'],
};

async function opened(...answers: Answer[]) {
  const { url, asked } = await script(json(200, { session }), ...answers);
  const sandbox = new Sandbox(url, { token: 'secret' });
  await sandbox.create({ sessionId: 's', allowedHosts: [] });
  return { sandbox, asked };
}

function frame(value: unknown, flags = 0): Buffer {
  const data = Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

function frames(...parts: Buffer[]): Answer {
  return (response) => {
    response.writeHead(200, { 'Content-Type': 'application/connect+json' });
    response.end(Buffer.concat(parts));
  };
}

async function stream(sandbox: Sandbox): Promise<ExecStreamResponse[]> {
  const out: ExecStreamResponse[] = [];
  for await (const e of sandbox.execStream('x')) out.push(e);
  return out;
}

test('calls are those of the Connect protocol', async () => {
  const { sandbox, asked } = await opened(
    json(200, { stdout: 'hi' }),
    json(200, { success: true }),
    json(200, { success: true }),
    json(200, {}),
  );
  expect(asked[0]).toMatchObject({
    method: 'POST',
    url: '/sandbox.v1.SandboxService/CreateSession',
    headers: { 'content-type': 'application/json', 'connect-protocol-version': '1', authorization: 'Bearer secret' },
    body: '{"sessionId":"s"}',
  });
  // Fields that have their default are not sent.
  expect(await sandbox.exec('echo hi')).toEqual({ exitCode: 0, stdout: 'hi', stderr: '', timedOut: false });
  expect(JSON.parse(asked[1]?.body ?? '')).toEqual({
    sessionId: 's',
    command: 'echo hi',
    timeout: 30,
    workdir: '/workspace',
  });
  expect(asked[1]?.headers['user-agent']).toMatch(/^cubby-sdk-typescript\//);
  expect(await sandbox.readFile('empty')).toBe('');
  await sandbox.writeFile('f', 'x', 'a');
  expect(JSON.parse(asked[3]?.body ?? '')).toEqual({ sessionId: 's', path: 'f', content: 'x', mode: 'a' });
  expect(await sandbox.destroy()).toBe(false);
  expect(sandbox.sessionId).toBeNull();
});

test('errors have the codes of the API', async () => {
  const { sandbox } = await opened(
    json(404, { code: 'not_found', message: 'Session not found' }),
    json(503, { code: 'unavailable', message: 'later' }),
    json(500, { code: 'brand_new' }),
    plain(502, '<html>'),
    plain(200, '<html>'),
    json(200, []),
    cut,
    json(200, { error: 'disk full' }),
    json(200, { error: 'no' }),
  );
  await expect(sandbox.exec('x')).rejects.toMatchObject({ name: 'NotFoundError', message: 'Session not found' });
  await expect(sandbox.exec('x')).rejects.toMatchObject({ name: 'UnavailableError', retryable: true, status: 503 });
  await expect(sandbox.exec('x')).rejects.toMatchObject({ name: 'InternalError', message: 'Unknown' });
  await expect(sandbox.exec('x')).rejects.toMatchObject({ code: 'sandbox_unavailable', retryable: true });
  await expect(sandbox.exec('x')).rejects.toMatchObject({ code: 'internal' });
  await expect(sandbox.exec('x')).rejects.toMatchObject({ code: 'internal' });
  await expect(sandbox.destroy()).rejects.toMatchObject({ code: 'unreachable' });
  expect(sandbox.sessionId).toBe('s');
  await expect(sandbox.writeFile('f', 'x')).rejects.toThrow('Failed to write file: disk full');
  await expect(sandbox.readFile('f')).rejects.toThrow('Failed to read file: no');
  const nobody = new Sandbox('http://127.0.0.1:2');
  await expect(nobody.create()).rejects.toMatchObject({ code: 'unreachable' });
});

test('a time that is no number is refused here', async () => {
  const { sandbox, asked } = await opened(json(200, {}));
  await expect(sandbox.exec('x', { timeout: Number.NaN })).rejects.toMatchObject({ name: 'InvalidRequestError' });
  await sandbox.exec('x', { timeout: 1.5 });
  expect(asked).toHaveLength(2);
  expect(JSON.parse(asked[1]?.body ?? '')).toMatchObject({ timeout: 2 });
});

test('a call ends with its time or its signal', async () => {
  const { sandbox } = await opened(silent, silent, silent);
  await expect(sandbox.exec('x', { requestTimeoutMs: 50 })).rejects.toMatchObject({ name: 'RequestTimeoutError' });
  const leave = new AbortController();
  setTimeout(() => leave.abort(new Error('enough')), 50);
  await expect(sandbox.readFile('x', { signal: leave.signal })).rejects.toThrow('enough');
  const events = sandbox.execStream('x', '/', { requestTimeoutMs: 50 });
  await expect(events.next()).rejects.toMatchObject({ name: 'RequestTimeoutError' });
});

test('a stream of messages', async () => {
  const { sandbox } = await opened(
    frames(frame({ type: 'stdout', data: 'a' }), frame({ type: 'exit' }), frame({}, 2)),
    frames(
      frame({ type: 'exit', exitCode: 7 }),
      frame({ error: { code: 'unavailable', message: 'the daemon stops' } }, 2),
    ),
  );
  expect(await stream(sandbox)).toEqual([
    { type: 'stdout', data: 'a' },
    { type: 'exit', data: '', exitCode: 0 },
  ]);
  await expect(stream(sandbox)).rejects.toMatchObject({ name: 'UnavailableError', message: 'the daemon stops' });
});

test.each<[string, Answer, string]>([
  ['ends without its end', frames(frame({ type: 'stdout', data: 'a' })), 'sandbox_unavailable'],
  ['is cut in a message', frames(frame({ type: 'stdout', data: 'a' }).subarray(0, 9)), 'sandbox_unavailable'],
  ['is cut in a head', frames(frame({}).subarray(0, 3)), 'sandbox_unavailable'],
  ['is compressed', frames(frame({}, 1)), 'internal'],
  ['has a message without bound', frames(Buffer.from([0, 0xff, 0xff, 0xff, 0xff])), 'internal'],
  ['has a message that is not JSON', frames(frame('{')), 'internal'],
  ['has an event of no kind', frames(frame({ type: 'x' })), 'internal'],
  ['is something else', plain(200, '<html>'), 'internal'],
  ['is refused', plain(502, '<html>'), 'sandbox_unavailable'],
  ['never begins', cut, 'unreachable'],
])('a stream that %s is an error', async (_, answer, code) => {
  const { sandbox } = await opened(answer);
  await expect(stream(sandbox)).rejects.toMatchObject({ code });
});

test('a stream that breaks off is an error after what came', async () => {
  const { sandbox } = await opened((response) => {
    response.writeHead(200, { 'Content-Type': 'application/connect+json' });
    response.write(frame({ type: 'stdout', data: 'a' }), () => response.socket?.destroy());
  });
  const events = sandbox.execStream('x');
  expect(await events.next()).toMatchObject({ value: { data: 'a' } });
  await expect(events.next()).rejects.toMatchObject({ code: 'unreachable' });
});

test('packages need their hosts', async () => {
  const { url } = await script(json(200, { session: { ...session, allowedHosts: ['*.pypi.org', 'pypi.org'] } }));
  const sandbox = new Sandbox(url);
  await sandbox.create();
  await expect(sandbox.pipInstall(['x'])).rejects.toThrow(
    'pip install requires files.pythonhosted.org in allowedHosts',
  );
});
