import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { Client, type Sandbox } from '../../src/index.js';
import { Documented, enums, fields, interfaces, literals, operationIds, takes } from './openapi.js';

// What this package does not call, and why.
const omitted: Record<string, string> = {
  'health-json': 'health says the same',
  guide: 'it is a page for language models',
  'guide-sandboxed': 'it is a page for language models',
  metrics: 'it is for Prometheus',
  'connect-port': 'cubby port-forward has it; HTTP of a port has its preview',
  ...Object.fromEntries(
    ['get-settings', 'change-settings', 'replace-settings', 'clear-settings', 'list-models', 'test-settings'].map(
      (id) => [id, 'cubby settings has it; a program that runs sandboxes sets no models'],
    ),
  ),
  ...Object.fromEntries(
    ['list-webhook-messages', 'renew-webhook-secret'].map((id) => [
      id,
      'webhooks are for runs of the agent, which the clients of LangGraph begin',
    ]),
  ),
  ...Object.fromEntries(
    operationIds
      .filter((id) => /^(?:sandboxed|ecs|sandbox-agent|langgraph)-/.test(id))
      .map((id) => [id, 'it is the interface of another system, whose clients call it']),
  ),
};

const streamed = 'the header Accept says it';
const short = 'limits has it';

// What it does not send, by operation.
const unsent: Record<string, Record<string, string>> = {
  'create-sandbox': {
    stream: streamed,
    memory_bytes: short,
    cpus: short,
    pids: short,
    disk_bytes: short,
    open_files: short,
    from_snapshot: 'snapshot has it',
  },
  'create-image': { stream: streamed },
  exec: { stream: 'the output is followed by its own request, which can go on' },
  'run-code': { stream: 'as of commands' },
  'install-packages': { stream: 'as of commands', wait_seconds: 'startInstall and wait' },
  'write-file': { content: 'the body is the content', encoding: 'as content' },
  'exec-output': { follow: 'stream does' },
  'stream-exec': { after: 'the header Last-Event-ID says it' },
  'list-events': { follow: streamed },
  'list-task-events': { since: 'the header Last-Event-ID says it', limit: 'they are followed' },
};

const login = { username: 'u', password: 'p', token: 't' };
const repository = { path: 'r', timeoutSeconds: 5 };
const command = { timeoutSeconds: 1, env: { A_B: 'c' }, cwd: '/', user: 'u', session: 's' };
const limits = { memoryBytes: 1, cpus: 1, pids: 1, diskBytes: 1, openFiles: 1 };
const network = { mode: 'allowlist' as const, allow: ['a'], deny: ['b'], proxyEnv: false };
const words = { visibility: 'private', hostHeader: 'preserve', idlePolicy: 'stop', autoWake: 'never' } as const;
const policy = { network: { ...network, allow: ['a'], deny: ['b'] }, ...words };
const times = { idleTimeoutSeconds: 1, execTimeoutSeconds: 1, maxLifetimeSeconds: 1, gitRemoteUrl: 'u' };
const service = { name: 's', command: 'c', port: 1, cwd: '/', env: { A_B: 'c' }, requires: '/r' };
const services = [{ ...service, restart: 'never' as const }];
const notes = { labels: { l: 'v' }, metadata: { m: 'v' }, ports: [80], services, ...policy, ...times };
const tree = { recursive: true };

