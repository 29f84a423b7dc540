import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { type ClientOptions, Sandbox, type Terminal } from '../../src/index.js';
import { Transport } from '../../src/transport.js';
import { fromWire } from '../../src/wire.js';
import { sandbox } from './script.js';

afterEach(() => {
  vi.doUnmock('ws');
  vi.resetModules();
});

type Viewer = (socket: WebSocket, typed: string[]) => void;

/** A box of a server that treats one connection after the other in its own way. */
async function viewed(viewers: Viewer[], options: ClientOptions = {}) {
  const asked: string[] = [];
  const headers: (string | undefined)[] = [];
  const typed: string[] = [];
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket, request) => {
    asked.push(String(request.url));
    headers.push(request.headers.authorization, socket.protocol);
    socket.on('message', (data) => typed.push(data.toString()));
    const viewer = viewers.shift();
    if (viewer) viewer(socket, typed);
    else socket.close(1011);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    for (const socket of sockets.clients) socket.terminate();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/prefix`;
  const transport = new Transport({ baseUrl, token: 'secret', ...options });
  return { box: new Sandbox(transport, fromWire(sandbox)), asked, headers, typed };
}

function attached(offset: number, created = false): string {
  return JSON.stringify({ type: 'attached', name: 'main', seq: 7, offset, new: created });
}

const exit = JSON.stringify({ type: 'exit', exit_code: 3, reason: 'exited', message: '' });

async function rest(terminal: Terminal): Promise<string> {
  let text = '';
  for await (const data of terminal) text += new TextDecoder().decode(data);
  return text;
}

test('a terminal goes on where its connection broke', async () => {
  const { box, asked, headers, typed } = await viewed([
    (socket) => {
      socket.send(attached(10, true));
      socket.send(Buffer.from('abc'), () => socket.once('message', () => socket.terminate()));
    },
    (socket) => socket.close(1001),
    (socket) => {
      socket.send(attached(13));
      socket.send(JSON.stringify({ type: 'skipped', bytes: 7, offset: 20 }));
      socket.send(JSON.stringify({ type: 'brand_new' }));
      socket.send(Buffer.from('def'));
      socket.send(exit, () => socket.close(1000));
    },
  ]);
  const terminal = await box.openTerminal({
    name: 'a b',
    size: { cols: 80, rows: 24 },
    cmd: 'sh',
    user: 'u',
    cwd: '/',
  });
  expect([terminal.name, terminal.seq, terminal.created, terminal.offset]).toEqual(['main', 7, true, 10]);
  expect(new TextDecoder().decode(await terminal.read())).toBe('abc');
  await terminal.resize({ cols: 90, rows: 30 });
  expect(await rest(terminal)).toBe('def');
  expect([terminal.offset, terminal.exit]).toEqual([23, { exitCode: 3, reason: 'exited', message: '' }]);
  expect(typed).toEqual(['{"type":"resize","cols":90,"rows":30}']);
  const where = '/prefix/v1/sandboxes/b/terminal?';
  const resumed = `${where}seq=7&after=13&cols=90&rows=30`;
  expect(asked).toEqual([`${where}name=a+b&cmd=sh&user=u&cwd=%2F&cols=80&rows=24`, resumed, resumed]);
  expect(headers.slice(0, 2)).toEqual(['Bearer secret', 'cubby.terminal.v1']);
});

test('a terminal that never comes back ends with the error', async () => {
  const { box } = await viewed(
    [
      (socket) => {
        socket.send(attached(0));
        socket.once('message', () => socket.terminate());
      },
    ],
    { resumeMs: 0 },
  );
  const terminal = await box.openTerminal();
  await terminal.write('x');
  await expect(terminal.read()).rejects.toMatchObject({ name: 'UnavailableError', retryable: true });
  await expect(terminal.write('x')).rejects.toMatchObject({ name: 'UnavailableError' });
});

test.each([
  ['not JSON', { code: 'internal' }],
  ['[]', { code: 'internal' }],
  ['{"type":"exit"}', { code: 'internal' }],
  ['{"type":"attached","name":"main","offset":0}', { code: 'internal' }],
  [Buffer.from('bytes'), { code: 'internal' }],
])('a first message that cannot be read is an error: %j', async (message, error) => {
  const { box } = await viewed([(socket) => socket.send(message)]);
  await expect(box.openTerminal()).rejects.toMatchObject(error);
});

test('what the daemon closes for is told', async () => {
  const { box } = await viewed(
    [
      (socket) => {
        socket.send(attached(0));
        socket.once('message', () => socket.close(1008, 'the program does not take its input'));
      },
      (socket) => socket.send(attached(0), () => socket.send('{"type":"skipped"}')),
      (socket) => socket.send(Buffer.alloc((1 << 20) + 1)),
    ],
    { resumeMs: 0 },
  );
  const full = await box.openTerminal();
  await full.write('x'.repeat(200_000));
  const refused = expect.stringMatching(/does not take/);
  await expect(full.read()).rejects.toMatchObject({ name: 'InvalidRequestError', message: refused });
  const odd = await box.openTerminal();
  await expect(odd.read()).rejects.toMatchObject({ code: 'internal' });
  await expect(box.openTerminal()).rejects.toMatchObject({ name: 'UnavailableError' });
});

test('an opening ends with its time, its signal or the server', async () => {
  const { box } = await viewed([() => undefined, () => undefined]);
  await expect(box.openTerminal({ requestTimeoutMs: 50 })).rejects.toMatchObject({ name: 'RequestTimeoutError' });
  const leave = new AbortController();
  setTimeout(() => leave.abort(new Error('enough')), 50);
  await expect(box.openTerminal({ signal: leave.signal })).rejects.toThrow('enough');
  const nobody = new Sandbox(new Transport({ baseUrl: 'http://127.0.0.1:2', token: '' }), fromWire(sandbox));
  await expect(nobody.openTerminal()).rejects.toMatchObject({ name: 'UnreachableError' });
});

test('a silent connection is given up', async () => {
  const { box, asked } = await viewed([
    (socket) => socket.send(attached(0)),
    (socket) => {
      socket.send(attached(0));
      socket.send(exit);
    },
  ]);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  const terminal = await box.openTerminal();
  const ended = rest(terminal);
  await vi.advanceTimersByTimeAsync(59_000);
  expect(asked).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(2_000);
  vi.useRealTimers();
  await vi.waitFor(() => expect(asked).toHaveLength(2), { timeout: 60_000 });
  expect([await ended, terminal.exit?.exitCode]).toEqual(['', 3]);
});

test('without the package ws the other half works', async () => {
  vi.resetModules();
  vi.doMock('ws', () => {
    throw new Error('Cannot find package');
  });
  const sdk = await import('../../src/index.js');
  const transport = await import('../../src/transport.js');
  const box = new sdk.Sandbox(new transport.Transport({ baseUrl: 'http://127.0.0.1:2' }), fromWire(sandbox));
  await expect(box.openTerminal()).rejects.toMatchObject({ name: 'UnsupportedError', hint: 'npm install ws' });
});
