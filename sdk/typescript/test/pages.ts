import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * A web page of another origin than the daemon, and what it reports. PUT of /main.js and /config.json says what it is,
 * POST of /report what it found; GET of /report waits for that.
 */
export class Pages {
  readonly #server: Server;
  readonly #files = new Map<string, Buffer>();
  #waiting: ((report: Buffer) => void)[] = [];

  private constructor() {
    this.#server = createServer((request, response) => {
      const path = request.url ?? '';
      const pieces: Buffer[] = [];
      request.on('data', (piece: Buffer) => pieces.push(piece));
      request.on('end', () => {
        const body = Buffer.concat(pieces);
        if (request.method === 'PUT') this.#files.set(path, body);
        if (request.method === 'POST') for (const report of this.#waiting.splice(0)) report(body);
        if (request.method !== 'GET') return response.end();
        if (path === '/report') return this.#waiting.push((report) => response.end(report));
        const file =
          path === '/' ? '<!DOCTYPE html><script type="module" src="/main.js"></script>' : this.#files.get(path);
        response.statusCode = file === undefined ? 404 : 200;
        response.setHeader('Content-Type', path === '/' ? 'text/html' : 'text/javascript');
        return response.end(file);
      });
    });
  }

  static async start(): Promise<Pages> {
    const pages = new Pages();
    await new Promise<void>((resolve, reject) => {
      pages.#server.once('error', reject);
      pages.#server.listen(0, '127.0.0.1', resolve);
    });
    return pages;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
