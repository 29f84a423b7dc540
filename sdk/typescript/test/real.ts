/**
 * A real daemon for the tests that want one.
 *
 * CUBBY_TEST_BIN names the program and CUBBY_TEST_IMAGE_DIR the directory with the image base; without them the
 * repository's own are used. Both must be there: nothing is skipped. The daemon needs root.
 */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';
import { Client, NotFoundError } from '../src/index.js';
import { Pages } from './pages.js';
import { elsewhere, PackageIndex } from './wheel.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Pages is the port of a web server whose pages may call the daemon. */
    daemon: { url: string; token: string; program: string; images: string; pages: number };
  }
}

const root = fileURLToPath(new URL('../../..', import.meta.url));
const token = 'sdk-secret';
// Nothing takes so long; a slow and loaded machine comes close.
const limitMs = 120_000;

/** A child process `cubby serve`. A restarted one has the same data and the same port. */
export class Daemon {
  readonly program = resolve(process.env.CUBBY_TEST_BIN || join(root, 'bin/cubby'));
  readonly images = resolve(process.env.CUBBY_TEST_IMAGE_DIR || join(root, '.cache/images'));
  readonly token = token;
  readonly data: string;
  url = '';
  #child: ChildProcess | undefined;
  #listen = '127.0.0.1:0';
  readonly #index: string;
  readonly #origin: string;

  /** Index is where packages come from, origin whose web pages may call the daemon. */
  constructor(index: string, origin = '') {
    if (!existsSync(this.program) || !existsSync(join(this.images, 'names.json'))) {
      throw new Error(
        `run make build image, or set CUBBY_TEST_BIN (${this.program}) and CUBBY_TEST_IMAGE_DIR (${this.images})`,
      );
    }
    this.data = mkdtempSync('/var/tmp/cubby-sdk-ts-');
    this.#index = index;
    this.#origin = origin;
  }

  get log(): string {
    return `${this.data}.log`;
  }

  async start(): Promise<void> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([k]) => !/^(CUBBY_|SANDBOXD_)/.test(k)));
    const out = openSync(this.log, 'w');
    const child = spawn(
      this.program,
      [
        'serve',
        '--listen',
        this.#listen,
        '--data-dir',
        this.data,
        '--image-dir',
        this.images,
        '--disk-pool',
        '1',
        '--container-pool',
        '0',
      ],
      {
        stdio: ['ignore', out, out],
        env: {
          ...env,
          CUBBY_TOKENS: `sdk:${token}`,
          CUBBY_PREVIEW_LISTEN: '127.0.0.1:0',
          CUBBY_DISK_RESERVE: '1', // the machine may be full
          CUBBY_EGRESS_ALLOW: `127.0.0.1,${elsewhere},localhost`,
          CUBBY_PIP_INDEX_URL: this.#index,
          CUBBY_CORS_ORIGINS: this.#origin,
        },
      },
    );
    this.#child = child;
    for (const until = Date.now() + limitMs; Date.now() < until && child.exitCode === null; await pause(50)) {
      const address = /msg=serving listen=(\S+)/.exec(readFileSync(this.log, 'utf8'))?.[1];
      if (!address) continue;
      this.#listen = address;
      this.url = `http://${address}`;
      const up = await new Client({ baseUrl: this.url, token, retries: 0 }).health().then(
        () => true,
        () => false,
      );
      if (up) return;
    }
    await this.#end('SIGKILL');
    throw new Error(`the daemon does not answer; its log:\n${readFileSync(this.log, 'utf8')}`);
  }

  /** Ends it as a crash would. Sandboxes go on. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((done) => child.once('exit', done));
    child.kill(signal);
    const late = setTimeout(() => child.kill('SIGKILL'), limitMs);
    await gone;
    clearTimeout(late);
  }

  /** Destroys what the tests left, and removes everything of the daemon from this machine. */
  async clean(): Promise<void> {
    if (!this.#child) await this.start();
    for await (const box of new Client({ baseUrl: this.url, token }).sandboxes.list()) {
      await box.destroy().catch((e: unknown) => {
        if (!(e instanceof NotFoundError)) throw e;
      });
    }
    await this.#end('SIGTERM');
    const mounts = readFileSync('/proc/self/mounts', 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[1] ?? '')
      .filter((mount) => mount.startsWith(`${this.data}/`));
    for (const mount of mounts.reverse()) execFileSync('umount', ['-l', mount]);
    rmSync(this.data, { recursive: true });
    rmSync(this.log);
  }
}

/** Runs a daemon that all tests share. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const index = await PackageIndex.start();
  const pages = await Pages.start();
  const daemon = new Daemon(index.url, `http://127.0.0.1:${pages.port}`);
  await daemon.start();
  const { url, program, images } = daemon;
  project.provide('daemon', { url, token, program, images, pages: pages.port });
  return async () => {
    await daemon.clean();
    await index.close();
    await pages.close();
  };
}
