import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import type { Answer } from './script.js';

interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  format?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  oneOf?: Schema[];
}

interface Media {
  content?: Record<string, { schema?: Schema }>;
}

interface Operation {
  operationId: string;
  parameters?: { name: string; in: string }[];
  requestBody?: Media;
  responses: Record<string, Media>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

const document: Document = JSON.parse(
  readFileSync(fileURLToPath(new URL('../../../../api/openapi.json', import.meta.url)), 'utf8'),
);

const operations = new Map<string, { method: string; path: RegExp; literal: number; operation: Operation }>();
for (const [path, methods] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    operations.set(operation.operationId, {
      method: method.toUpperCase(),
      path: new RegExp(`^${path.replace(/\{[^}]+\}/g, '[^/]+')}$`),
      literal: path.replace(/\{[^}]+\}/g, '').length,
      operation,
    });
  }
}

/** The ids of all operations of the API. */
export const operationIds = [...operations.keys()];

/** The names of what an operation takes: parameters, and fields of its JSON body as `a.b`. */
export function takes(id: string): Set<string> {
  const { operation } = operations.get(id) as { operation: Operation };
  const parameters = (operation.parameters ?? []).filter((p) => p.in !== 'path').map((p) => p.name);
  const body = operation.requestBody?.content?.['application/json']?.schema ?? {};
  return new Set([...parameters, ...fieldsOf(body, '')]);
}

/** The fields of an object of the API, in camelCase as this package has them. */
export function fields(schema: string): string[] {
  return Object.keys(document.components.schemas[schema]?.properties ?? {})
    .filter((name) => name !== '$schema')
    .map((name) => name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase()));
}

/** The members of the interfaces of this package, with those that they inherit. */
export function interfaces(): Map<string, Set<string>> {
  const all = new Map<string, Set<string>>();
  const source = fileURLToPath(new URL('../../src/', import.meta.url));
  for (const file of ts.sys.readDirectory(source, ['.ts'])) {
    ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest).forEachChild((node) => {
      if (!ts.isInterfaceDeclaration(node)) return;
      const names = node.members.flatMap((m) => (m.name && ts.isIdentifier(m.name) ? [m.name.text] : []));
      all.set(node.name.text, new Set(names));
    });
  }
  return all;
}

/** A daemon of the document's word: it answers with an example of what each operation gives, and notes what it got. */
export class Documented {
  /** What was sent, by operation. */
  readonly got = new Map<string, Set<string>>();

  readonly answer: Answer = (response, request, body) => {
    const found = this.note(request, body);
    const streams = request.headers.accept === 'text/event-stream';
    if (streams) {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.end(`${lastEvents[found.operationId]}\n\n`);
      return;
    }
    const answers = Object.entries(found.responses).filter(([status]) => status.startsWith('2'));
    const contents = answers.flatMap(([, media]) => Object.entries(media.content ?? {}));
    const [type, content] = contents.find(([t]) => t !== 'text/event-stream') ?? [];
    response.writeHead(Number(answers[0]?.[0] ?? 101), type ? { 'Content-Type': type } : {});
    if (type === undefined) return response.end();
    if (type !== 'application/json') return response.end('text');
    const value = example(content?.schema ?? {}, '') as Record<string, unknown>;
    if (request.url?.includes('cursor=')) delete value.next_cursor;
    if (request.url?.includes('before=')) delete value.next_before;
    response.end(JSON.stringify(value));
  };

  /** Finds the operation of a request, which must send nothing that it does not take. */
  note(request: IncomingMessage, body: Buffer): Operation {
    const url = new URL(request.url ?? '', 'http://daemon');
    const found = [...operations.values()]
      .filter((o) => o.method === request.method && o.path.test(url.pathname))
      .sort((a, b) => b.literal - a.literal)[0]?.operation;
    if (!found) throw new Error(`no operation is ${request.method} ${url.pathname}`);
    const id = found.operationId;
    const sent = [...url.searchParams.keys()];
    for (const p of found.parameters ?? []) {
      if (p.in === 'header' && request.headers[p.name.toLowerCase()] !== undefined) sent.push(p.name);
    }
    if (request.headers['content-type'] === 'application/json') sent.push(...sentIn(JSON.parse(body.toString()), ''));
    const known = takes(id);
    const unknown = sent.filter((name) => !known.has(name));
    if (unknown.length > 0) throw new Error(`${id} does not take ${unknown.join(', ')}`);
    this.got.set(id, new Set([...(this.got.get(id) ?? []), ...sent]));
    return found;
  }
}

