import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Client, type Sandbox, type Terminal } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });
let box: Sandbox;

beforeAll(async () => {
  box = await client.sandboxes.create({ isolation: 'container' });
});
afterAll(async () => {
  await box.destroy();
});

const exited = { exitCode: 3, reason: 'exited', message: expect.any(String) };

async function until(terminal: Terminal, text: string): Promise<string> {
  let seen = '';
  for await (const data of terminal) {
    seen += new TextDecoder().decode(data);
    if (seen.includes(text)) return seen;
  }
  throw new Error(`it has ended: ${JSON.stringify(terminal.exit)} ${seen}`);
}

test('a shell', async () => {
  await using opened = await box.openTerminal({ name: 'sdk', size: { cols: 80, rows: 24 }, cmd: 'bash --norc' });
  expect([opened.name, opened.created, opened.exit]).toEqual(['sdk', true, undefined]);
  await opened.write('echo $((6 * 7))\n');
  await until(opened, '42\r\n');
  await opened.resize({ cols: 100, rows: 30 });
  await opened.write(new TextEncoder().encode('stty size\n'));
  await until(opened, '30 100\r\n');
  const [info] = await box.terminals();
  expect(info).toMatchObject({ seq: opened.seq, cmd: 'bash --norc', cols: 100, rows: 30, viewers: 1 });
  expect(info?.createdAt).toBeInstanceOf(Date);

  // Another look sees what was, and what comes.
  await using second = await box.openTerminal({ name: 'sdk' });
  expect([second.created, second.seq]).toEqual([false, opened.seq]);
  expect(await until(second, '30 100\r\n')).toContain('42\r\n');
  await opened.write('exit 3\n');
  for (const terminal of [opened, second]) {
    let last = '';
    for await (const data of terminal) last += new TextDecoder().decode(data);
    expect(last).toMatch(/exit\r\n$/);
    expect(terminal.exit).toEqual(exited);
    expect(await terminal.read()).toBeUndefined();
  }
  const again = await box.openTerminal({ seq: opened.seq, after: opened.offset });
  expect([await again.read(), again.exit]).toEqual([undefined, exited]);
  await expect(again.write('late')).rejects.toMatchObject({ name: 'UnavailableError', retryable: true });
});

test('leaving, and killing', async () => {
  const left = await box.openTerminal({ name: 'left', cmd: 'sleep 1000' });
  const reading = left.read();
  await left.close();
  expect([await reading, await left.read(), left.exit]).toEqual([undefined, undefined, undefined]);
  expect((await box.terminals()).map((t) => t.name)).toContain('left');
  await box.closeTerminal('left');
  const ended = await box.openTerminal({ seq: left.seq });
  expect([await ended.read(), ended.exit?.reason]).toEqual([undefined, 'killed']);
  await expect(box.closeTerminal('left')).rejects.toMatchObject({ code: 'not_found' });
});

test('a read that its options end loses nothing', async () => {
  await using terminal = await box.openTerminal({ name: 'quiet', cmd: 'read x; echo got $x' });
  await expect(terminal.read({ requestTimeoutMs: 20 })).rejects.toMatchObject({ name: 'RequestTimeoutError' });
  await expect(terminal.read({ signal: AbortSignal.abort('enough') })).rejects.toBe('enough');
  await terminal.write('it\n');
  expect(await until(terminal, 'got it\r\n')).toMatch(/^it\r\ngot it/);
});

test('more than is read waits in the daemon', async () => {
  await using terminal = await box.openTerminal({
    name: 'much',
    cmd: "read x; head -c 3000000 /dev/zero | tr '\\0' x; exit 3",
  });
  await terminal.write('\n');
  let length = 0;
  for await (const data of terminal) {
    if (length === 0) await box.exec('true'); // meanwhile more comes than is kept here
    length += data.length;
  }
  expect(length).toBe(3_000_000 + '\r\n'.length);
  expect([terminal.offset, terminal.exit]).toEqual([length, exited]);
});

test('refusals', async () => {
  await expect(box.openTerminal({ name: 'not a name!' })).rejects.toMatchObject({
    name: 'InvalidRequestError',
    status: 400,
  });
  await expect(box.openTerminal({ seq: 2 ** 40 })).rejects.toMatchObject({ name: 'NotFoundError', status: 404 });
  await expect(box.openTerminal({ signal: AbortSignal.abort('no') })).rejects.toBe('no');
  const there = await client.sandboxes.create({ isolation: 'container' });
  await there.destroy();
  await expect(there.openTerminal()).rejects.toMatchObject({ code: expect.stringMatching(/not_found|wrong_state/) });
});
