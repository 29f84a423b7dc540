import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { Client, type ClientOptions, Sandbox } from '../../src/index.js';
import { Transport } from '../../src/transport.js';
import { fromWire } from '../../src/wire.js';

/** Answers one request. */
export type Answer = (response: ServerResponse, request: IncomingMessage, body: Buffer) => void;

/** What was asked. */
export interface Asked {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** Runs a server that gives one answer after the other, until the test is over. */
export async function script(...answers: Answer[]): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const body = Buffer.concat(pieces);
      asked.push({
        method: request.method ?? '',
        url: request.url ?? '',
        headers: request.headers,
        body: body.toString(),
      });
      const answer =
        answers.shift() ?? problem(418, 'nobody_expected', { message: `${request.method} ${request.url}` });
      answer(response, request, body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

/** A client of such a server, and its sandbox `b`. */
export async function scripted(answers: Answer[], options: ClientOptions = {}) {
  const { url, asked } = await script(...answers);
  const all = { baseUrl: `${url}/prefix/`, token: 'secret', ...options };
  return { client: new Client(all), box: new Sandbox(new Transport(all), fromWire(sandbox)), asked };
}

export const sandbox = { id: 'b', status: 'running', created_at: '2026-01-02T03:04:05.123456789Z' };
export const exec = { seq: 1, status: 'done', exit_code: 0, reason: 'exited', stdout: '', stderr: '' };

export function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(JSON.stringify(value));
  };
}

export function problem(
  status: number,
  code: string,
  fields: Record<string, unknown> = {},
  headers: Record<string, string> = {},
): Answer {
  const error = { code, message: `this is ${code}`, hint: '', retryable: false, request_id: 'r1', ...fields };
  return json(status, { error }, headers);
}

export function plain(status: number, text: string, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { 'Content-Type': 'text/html', ...headers });
    response.end(text);
  };
}

/** Reads the request and breaks the connection. */
export const cut: Answer = (response) => {
  response.socket?.destroy();
};

/** Never answers. */
export const silent: Answer = () => undefined;

/** A stream of events that ends, or breaks after what was sent. */
export function events(text: string, end: 'end' | 'break' | 'stay' = 'end'): Answer {
  return (response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write(text, () => {
      if (end === 'end') response.end();
      else if (end === 'break') response.socket?.destroy();
    });
  };
}

export function output(text: string, offset: number, stream = 'stdout'): string {
  const data = JSON.stringify({ data: text, encoding: 'utf-8', offset });
  return `id: ${offset + text.length}\nevent: ${stream}\ndata: ${data}\n\n`;
}

export const exit = `id: 6\nevent: exit\ndata: ${JSON.stringify(exec)}\n\n`;
export const ping = 'event: ping\ndata: {}\n\n';
