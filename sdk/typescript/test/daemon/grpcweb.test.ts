import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createGrpcWebTransport } from '@connectrpc/connect-web';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { SandboxService } from '../../src/gen/sandbox/v1/sandbox_pb.js';

const { url, token } = inject('daemon');

// The client that pages have, over fetch.
describe.each([true, false])('gRPC-Web, binary: %s', (useBinaryFormat) => {
  const client = (token: string) =>
    createClient(
      SandboxService,
      createGrpcWebTransport({
        baseUrl: url,
        useBinaryFormat,
        interceptors: [
          (next) => (request) => {
            request.header.set('Authorization', `Bearer ${token}`);
            return next(request);
          },
        ],
      }),
    );
  const service = client(token);
  let sessionId = '';

  beforeAll(async () => {
    sessionId = (await service.createSession({})).session?.sessionId ?? '';
  });
  afterAll(async () => {
    expect(await service.destroySession({ sessionId })).toMatchObject({ success: true });
  });

  test('calls and files', async () => {
    expect(await service.exec({ sessionId, command: 'echo ü; exit 3' })).toMatchObject({ exitCode: 3, stdout: 'ü\n' });
    expect(await service.writeFile({ sessionId, path: 'f', content: 'x' })).toMatchObject({ success: true });
    expect(await service.readFile({ sessionId, path: 'f' })).toMatchObject({ success: true, content: 'x' });
  });

  test('a stream is live', async () => {
    const events: string[] = [];
    // The command goes on only when its first line was read here.
    const command = 'rm -f go; echo live; until [ -e go ]; do sleep 0.05; done; echo done >&2; exit 3';
    for await (const e of service.execStream({ sessionId, command })) {
      events.push(`${e.type} ${e.data.trim()} ${e.exitCode ?? ''}`);
      if (e.data === 'live\n') await service.writeFile({ sessionId, path: 'go', content: '' });
    }
    expect(events).toEqual(['stdout live ', 'stderr done ', 'exit  3']);
  });

  test('errors are those of gRPC', async () => {
    const missing = await service.getSession({ sessionId: 'unknown' }).catch((e: unknown) => e);
    expect(missing).toBeInstanceOf(ConnectError);
    expect(missing).toMatchObject({ code: Code.NotFound, rawMessage: 'Session not found' });
    await expect(client('wrong').listSessions({})).rejects.toMatchObject({ code: Code.Unauthenticated });
  });
});
