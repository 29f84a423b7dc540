import { connect } from 'node:http2';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Sandbox } from '../../src/agentbox.js';
import { Service } from '../../src/connect.js';
import { Client, InvalidRequestError } from '../../src/index.js';

const { url, token } = inject('daemon');
const sandbox = new Sandbox(url, { token });

beforeAll(async () => {
  await sandbox.create();
});
afterAll(async () => {
  await sandbox.destroy();
});

test('a session is there from create to destroy', async () => {
  const s = new Sandbox(url, { token });
  expect([s.sessionId, s.allowedHosts, s.networkEnabled]).toEqual([null, [], false]);
  expect(await s.destroy()).toBe(false);
  const info = await s.create();
  expect(info.sessionId).toBe(s.sessionId);
  expect(info.containerId).not.toBe('');
  expect(info.status).toBe('running');
  expect(info.createdAt).toBeGreaterThan(1e9);
  expect(s.allowedHosts).toHaveLength(9);
  expect(s.allowedHosts).toContain('pypi.org');
  expect(s.networkEnabled).toBe(true);

  const same = new Sandbox(url, { token });
  expect((await same.create({ sessionId: info.sessionId })).containerId).toBe(info.containerId);
  expect(await s.destroy()).toBe(true);
  expect([s.sessionId, s.allowedHosts]).toEqual([null, []]);
  expect(await s.destroy()).toBe(false);
  expect(await same.destroy()).toBe(false);
});

test('hosts are those that were asked for', async () => {
  const s = new Sandbox(url, { token });
  expect((await s.create({ allowedHosts: ['example.com'] })).allowedHosts).toEqual(['example.com']);
  await expect(s.pipInstall(['demo'])).rejects.toThrow('pip install requires pypi.org and files.pythonhosted.org');
  await s.destroy();
  expect((await s.create({ allowedHosts: [] })).allowedHosts).toHaveLength(9);
  await s.destroy();

  await s.create({ allowedHosts: ['localhost'] });
  expect(s.networkEnabled).toBe(false);
  const got = await s.exec("curl -s -o /dev/null -w '%{http_code}' http://example.com/");
  expect(got.stdout).toBe('403');
  await s.destroy();
});

test('commands', async () => {
  const ended = { exitCode: 0, stdout: '', stderr: '', timedOut: false };
  expect(await sandbox.exec('echo hello')).toEqual({ ...ended, stdout: 'hello\n' });
  expect((await sandbox.exec('python3 --version')).stdout).toMatch(/^Python 3\./);
  expect(await sandbox.exec('echo error >&2')).toEqual({ ...ended, stderr: 'error\n' });
  expect(await sandbox.exec('exit 42')).toEqual({ ...ended, exitCode: 42 });
  expect((await sandbox.exec('pwd', { workdir: '/tmp' })).stdout).toBe('/tmp\n');
  expect((await sandbox.exec('touch /workspace/test && echo ok')).stdout).toBe('ok\n');
  const late = await sandbox.exec('echo part; exec sleep 1000', { timeout: 5 });
  expect(late).toMatchObject({ exitCode: -1, timedOut: true, stdout: 'part\n' });
});

test('a stream is live', async () => {
  const events = [];
  // The command goes on only when its first line was read here.
  const command = 'echo first; until test -e go; do sleep 0.05; done; echo oops >&2; pwd; exit 7';
  for await (const e of sandbox.execStream(command, '/tmp')) {
    events.push(e);
    if (e.data === 'first\n') await sandbox.exec('touch go', { workdir: '/tmp' });
  }
  expect(events[0]).toEqual({ type: 'stdout', data: 'first\n' });
  expect(events).toContainEqual({ type: 'stderr', data: 'oops\n' });
  expect(events).toContainEqual({ type: 'stdout', data: '/tmp\n' });
  expect(events.at(-1)).toEqual({ type: 'exit', data: '', exitCode: 7 });
});

test('leaving a stream ends its command', async () => {
  for await (const e of sandbox.execStream('echo $$ >pid; echo begun; exec sleep 1000')) {
    if (e.type === 'stdout') break;
  }
  await expect
    .poll(async () => (await sandbox.exec('kill -0 $(cat pid)')).exitCode, { timeout: 60_000, interval: 100 })
    .not.toBe(0);
});