// A call, or several, of everything that an operation takes.
const calls: Record<string, (client: Client, box: Sandbox) => Promise<unknown>> = {
  health: (c) => c.health(),
  ready: (c) => c.ready(),
  'list-images': (c) => c.images(),
  'create-image': (c) =>
    c.createImage({
      name: 'n',
      from: 'i',
      pull: 'p',
      apt: ['a'],
      npm: ['n'],
      pip: ['p'],
      run: ['r'],
      allow: ['h'],
    }),
  'remove-image': (c) => c.removeImage('n'),
  'get-archive': (c) => c.archives.get('a', { tenantId: 't' }),
  'remove-archive': (c) => c.archives.delete('a', { tenantId: 't' }),
  'list-threads': (c) => c.threads.list(),
  'destroy-thread': (c) => c.threads.destroy('t'),
  'create-snapshot': (c) => c.snapshots.create('a', { name: 'n', memory: true }),
  'list-snapshots': (c) => all(c.snapshots.list({ sandboxId: 'a', tenantId: 't', pageSize: 1 })),
  'get-snapshot': (c) => c.snapshots.get('n'),
  'remove-snapshot': (c) => c.snapshots.delete('n'),
  'fork-sandbox': (_, b) => b.fork({ count: 2, ids: ['x'] }),
  'rollback-sandbox': (_, b) => b.rollback('n'),
  'list-tenants': (c) => all(c.tenants.list({ pageSize: 1 })),
  'get-tenant': (c) => c.tenants.get('t'),
  'remove-tenant': (c) => c.tenants.delete('t'),
  'list-uploads': (c) => c.tenants.uploads('t').list({ path: 'p', ...tree }),
  'write-upload': (c) => c.tenants.uploads('t').write('p', 'x'),
  'read-upload': (c) => c.tenants.uploads('t').read('p'),
  'remove-upload': (c) => c.tenants.uploads('t').remove('p', tree),
  'list-secrets': (c) => c.secrets.list({ tenantId: 't' }),
  'set-secret': (c) => c.secrets.set('K', 'v', { tenantId: 't' }),
  'remove-secret': (c) => c.secrets.remove('K', { tenantId: 't' }),

  'list-sandboxes': (c) =>
    all(c.sandboxes.list({ labels: { l: 'v' }, status: 'running', thread: 't', tenantId: 't', pageSize: 1 })),
  'create-sandbox': async (c) => {
    const from = {
      id: 'b',
      image: 'i',
      runtime: 'python' as const,
      user: 'u',
      thread: 't',
      tenantId: 't',
      sharedFiles: true,
      restore: 'a',
      snapshot: 's',
    };
    const options = { ...from, ...notes, isolation: 'container' as const, env: { A_B: 'c' }, limits };
    await c.sandboxes.create(options);
    await c.sandboxes.create({ ...options, dependencies: { d: '1' } });
  },
  'get-sandbox': (_, b) => b.refresh(),
  'update-sandbox': async (_, b) => {
    await b.update(notes);
    await b.network.update({ mode: 'none' }, { cut: true });
  },
  'destroy-sandbox': async (_, b) => {
    await b.destroy({ keepDisk: true });
    await b.destroy({ archive: true });
  },
  'purge-sandbox': (_, b) => b.purge(),
  'start-sandbox': (_, b) => b.start(),
  'stop-sandbox': (_, b) => b.stop({ graceSeconds: 1, force: true }),
  'sleep-sandbox': (_, b) => b.sleep({ force: true }),
  'wake-sandbox': (_, b) => b.wake(),
  'keep-sandbox': async (_, b) => {
    await b.keepalive({ seconds: 1 });
    await b.keepalive({ until: new Date() });
  },
  'get-stats': (_, b) => b.stats(),
  'list-egress-connections': (_, b) => b.network.connections(),
  'explain-egress': (_, b) => b.network.explain('h'),

  exec: async (_, b) => {
    await b.exec('c', { ...command, maxOutputBytes: 1 });
    await b.startExec(['c'], { ...command, stdin: true, pty: { cols: 1, rows: 1 } });
  },
  'list-execs': async (_, b) => {
    await b.execs({ afterSeq: 1, limit: 1 });
    await b.services.runs('s', { afterSeq: 1, limit: 1 });
  },
  'list-services': (_, b) => b.services.list(),
  'get-service': (_, b) => b.services.get('s'),
  'start-service': (_, b) => b.services.start('s'),
  'stop-service': (_, b) => b.services.stop('s'),
  'restart-service': (_, b) => b.services.restart('s'),
  'get-exec': (_, b) => b.process(1).wait({ maxOutputBytes: 1 }),
  'cancel-exec': (_, b) => b.process(1).cancel(),
  'exec-output': (_, b) => b.process(1).output({ after: 1, stream: 'stdout' }),
  'resize-exec': (_, b) => b.process(1).resize({ cols: 1, rows: 1 }),
  'signal-exec': (_, b) => b.process(1).signal('INT', { tree: true }),
  'write-stdin': (_, b) => b.process(1).writeStdin('', { eof: true }),
  'stream-exec': (_, b) => all(b.process(1).stream({ after: 1 })),
  'list-ports': (_, b) => b.ports(),
  'get-port': (_, b) => b.port(80),
  'create-port-link': (_, b) => b.link(80, { expiresInSeconds: 1 }),
  'end-port-links': (_, b) => b.endLinks(),
  'list-sessions': (_, b) => b.sessions(),
  'forget-session': (_, b) => b.session('s').close(),

  'run-code': async (_, b) => {
    const options = { language: 'l', kernel: 'k', timeoutSeconds: 1, cwd: '/', env: { A_B: 'c' } };
    await b.runCode('c', options);
    await b.startCode('c', { ...options, stdin: true });
  },
  'get-code': (_, b) => b.cell(1).wait(),
  'list-kernels': (_, b) => b.kernels.list(),
  'create-kernel': (_, b) => b.kernels.create({ name: 'n', language: 'l', cwd: '/', env: { A_B: 'c' }, user: 'u' }),
  'get-kernel': (_, b) => b.kernels.get('k'),
  'delete-kernel': (_, b) => b.kernels.delete('k'),
  'interrupt-kernel': (_, b) => b.kernels.interrupt('k'),
  'restart-kernel': (_, b) => b.kernels.restart('k'),
  'complete-code': (_, b) => b.kernels.complete('k', { code: 'c', cursorPos: 1 }),
  'inspect-code': (_, b) => b.kernels.inspect('k', { code: 'c', cursorPos: 1, detailLevel: 1 }),
  'check-code': (_, b) => b.kernels.isComplete('k', 'c'),
  'install-packages': (_, b) => b.install(['p'], { runtime: 'python' }),

  'list-events': async (_, b) => {
    await b.events.list({ after: 1, limit: 1, kinds: ['k'] });
    await all(b.events.follow({ after: 1 }));
  },
  'get-operation': (_, b) => b.events.wait(1, { maxOutputBytes: 1 }),

  'list-files': (_, b) => b.files.list('p', tree),
  'read-file': (_, b) => b.files.read('p', { offset: 1 }),
  'write-file': (_, b) => b.files.write('p', 'x', { append: true, mode: 0o600, parents: true }),
  'remove-file': (_, b) => b.files.remove('p', tree),
  'stat-file': (_, b) => b.files.stat('p'),
  'make-dir': (_, b) => b.files.mkdir('p', { parents: true, mode: 0o700 }),
  'move-file': (_, b) => b.files.move('p', 'q', { replace: true }),
  'download-archive': (_, b) => drained(b.files.archive('p', { format: 'zip' })),
  'upload-archive': (_, b) => b.files.extract('p', 'x'),
  'watch-files': (_, b) => b.files.watch('p', tree).next(),
  'export-files': (_, b) => b.exportFiles(['p']),
  'list-exports': (_, b) => b.exports(),
  'download-export': (_, b) => drained(b.openExport('p', { format: 'zip' })),
  'import-files': (_, b) =>
    b.importFiles([{ content: 'x', destination: 'd' }, { sandbox: 's', path: 'p' }, { source: '/p' }]),

  'git-clone': (_, b) => b.git.clone('u', { ...repository, ...login, dest: 'd', branch: 'b', depth: 1 }),
  'git-status': (_, b) => b.git.status(repository),
  'git-diff': (_, b) => b.git.diff({ ...repository, staged: true, files: ['f'] }),
  'git-add': (_, b) => b.git.add({ ...repository, all: true, files: ['f'] }),
  'git-commit': (_, b) =>
    b.git.commit('m', { ...repository, all: true, files: ['f'], authorName: 'a', authorEmail: 'e' }),
  'git-branch': (_, b) => b.git.branch({ ...repository, name: 'n' }),
  'git-checkout': (_, b) => b.git.checkout('n', { ...repository, create: true }),
  'git-log': (_, b) => b.git.log({ ...repository, branch: 'b', limit: 1, files: ['f'] }),
  'git-pull': (_, b) => b.git.pull({ ...repository, ...login, remote: 'r', branch: 'b' }),
  'git-push': (_, b) => b.git.push({ ...repository, ...login, remote: 'r', branch: 'b', force: true }),

  'open-terminal': async (_, b) => {
    const options = { name: 'n', size: { cols: 1, rows: 1 }, cmd: 'c', user: 'u', cwd: '/', seq: 1, after: 1 };
    await (await b.openTerminal(options)).close();
  },
  'start-task': (_, b) =>
    b.tasks.start('p', {
      agent: 'a',
      command: ['c'],
      protocol: 'acp',
      model: 'm',
      cwd: 'd',
      env: { A_B: 'c' },
      secrets: ['s'],
      timeoutSeconds: 1,
      resume: 't',
      permissions: 'ask',
    }),
  'list-tasks': (_, b) => all(b.tasks.list({ pageSize: 1 })),
  'get-task': (_, b) => b.tasks.wait('t'),
  'cancel-task': (_, b) => b.tasks.cancel('t'),
  'answer-task': (_, b) => b.tasks.answer('t', 'q', 'o'),
  'restore-task': (_, b) => b.tasks.restore('t'),
  'list-task-events': (_, b) => all(b.tasks.events('t', { since: 1 })),
  'list-terminals': (_, b) => b.terminals(),
  'close-terminal': (_, b) => b.closeTerminal('t'),
};

