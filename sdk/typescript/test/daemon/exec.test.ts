import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Client, ExecFailedError, type Sandbox, WrongStateError } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });
let box: Sandbox;

beforeAll(async () => {
  box = await client.sandboxes.create({ isolation: 'container', execTimeoutSeconds: 120 });
});
afterAll(async () => {
  await box.destroy();
});

test('a command runs to its end', async () => {
  const r = await box.exec(['python3', '-c', 'print(1 + 1)']);
  expect(r).toMatchObject({ stdout: '2\n', stderr: '', exitCode: 0, reason: 'exited', status: 'done' });
  expect([r.ok, r.finished]).toEqual([true, true]);
  expect(r.finishedAt).toBeInstanceOf(Date);
  expect(r.cmd).toEqual(['python3', '-c', 'print(1 + 1)']);

  const options = { env: { A_B: '1' }, cwd: '/tmp', stdin: 'some input' };
  expect((await box.exec('pwd; echo $A_B; wc -c', options)).stdout).toBe('/tmp\n1\n10\n');
  expect(await box.exec('exit 3')).toMatchObject({ ok: false, exitCode: 3 });
  const failed = box.exec('echo no >&2; exit 3', { check: true });
  await expect(failed).rejects.toBeInstanceOf(ExecFailedError);
  await expect(failed).rejects.toMatchObject({ code: 'exec_failed', result: { exitCode: 3, stderr: 'no\n' } });
  expect(await box.exec('sleep 1000', { timeoutSeconds: 0.2 })).toMatchObject({ reason: 'timeout', status: 'error' });
  // Longer than the first request waits.
  expect((await box.exec('sleep 3; echo slow')).stdout).toBe('slow\n');
});

test('output is bytes', async () => {
  const r = await box.exec("printf 'a\\377b'");
  expect([...r.stdoutBytes]).toEqual([0x61, 0xff, 0x62]);
  expect(r.stdout).toBe('a\uFFFDb');
  const most = await box.exec('head -c 100 /dev/zero', { maxOutputBytes: 10 });
  expect(most.stdoutBytes).toHaveLength(10);
  expect(most.truncated?.stdout).toBe(90);
});

test('a stream has everything, and can be left and resumed', async () => {
  const process = await box.startExec('echo one; echo two >&2; echo ü', {});
  const seen = { stdout: '', stderr: '' };
  for await (const e of process.stream()) {
    if (e.type === 'exit') expect(e.result.exitCode).toBe(0);
    else seen[e.type] += e.text;
  }
  expect(seen).toEqual({ stdout: 'one\nü\n', stderr: 'two\n' });
  const end = (await process.output()).length;
  expect(end).toBe(11);

  const stream = process.stream({ after: 4 });
  const rest: number[] = [];
  for await (const e of stream) if (e.type !== 'exit') rest.push(...e.data);
  expect(rest).toEqual([...(await process.output({ after: 4 }))]);
  expect([stream.offset, stream.result?.exitCode]).toEqual([end, 0]);
  expect(new TextDecoder().decode(await process.output({ stream: 'stderr' }))).toBe('two\n');
});

test('input', async () => {
  const process = await box.startExec('cat -n', { stdin: true });
  const stream = process.stream();
  await process.writeStdin('first\n');
  expect((await stream.next()).value).toMatchObject({ type: 'stdout', text: '     1\tfirst\n' });
  // Another handle finds out how far the input has come.
  await box.process(process.seq).writeStdin('second\n', { eof: true });
  expect((await process.wait()).stdout).toBe('     1\tfirst\n     2\tsecond\n');
  await stream.close();
  await process.closeStdin();
  await expect(process.writeStdin('late')).rejects.toBeInstanceOf(WrongStateError);

  // More than a pipe holds, of which the command reads nothing, and all.
  const much = new Uint8Array(1 << 20).fill(120);
  expect((await box.exec('sleep 0.1', { stdin: much })).ok).toBe(true);
  expect((await box.exec('wc -c', { stdin: much })).stdout).toBe(`${1 << 20}\n`);
});