test('files', async () => {
  await sandbox.writeFile('script.py', 'print("hello")');
  expect(await sandbox.readFile('script.py')).toBe('print("hello")');
  expect((await sandbox.exec('python3 script.py')).stdout).toBe('hello\n');
  await sandbox.writeFile('lines', 'line1\n');
  await sandbox.writeFile('lines', 'line2\n', 'a');
  expect(await sandbox.readFile('lines')).toBe('line1\nline2\n');
  await sandbox.writeFile('empty', '');
  expect(await sandbox.readFile('empty')).toBe('');
  await expect(sandbox.readFile('nonexistent')).rejects.toThrow(/^Failed to read file: .+/);
  await expect(sandbox.writeFile('/etc/passwd', 'x')).rejects.toThrow('Failed to write file: Path not allowed');
});

test('Python code', async () => {
  expect(await sandbox.runPython('print(1 + 1)')).toEqual({ exitCode: 0, stdout: '2\n', stderr: '', timedOut: false });
  expect((await sandbox.runPython('1 / 0')).stderr).toContain('ZeroDivisionError');
  expect((await sandbox.runPython('while True: pass', 1)).timedOut).toBe(true);
  expect((await sandbox.exec('test -e _temp_script.py')).exitCode).toBe(1);
});

test('packages', async () => {
  expect((await sandbox.pipInstall(['demo==1.0'])).exitCode).toBe(0);
  expect((await sandbox.runPython('import demo; print(demo.x)')).stdout).toBe('41\n');
  expect(await sandbox.pipInstall(['a; rm -rf /'])).toMatchObject({ exitCode: -1 });
});

test('without a session there is nothing to do', async () => {
  const s = new Sandbox(url, { token });
  const why = 'No active session. Call create() first.';
  await expect(s.exec('true')).rejects.toThrow(why);
  await expect(s.writeFile('a', 'b')).rejects.toThrow(why);
  await expect(s.readFile('a')).rejects.toThrow(why);
  await expect(s.pipInstall(['a'])).rejects.toThrow(why);
  await expect(s.runPython('1')).rejects.toThrow(why);
  await expect(s.execStream('true').next()).rejects.toThrow(why);
});

test('what the daemon refuses is an error', async () => {
  await expect(new Sandbox(url, { token: '' }).create()).rejects.toMatchObject({ name: 'UnauthorizedError' });
  const s = new Sandbox(url, { token });
  await expect(s.create({ allowedHosts: ['http://a.example/'] })).rejects.toBeInstanceOf(InvalidRequestError);
  await expect(sandbox.exec('')).rejects.toBeInstanceOf(InvalidRequestError);
  const gone = new Sandbox(url, { token });
  const { sessionId } = await gone.create();
  await (await new Client({ baseUrl: url, token }).sandboxes.get(sessionId)).destroy();
  expect(await gone.exec('true')).toMatchObject({
    exitCode: -1,
    stderr: expect.stringMatching(/^Session not found: destroyed /),
  });
});

const service = 'sandbox.v1.SandboxService';

test('a session that nobody made is not found, as JSON and as gRPC', async () => {
  const call = new Service(url, token).call({}, (client, options) =>
    client.getSession({ sessionId: 'unknown' }, options),
  );
  await expect(call).rejects.toMatchObject({ name: 'NotFoundError', message: 'Session not found', status: 404 });

  const id = Buffer.from('unknown');
  const message = Buffer.concat([Buffer.from([0x0a, id.length]), id]); // string session_id = 1
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  const connection = connect(url);
  const stream = connection.request({
    ':method': 'POST',
    ':path': `/${service}/GetSession`,
    'content-type': 'application/grpc',
    te: 'trailers',
    authorization: `Bearer ${token}`,
  });
  const told = new Promise<Record<string, unknown>>((resolve, reject) => {
    let all: Record<string, unknown> = {};
    const add = (headers: Record<string, unknown>) => {
      all = { ...all, ...headers };
    };
    stream
      .on('response', add)
      .on('trailers', add)
      .on('error', reject)
      .on('end', () => resolve(all))
      .resume();
  });
  stream.end(Buffer.concat([head, message]));
  expect(await told).toMatchObject({ 'grpc-status': '5', 'grpc-message': 'Session not found' });
  connection.close();
});

test('a call that is left ends its command', async () => {
  const leave = new AbortController();
  const running = sandbox.exec('echo $$ >left; exec sleep 1000', { timeout: 1000, signal: leave.signal });
  await expect
    .poll(async () => (await sandbox.exec('test -s left')).exitCode, { timeout: 60_000, interval: 100 })
    .toBe(0);
  leave.abort(new Error('enough'));
  await expect(running).rejects.toThrow('enough');
  await expect
    .poll(async () => (await sandbox.exec('kill -0 $(cat left)')).exitCode, { timeout: 60_000, interval: 100 })
    .not.toBe(0);
});