// The interfaces of what answers hold.
const kinds: Record<string, string> = {
  Archive: 'Archive',
  CodeCompleteness: 'CodeCompleteness',
  CodeCompletion: 'CodeCompletion',
  CodeError: 'CodeError',
  CodeInspection: 'CodeInspection',
  DisplayOutput: 'Display',
  EgressConnection: 'EgressConnection',
  EgressDecision: 'EgressDecision',
  Event: 'HistoryEvent',
  Exec: 'ExecResult',
  Execution: 'Execution',
  ExportEntry: 'ExportedFile',
  Exported: 'ExportedFile',
  File: 'FileInfo',
  Image: 'Image',
  ImageDefinition: 'ImageDefinition',
  ImageSteps: 'ImageSteps',
  Imported: 'ImportedFile',
  Kernel: 'Kernel',
  KernelKind: 'KernelKind',
  Limits: 'Limits',
  Link: 'Link',
  Network: 'NetworkPolicy',
  Port: 'Port',
  Sandbox: 'SandboxInfo',
  Secret: 'Secret',
  Service: 'Service',
  ServiceSpec: 'ServiceSpec',
  Session: 'SessionShell',
  Stats: 'Stats',
  Task: 'Task',
  TaskPush: 'TaskPush',
  TaskTokens: 'TaskTokens',
  Tenant: 'Tenant',
  Terminal: 'TerminalInfo',
  Thread: 'Thread',
};

