import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An address of this machine that NO_PROXY of a sandbox does not name. */
export const elsewhere = '127.0.0.2';

/** A package index with `demo`, which has `x`, and a stand-in for `requests`. */
export class PackageIndex {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<PackageIndex> {
    const pages = new Map<string, string | Buffer>();
    for (const name of ['demo', 'requests']) {
      const file = `${name}-1.0-py3-none-any.whl`;
      const data = wheel(name);
      const hash = createHash('sha256').update(data).digest('hex');
      pages.set(`/simple/${name}/`, `<!DOCTYPE html><a href="/${file}#sha256=${hash}">${file}</a>`);
      pages.set(`/${file}`, data);
    }
    const server = createServer((request, response) => {
      const page = pages.get(request.url ?? '');
      if (typeof page === 'string') response.setHeader('Content-Type', 'text/html');
      response.statusCode = page === undefined ? 404 : 200;
      response.end(page);
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(0, elsewhere, resolve);
    });
    return new PackageIndex(server);
  }

  get url(): string {
    return `http://${elsewhere}:${(this.#server.address() as AddressInfo).port}/simple`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

function wheel(name: string): Buffer {
  const info = `${name}-1.0.dist-info`;
  return zip({
    [`${name}.py`]: 'x = 41\n',
    [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: 1.0\n`,
    [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    [`${info}/RECORD`]: [`${name}.py`, ...['METADATA', 'WHEEL', 'RECORD'].map((f) => `${info}/${f}`)]
      .map((f) => `${f},,\n`)
      .join(''),
  });
}

/** An archive of files that are stored as they are. */
function zip(files: Record<string, string>): Buffer {
  const bodies: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, text] of Object.entries(files)) {
    const data = Buffer.from(text);
    // From "version needed" to "extra length", which both headers have.
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE((1 << 5) | 1, 8); // 1980-01-01
    common.writeUInt32LE(crc32(data), 10);
    common.writeUInt32LE(data.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(name.length, 22);
    const body = Buffer.concat([Buffer.from('PK\x03\x04'), common, Buffer.from(name), data]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), common, tail, Buffer.from(name)]));
    bodies.push(body);
    offset += body.length;
  }
  const listed = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(listed.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...bodies, listed, end]);
}

function crc32(data: Buffer): number {
  let crc = -1;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
