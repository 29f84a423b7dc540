/**
 * What requests carry, checked against the types of `api/openapi.json`: a body or a query can only be made here, with
 * the id of its operation.
 */

import type { operations } from './openapi.js';

/** The id of an operation of the API. @internal */
export type OperationId = keyof operations;

/** The JSON that an operation takes. @internal */
export type BodyOf<K extends OperationId> = operations[K] extends {
  requestBody?: { content: { 'application/json': infer Body } };
}
  ? Body
  : never;

/** The query that an operation takes. @internal */
export type QueryOf<K extends OperationId> = operations[K] extends { parameters: { query?: infer Query } }
  ? Query
  : never;

declare const checked: unique symbol;

/** The JSON of some operation. @internal */
export interface Body {
  readonly [checked]: 'body';
}

/** The query of some operation. @internal */
export interface Query {
  readonly [checked]: 'query';
}

/** Makes the JSON of an operation. @internal */
export function body<K extends OperationId>(value: BodyOf<K>): Body {
  return value as unknown as Body;
}

/** Makes the query of an operation. @internal */
export function query<K extends OperationId>(value: NonNullable<QueryOf<K>>): Query {
  return value as unknown as Query;
}