// Fields of answers that have another shape here.
const shaped = new Set(['Exec.stdoutEncoding', 'Exec.stderrEncoding']);

const daemon = new Documented();
const failures: unknown[] = [];
const server = createServer((request, response) => {
  const pieces: Buffer[] = [];
  request.on('data', (piece: Buffer) => pieces.push(piece));
  request.on('end', () => {
    try {
      daemon.answer(response, request, Buffer.concat(pieces));
    } catch (e) {
      failures.push(e);
      response.destroy();
    }
  });
});
new WebSocketServer({ server }).on('connection', (socket, request) => {
  daemon.note(request, Buffer.alloc(0));
  socket.send('{"type":"attached","name":"n","seq":1,"offset":0,"new":true}');
});
let client: Client;

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  client = new Client({ baseUrl, token: '', retries: 0, resumeMs: 0 });
});
afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

test('every operation of the API is called, or left out for a reason', () => {
  expect([...Object.keys(calls), ...Object.keys(omitted)].sort()).toEqual([...operationIds].sort());
});

describe('everything that it takes can be sent', () => {
  test.each(Object.entries(calls))('%s', async (id, call) => {
    await call(client, await client.sandboxes.get('b'));
    expect(failures).toEqual([]);
    const sent = new Set([...(daemon.got.get(id) ?? []), ...Object.keys(unsent[id] ?? {})]);
    expect(sent).toEqual(takes(id));
  });
});

test('every field of an answer has its type', () => {
  const members = interfaces();
  const missing = Object.entries(kinds).flatMap(([schema, name]) =>
    fields(schema)
      .filter((field) => !members.get(name)?.has(field) && !shaped.has(`${schema}.${field}`))
      .map((field) => `${name}.${field}`),
  );
  expect(missing).toEqual([]);
});

// Of requests the compiler sees to it: see request.test.ts.
test('what has to be one of some words is a literal type', () => {
  const words = literals();
  const got: Record<string, string[]> = {};
  const want: Record<string, string[]> = {};
  for (const [schema, name] of Object.entries(kinds)) {
    for (const [field, those] of enums(schema)) {
      if (shaped.has(`${schema}.${field}`)) continue;
      want[`${name}.${field}`] = those;
      got[`${name}.${field}`] = words(name, field);
    }
  }
  expect(got).toEqual(want);
  expect(Object.keys(want).length).toBeGreaterThan(15);
});

async function all(items: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of items);
}

async function drained(stream: Promise<ReadableStream<Uint8Array>>): Promise<void> {
  await new Response(await stream).arrayBuffer();
}
