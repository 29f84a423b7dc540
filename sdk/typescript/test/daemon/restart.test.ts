import { expect, onTestFinished, test } from 'vitest';
import { Client } from '../../src/index.js';
import { Daemon } from '../real.js';

test('a terminal outlives a daemon that is killed', async () => {
  const daemon = new Daemon('http://127.0.0.2:2/simple');
  onTestFinished(() => daemon.clean());
  await daemon.start();
  const client = new Client({ baseUrl: daemon.url, token: daemon.token, resumeMs: 300_000 });
  const box = await client.sandboxes.create({ isolation: 'container' });

  const terminal = await box.openTerminal({ cmd: 'bash --norc' });
  let seen = '';
  const until = async (text: string) => {
    while (!seen.includes(text)) {
      const data = await terminal.read();
      if (data === undefined) throw new Error(`it has ended: ${JSON.stringify(terminal.exit)} ${seen}`);
      seen += new TextDecoder().decode(data);
    }
  };
  await terminal.write('echo $((1000 + 1))\n');
  await until('1001\r\n');
  const next = until('1002\r\n');
  await daemon.kill();
  await daemon.start();
  // What is typed from elsewhere shows here, after what was there before, once.
  const other = await box.openTerminal();
  await other.write('echo $((1000 + 2)); exit\n');
  await next;
  while (await terminal.read());
  await other.close();
  expect(seen.split('1001\r\n')).toHaveLength(2);
  expect(terminal.exit).toMatchObject({ exitCode: 0, reason: 'exited' });
});

test('streams, waits and input outlive a daemon that is killed', async () => {
  const daemon = new Daemon('http://127.0.0.2:2/simple');
  onTestFinished(() => daemon.clean());
  await daemon.start();
  const client = new Client({ baseUrl: daemon.url, token: daemon.token, resumeMs: 300_000 });
  const box = await client.sandboxes.create({ isolation: 'container' });

  const process = await box.startExec('while read x; do echo got $x; done', { stdin: true });
  const stream = process.stream();
  await process.writeStdin('one\n');
  expect((await stream.next()).value).toMatchObject({ text: 'got one\n' });
  const waiting = process.wait();
  const next = stream.next();
  await daemon.kill();
  await daemon.start();
  await process.writeStdin('two\n');
  expect((await next).value).toMatchObject({ text: 'got two\n', offset: 8 });
  await process.closeStdin();
  expect((await stream.next()).value).toMatchObject({ type: 'exit', result: { exitCode: 0 } });
  expect((await waiting).stdout).toBe('got one\ngot two\n');
});