// Of objects whose keys are the user's.
const free = new Set(['env', 'labels', 'metadata', 'dependencies']);

const exec = { seq: 1, status: 'done', exit_code: 0 };
const lastEvents: Record<string, string> = {
  'stream-exec': `event: exit\ndata: ${JSON.stringify(exec)}`,
  'list-events': 'event: end\ndata: {}',
  'list-task-events': 'id: 7\nevent: done\ndata: {"id":"t","status":"succeeded"}',
  'watch-files': 'event: change\ndata: {"path":"/workspace","op":"ready"}',
  'create-image':
    'event: progress\ndata: {"stage":"exporting","done":1,"total":0,"items":false}\n\nevent: image\ndata: {"name":"n"}',
  'create-sandbox': 'event: sandbox\ndata: {"id":"b","status":"running"}',
};

function resolved(schema: Schema): Schema {
  return schema.$ref ? resolved(document.components.schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {}) : schema;
}

function fieldsOf(schema: Schema, prefix: string): string[] {
  return Object.entries(resolved(schema).properties ?? {}).flatMap(([name, s]) => {
    if (name === '$schema') return [];
    const inner = resolved(resolved(s).items ?? s);
    const below = free.has(name) ? [] : fieldsOf(inner, `${prefix}${name}.`);
    return below.length > 0 ? below : [prefix + name];
  });
}

function sentIn(value: unknown, prefix: string): string[] {
  const one = Array.isArray(value) ? value : [value];
  return one.flatMap((v) => {
    if (typeof v !== 'object' || v === null) return prefix ? [prefix.slice(0, -1)] : [];
    return Object.entries(v).flatMap(([name, inner]) =>
      free.has(name) ? [prefix + name] : sentIn(inner, `${prefix}${name}.`),
    );
  });
}

function example(schema: Schema, name: string): unknown {
  const { type, properties, items, enum: values, format, oneOf } = resolved(schema);
  if (properties) {
    return Object.fromEntries(Object.entries(properties).map(([n, s]) => [n, example(s, n)]));
  }
  if (values) return ['done', 'succeeded'].find((word) => values.includes(word)) ?? values[0];
  if (format === 'date-time') return '2026-01-02T03:04:05Z';
  const kinds = [type ?? (oneOf?.[0] && resolved(oneOf[0]).type)].flat();
  if (kinds.includes('string')) return 'text';
  if (kinds.includes('integer') || kinds.includes('number')) return name === 'exit_code' ? 0 : 1;
  if (kinds.includes('boolean')) return true;
  if (kinds.includes('array')) return items ? [example(items, '')] : [];
  if (kinds.includes('object')) return {};
  return { commits: [], installed: [] }; // what came of an operation
}

/** The words that a field of the API has to be one of, by field; in camelCase as this package has them. */
export function enums(schema: string): [field: string, words: string[]][] {
  return Object.entries(document.components.schemas[schema]?.properties ?? {}).flatMap(([name, s]) => {
    const words = resolved(s).enum ?? resolved(resolved(s).items ?? {}).enum;
    const field = name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
    return words ? [[field, words.map(String).sort()] as [string, string[]]] : [];
  });
}

/** The string literals that members of types of this package can be, as the compiler sees them: `Type.member`. */
export function literals(): (type: string, member: string) => string[] {
  const entry = fileURLToPath(new URL('../../src/web.ts', import.meta.url));
  const options = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, strict: true };
  const program = ts.createProgram([entry], { ...options, noEmit: true, types: [], skipLibCheck: true });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(entry);
  const exported = new Map(
    checker.getExportsOfModule(checker.getSymbolAtLocation(source as ts.SourceFile) as ts.Symbol).map((s) => {
      const aliased = s.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(s) : s;
      return [s.name, checker.getDeclaredTypeOfSymbol(aliased)] as const;
    }),
  );
  return (type, member) => {
    const found = exported.get(type)?.getProperty(member);
    if (!found) return [`${type}.${member} is not there`];
    const kind = checker.getNonNullableType(checker.getTypeOfSymbol(found));
    const kinds = kind.isUnion() ? kind.types : [kind];
    return kinds.map((k) => (k.isStringLiteral() ? k.value : checker.typeToString(k))).sort();
  };
}
