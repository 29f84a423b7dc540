/** The JSON of the API, whose names are snake_case, as the objects of this package, and back. */

import { isObject, malformed } from './errors.js';

/** The name of the method by which Node's `console.log` shows an object. @internal */
export const inspected: unique symbol = Symbol.for('nodejs.util.inspect.custom') as never;

/** The methods by which an object that may be large is shown as one short line. @internal */
export function shownShort(name: string, fields: () => Record<string, unknown>): PropertyDescriptorMap {
  const value = (): string => {
    const parts = Object.entries(fields()).filter(([, v]) => v !== undefined && v !== null && v !== '');
    return `${name}(${parts.map(([k, v]) => `${k}: ${short(v)}`).join(', ')})`;
  };
  return { toString: { value }, [inspected]: { value } };
}

function short(value: unknown): string {
  const text = typeof value === 'string' && value.length > 80 ? `${value.slice(0, 79)}…` : value;
  const json = JSON.stringify(text) ?? '';
  return json.length > 200 ? `${json.slice(0, 199)}…` : json;
}

// Fields whose values are the user's or a format of their own: what is in them is passed as it is.
const names = [
  'env',
  'labels',
  'metadata',
  'dependencies',
  'data',
  'detail',
  'payload',
  'result',
  'truncated',
] as const;
const verbatim: ReadonlySet<string> = new Set(names);

type Verbatim = (typeof names)[number];

const time = /(?:_at|_until)$|^(?:mod_time|time)$/;

/** Reads an answer: names become camelCase, and times become a `Date`. @internal */
export function fromWire<T>(value: unknown): T {
  if (!isObject(value)) throw malformed('it is not an object');
  return camel(value) as T;
}

/** Reads the list in a field of an answer. @internal */
export function listFromWire<T>(value: unknown, field: string): T[] {
  const items = isObject(value) ? value[field] : undefined;
  if (!Array.isArray(items)) throw malformed(`${field} is not a list`);
  return items.map((item) => fromWire<T>(item));
}

/** Reads a page of a list. @internal */
export function pageFromWire<T>(value: unknown, field: string): { items: T[]; next: string | undefined } {
  const items = listFromWire<T>(value, field);
  const next = isObject(value) ? value.next_cursor : undefined;
  if (next !== undefined && typeof next !== 'string') throw malformed('the cursor is not text');
  return { items, next: next || undefined };
}

type SnakeCase<S extends string> = S extends `${infer First}${infer Rest}`
  ? First extends Lowercase<First>
    ? `${First}${SnakeCase<Rest>}`
    : `_${Lowercase<First>}${SnakeCase<Rest>}`
  : S;

type Wired<T, Name = ''> = T extends string | number | boolean | null | undefined | Date
  ? T
  : T extends readonly (infer Item)[]
    ? Item[]
    : Name extends Verbatim
      ? T
      : { [K in keyof T as K extends string ? SnakeCase<K> : never]: Wired<T[K], K> };

/** Writes a request: names become snake_case. Undefined fields are left out. @internal */
export function toWire<T extends object>(value: T): Wired<T> {
  const out: Record<string, unknown> = {};
  for (const [name, v] of Object.entries(value)) {
    if (v === undefined) continue;
    const key = name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
    out[key] = isObject(v) && !(v instanceof Date) && !verbatim.has(key) ? toWire(v) : v;
  }
  return out as Wired<T>;
}

function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (!isObject(value)) return value;
  const out: Record<string, unknown> = {};
  for (const [key, v] of Object.entries(value)) {
    const name = key.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
    if (verbatim.has(key)) out[name] = v;
    else if (typeof v === 'string' && time.test(key)) out[name] = new Date(v);
    else out[name] = camel(v);
  }
  return out;
}

/** Decodes output, which comes as base64 where it is not UTF-8. @internal */
export function outputBytes(data: unknown, encoding: unknown): Uint8Array {
  if (typeof data !== 'string') throw malformed('output is not text');
  return encoding === 'base64' ? fromBase64(data) : new TextEncoder().encode(data);
}

/** @internal */
export function fromBase64(data: string): Uint8Array {
  let binary: string;
  try {
    binary = atob(data);
  } catch (e) {
    throw malformed('base64 that cannot be read', e);
  }
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @internal */
export function toBase64(bytes: Uint8Array): string {
  let binary = '';
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(binary);
}
