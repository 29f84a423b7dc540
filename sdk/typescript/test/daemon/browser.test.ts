import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { beforeAll, expect, inject, test } from 'vitest';

const { url, token, pages } = inject('daemon');
const server = `http://127.0.0.1:${pages}`;

beforeAll(async () => {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('../page.ts', import.meta.url))],
    bundle: true,
    write: false,
    platform: 'browser',
    format: 'esm',
  });
  const put = (path: string, body: string) => fetch(server + path, { method: 'PUT', body });
  await put('/main.js', String(outputFiles[0]?.text));
  await put('/config.json', JSON.stringify({ url, token }));
});

/** Opens a page in Chromium and returns what it reports. */
async function opened(page: string): Promise<Record<string, unknown>> {
  const profile = mkdtempSync('/var/tmp/cubby-chromium-');
  const report = fetch(`${server}/report`).then((answer) => answer.json());
  const chromium = spawn(
    'chromium',
    [
      ...[
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--no-first-run',
        '--disable-dev-shm-usage',
        '--no-proxy-server',
      ],
      ...[
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        '--remote-debugging-port=0',
      ],
      ...[`--user-data-dir=${profile}`, page],
    ],
    { stdio: 'ignore', detached: true },
  );
  const ended = once(chromium, 'exit');
  try {
    return (await Promise.race([
      report,
      ended.then(([code]) => Promise.reject(new Error(`chromium ended with ${code}`))),
    ])) as Record<string, unknown>;
  } finally {
    process.kill(-(chromium.pid as number), 'SIGKILL');
    await ended;
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

test('a page of a configured origin uses gRPC-Web, its text mode and this package', async () => {
  const events = ['stdout ü ', 'stderr done ', 'exit  3'];
  expect(await opened(`${server}/`)).toEqual({
    connect: { events, missing: '[not_found] Session not found', destroyed: true },
    text: { events, missing: '5 Session not found', destroyed: true },
    sdk: { stdout: 'ü\n', heard: 'ü\n' },
  });
});

test('a page of another origin gets nothing', async () => {
  const report = await opened(`http://localhost:${pages}/`);
  expect(report.connect).toContain('Failed to fetch');
  expect(report.text).toContain('RpcError');
  expect(report.sdk).toContain('UnreachableError');
});
