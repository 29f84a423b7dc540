import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An address of this machine that NO_PROXY of a sandbox does not name. */
export const elsewhere = '127.0.0.2';

/** A package index with one package, `demo`, which has `x`. */
export class PackageIndex {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<PackageIndex> {
    const file = 'demo-1.0-py3-none-any.whl';
    const data = wheel();
    const hash = createHash('sha256').update(data).digest('hex');
    const server = createServer((request, response) => {
      if (request.url === '/simple/demo/') {
        response.setHeader('Content-Type', 'text/html');
        response.end(`<!DOCTYPE html><a href="/${file}#sha256=${hash}">${file}</a>`);
      } else if (request.url === `/${file}`) {
        response.end(data);
      } else {
        response.statusCode = 404;
        response.end();
      }
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

function wheel(): Buffer {
  const info = 'demo-1.0.dist-info';
  return zip({
    'demo.py': 'x = 41\n',
    [`${info}/METADATA`]: 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n',
    [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    [`${info}/RECORD`]: ['demo.py', ...['METADATA', 'WHEEL', 'RECORD'].map((f) => `${info}/${f}`)]
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
