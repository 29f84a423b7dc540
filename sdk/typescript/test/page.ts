/** What browser.test.ts runs in a page: three clients that are made for pages. */

import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import { createGrpcWebTransport } from '@connectrpc/connect-web';
import { GrpcWebClientBase, MethodDescriptor, MethodType, type RpcError } from 'grpc-web';
import { SandboxService } from '../src/gen/sandbox/v1/sandbox_pb.js';
import { Client } from '../src/web.js';

// It goes on only when its first line was read here.
const command = 'rm -f go; echo ü; until [ -e go ]; do sleep 0.05; done; echo done >&2; exit 3';

/** Connect's client, over fetch. */
async function connect(baseUrl: string, token: string): Promise<unknown> {
  const service = createClient(
    SandboxService,
    createGrpcWebTransport({
      baseUrl,
      interceptors: [
        (next) => (request) => {
          request.header.set('Authorization', `Bearer ${token}`);
          return next(request);
        },
      ],
    }),
  );
  const sessionId = (await service.createSession({})).session?.sessionId ?? '';
  const events: string[] = [];
  for await (const e of service.execStream({ sessionId, command })) {
    events.push(`${e.type} ${e.data.trim()} ${e.exitCode ?? ''}`);
    if (e.data === 'ü\n') await service.writeFile({ sessionId, path: 'go', content: '' });
  }
  const missing = await service.getSession({ sessionId: 'unknown' }).catch((e: Error) => e.message);
  return { events, missing, destroyed: (await service.destroySession({ sessionId })).success };
}

/** gRPC's own client for pages, in text mode, which is the only one in which its streams are live. */
async function text(baseUrl: string, token: string): Promise<unknown> {
  const client = new GrpcWebClientBase({ format: 'text' });
  const metadata = { Authorization: `Bearer ${token}` };
  const path = (method: DescMethod) => `/${method.parent.typeName}/${method.name}`;
  const descriptor = <Q extends DescMessage, A extends DescMessage>(method: DescMethod & { input: Q; output: A }) =>
    new MethodDescriptor<MessageShape<Q>, MessageShape<A>>(
      path(method),
      method.methodKind === 'unary' ? MethodType.UNARY : MethodType.SERVER_STREAMING,
      Object as never,
      Object as never,
      (request: MessageShape<Q>) => toBinary(method.input, request),
      (bytes: Uint8Array) => fromBinary(method.output, bytes),
    );
  const call = <Q extends DescMessage, A extends DescMessage>(
    method: DescMethod & { input: Q; output: A },
    fields: MessageInitShape<Q>,
  ): Promise<MessageShape<A>> =>
    client.unaryCall(baseUrl + path(method), create(method.input, fields), metadata, descriptor(method));

  const { createSession, execStream, writeFile, getSession, destroySession } = SandboxService.method;
  const sessionId = (await call(createSession, {})).session?.sessionId ?? '';
  const events: string[] = [];
  await new Promise<void>((resolve, reject) => {
    const request = create(execStream.input, { sessionId, command });
    client
      .serverStreaming(baseUrl + path(execStream), request, metadata, descriptor(execStream))
      .on('data', (e) => {
        events.push(`${e.type} ${e.data.trim()} ${e.exitCode ?? ''}`);
        if (e.data === 'ü\n') call(writeFile, { sessionId, path: 'go' }).catch(reject);
      })
      .on('error', reject)
      .on('end', resolve);
  });
  const missing = await call(getSession, { sessionId: 'unknown' }).catch((e: RpcError) => `${e.code} ${e.message}`);
  return { events, missing, destroyed: (await call(destroySession, { sessionId })).success };
}

/** This package. */
async function sdk(baseUrl: string, token: string): Promise<unknown> {
  const sandbox = await new Client({ baseUrl, token }).sandboxes.create({ labels: { by: 'page' } });
  try {
    const heard: string[] = [];
    const result = await sandbox.exec(['echo', 'ü'], { onStdout: (text) => heard.push(text) });
    return { stdout: result.stdout, heard: heard.join('') };
  } finally {
    await sandbox.destroy();
  }
}

const told = (work: Promise<unknown>) => work.catch((e: unknown) => `${e}`);
const { url, token } = (await (await fetch('/config.json')).json()) as { url: string; token: string };
const report = {
  connect: await told(connect(url, token)),
  text: await told(text(url, token)),
  sdk: await told(sdk(url, token)),
};
await fetch('/report', { method: 'POST', body: JSON.stringify(report) });