test('commands are ended from outside', async () => {
  const process = await box.startExec('sleep 1000');
  await process.signal('TERM');
  expect((await process.wait()).reason).toBe('killed');
  const other = await box.startExec('sleep 1000 & sleep 1000');
  expect((await other.cancel()).seq).toBe(other.seq);
  expect((await other.wait()).reason).toBe('killed');
  expect((await other.get()).finished).toBe(true);
  expect((await box.execs({ afterSeq: process.seq - 1, limit: 2 })).map((e) => e.seq)).toEqual([
    process.seq,
    other.seq,
  ]);
});

test('a terminal', async () => {
  const process = await box.startExec('stty size; read x; stty size', { pty: { cols: 81, rows: 25 }, stdin: true });
  let seen = '';
  for await (const e of process.stream()) {
    if (e.type === 'exit') break;
    seen += e.text;
    if (seen === '25 81\r\n') {
      await process.resize({ cols: 90, rows: 30 });
      await process.writeStdin('\n');
    }
  }
  expect(seen).toContain('30 90');
});

test('a session shell', async () => {
  await box.exec('cd /tmp; export V=1', { session: 'main' });
  expect((await box.exec('pwd; echo $V', { session: 'main' })).stdout).toBe('/tmp\n1\n');
  expect(await box.sessions()).toMatchObject([{ name: 'main', cwd: '/tmp' }]);
  const session = box.session('main');
  expect((await session.exec('pwd; echo $W; read x; echo $x', { env: { W: '2' }, stdin: 'in' })).stdout).toBe(
    '/tmp\n2\nin\n',
  );
  const queued = await session.startExec('read x; echo $V$x', { stdin: true });
  await expect(session.close()).rejects.toMatchObject({ name: expect.stringMatching(/Conflict|WrongState/) });
  await queued.writeStdin('3\n');
  expect((await queued.wait()).stdout).toBe('13\n');
  await session.close();
  expect(await box.sessions()).toEqual([]);
  await expect(box.deleteSession('main')).rejects.toMatchObject({ code: 'not_found' });
});

test('a call ends with its signal or its time, and the command goes on', async () => {
  const leave = new AbortController();
  const process = await box.startExec('read x', { stdin: true });
  const waiting = process.wait({ signal: leave.signal });
  leave.abort(new Error('enough'));
  await expect(waiting).rejects.toThrow('enough');
  await expect(process.wait({ requestTimeoutMs: 50 })).rejects.toMatchObject({
    name: 'RequestTimeoutError',
    code: 'timeout',
  });
  const stream = process.stream({ requestTimeoutMs: 50 });
  await expect(stream.next()).rejects.toMatchObject({ name: 'RequestTimeoutError' });
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  const left = process.stream();
  const next = left.next();
  await left.close();
  expect(await next).toEqual({ done: true, value: undefined });
  expect((await process.get()).status).toBe('running');
  await process.closeStdin();
  expect((await process.wait()).exitCode).toBe(1);
});

test('the history tells it', async () => {
  const { seq } = await box.exec('true');
  const kinds = ['exec.*'];
  for await (const e of box.events.follow({ kinds })) {
    expect(e.time).toBeInstanceOf(Date);
    if (e.seq === seq && e.kind === 'exec.finished') break;
  }
  expect(await box.events.wait(seq)).toMatchObject({ seq, exitCode: 0, cmd: 'true' });
  const open = await box.startExec('read x; echo got $x', { stdin: true });
  await expect(box.events.wait(open.seq, { requestTimeoutMs: 50 })).rejects.toMatchObject({
    name: 'RequestTimeoutError',
  });
  await open.writeStdin('it', { eof: true });
  expect(await box.events.wait(open.seq, { maxOutputBytes: 3 })).toMatchObject({ stdout: 'got', ok: true });
  await expect(box.events.wait(1_000_000)).rejects.toMatchObject({ code: 'not_found' });
  const { events, next } = await box.events.list({ kinds, limit: 2 });
  expect(events).toHaveLength(2);
  expect(next).toBe(events[1]?.cursor);
});
