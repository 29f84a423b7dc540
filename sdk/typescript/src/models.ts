/** What the daemon tells. */

import { isObject, malformed } from './errors.js';
import type { components } from './openapi.js';
import { fromWire, outputBytes, shownShort } from './wire.js';

/** Where a sandbox stands in its life. A stopped one has its files. */
export type Status = Wire['Sandbox']['status'];

type Wire = components['schemas'];

/** What keeps a sandbox apart from its host. */
export type Isolation = Wire['Sandbox']['isolation'];

/** The language that a sandbox is for. */
export type Runtime = NonNullable<Wire['Sandbox']['runtime']>;

/** What happens to a sandbox that nobody uses. */
export type IdlePolicy = Wire['Sandbox']['idle_policy'];

/**
 * When a use runs a sandbox again: `idle` when it sleeps or the daemon stopped it, `always` also when a request stopped
 * it or it died.
 */
export type AutoWake = Wire['Sandbox']['auto_wake'];

/** Who besides its tenant may see a sandbox. */
export type Visibility = Wire['Sandbox']['visibility'];

/** The Host that apps see in requests of previews: `localhost` and the port, or the preview's own. */
export type HostHeader = Wire['Sandbox']['host_header'];

/** Bounds of what a sandbox can use. What is not given is the daemon's default. */
export interface Limits {
  memoryBytes?: number;
  cpus?: number;
  pids?: number;
  diskBytes?: number;
  openFiles?: number;
}

/** How far a sandbox can reach. */
export interface NetworkPolicy {
  /** `open` never includes private addresses. */
  mode: NonNullable<Wire['Network']['mode']>;
  /** Hosts, for `allowlist`: names, `*.names`, addresses and networks, with or without a port. */
  allow?: string[];
  /** Comes before everything that allows, in every mode. */
  deny?: string[];
  /** Whether `HTTP_PROXY` and the other variables that name the proxy are set: default true, fixed at create. */
  proxyEnv?: boolean;
}

/** What a sandbox would get that asks for a host. */
export interface EgressDecision {
  allow: boolean;
  /** In the form that the rules compare. */
  host: string;
  port: number;
  /** What decides. */
  rule: Wire['EgressDecision']['rule'];
  reason: string;
  /** How to allow what is denied. */
  hint?: string;
}

/** A connection of a sandbox to a host outside. Bytes are as the sandbox sees them. */
export interface EgressConnection {
  /** In the form that the rules compare. */
  host: string;
  port: number;
  /** What allowed it. */
  rule: Wire['EgressConnection']['rule'];
  /** How it was asked for: `http` is one request, `transparent` a program that connected without the proxy. */
  protocol: Wire['EgressConnection']['protocol'];
  bytesSent: number;
  bytesReceived: number;
  /** Since it was asked for. */
  ageMs: number;
}

/** One sandbox. Its environment is never told. */
export interface SandboxInfo {
  id: string;
  status: Status;
  /** Why it failed, why it stopped or sleeps when nobody asked, or why it was stopped instead of put to sleep. */
  reason?: string;
  /** Its memory was lost while it slept, and it started again from its files; `reason` says what that means. */
  restoreIncomplete?: boolean;
  image: string;
  runtime?: Runtime;
  dependencies?: Record<string, string>;
  isolation: Isolation;
  limits: Limits;
  user: string;
  labels?: Record<string, string>;
  metadata?: Record<string, string>;
  ports?: number[];
  /** As they were declared, without env. */
  services?: ServiceSpec[];
  network: NetworkPolicy;
  visibility: Visibility;
  hostHeader: HostHeader;
  idlePolicy: IdlePolicy;
  idleTimeoutSeconds: number;
  autoWake: AutoWake;
  /** 0: none. */
  execTimeoutSeconds: number;
  /** 0: none. */
  maxLifetimeSeconds: number;
  /** Where each task that succeeds is pushed to. */
  gitRemoteUrl?: string;
  /** The task that runs, where the daemon was asked for this sandbox alone. */
  activeTaskId?: string;
  /**
   * What it has in common with others of its memory and should not, as the state of a program's random generator, and
   * what it lost over that. Only in the answers of a create from a snapshot with memory, and of a rollback to one.
   */
  warnings?: string[];
  /** What keeps it from working as it should, while it runs. */
  conditions?: Condition[];
  thread?: string;
  tenantId?: string;
  /** /workspace and /mnt/user-data are on its tenant's disk. */
  sharedFiles?: boolean;
  createdAt: Date;
  updatedAt: Date;
  startedAt?: Date;
  stoppedAt?: Date;
  lastActiveAt: Date;
  /** When its idle policy comes into force unless somebody uses it before. */
  idleAt?: Date;
  keptUntil?: Date;
  expiresAt?: Date;
}

/** Something that keeps a running sandbox from working as it should. */
export interface Condition {
  /**
   * "disk_failed": a disk of it is read-only because writing to the host's disk failed, until the sandbox is restarted,
   * which happens by itself once the host has room. "disk_held": what writes to its disks waits, because the host's disk
   * is nearly full.
   */
  type: 'disk_failed' | 'disk_held';
  /** For people. */
  reason: string;
}

/** What a sandbox uses now. */
export interface Stats {
  memoryBytes: number;
  /** What the kept memory of a sleeping one takes of the host's disk. */
  memoryOnDiskBytes: number;
  cpuSeconds: number;
  /** -1 for gVisor, whose processes are not the host's. */
  pids: number;
  /** Its size. */
  diskBytes: number;
  diskUsedBytes: number;
  /** How many commands run. */
  execs: number;
}

/** Where a command stands: `done` when it ended itself, with any exit code, `error` when something else ended it. */
export type ExecStatus = Wire['Exec']['status'];

/** A command with what it has printed so far. */
export interface ExecResult {
  /** 1, 2, 3 … within the sandbox. */
  seq: number;
  status: ExecStatus;
  /** Whether nothing will change any more. */
  readonly finished: boolean;
  /** Whether it ended by itself with exit code 0. */
  readonly ok: boolean;
  /** Names the operation, `packages.install` for example; absent for a plain command. */
  kind?: NonNullable<Wire['Exec']['kind']>;
  detail?: unknown;
  result?: unknown;
  cmd?: string | string[];
  session?: string;
  /** The name of the terminal that it runs in. */
  terminal?: string;
  /** The service whose run this is. */
  service?: string;
  /** Of a cell; {@link Sandbox.cell} has what it showed. */
  code?: string;
  kernel?: string;
  language?: string;
  cwd?: string;
  user?: string;
  /** As text; what is not UTF-8 is replaced. */
  stdout: string;
  stderr: string;
  /** As it came. */
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** 128 + signal when a signal ended it; null while it runs, and when nobody can know. */
  exitCode: number | null;
  signal?: string;
  /** Why it ended. */
  reason?: NonNullable<Wire['Exec']['reason']>;
  /** The same for people. */
  message?: string;
  durationMs?: number;
  /** What is gone and what is not, when the sandbox was woken for the command and its memory was lost; else absent. */
  restoreIncomplete?: string;
  /** Bytes that are not in the answer. */
  truncated?: { stdout?: number; stderr?: number; rich?: number };
  /** The output was removed to make room for later ones. */
  outputPruned?: boolean;
  createdAt: Date;
  startedAt?: Date;
  finishedAt?: Date;
}

/** A piece of what a command printed. */
export interface Output {
  type: 'stdout' | 'stderr';
  data: Uint8Array;
  /** The characters that end in data; a character that came in two pieces is in the text of the second. */
  text: string;
  /** Where data begins in the output, counted over all streams. */
  offset: number;
  /** The offset to go on from. */
  next: number;
}

/** The end of a command, without its output. */
export interface Exit {
  type: 'exit';
  result: ExecResult;
}

/** A package of a runtime. */
export interface Package {
  name: string;
  version: string;
}

/** One entry of a sandbox's history. */
export interface HistoryEvent {
  /** Ascending; where to go on after this one. */
  cursor: number;
  time: Date;
  /** `sandbox.created`, `exec.finished`, `egress.denied` … */
  kind: Wire['Event']['kind'];
  actor?: string;
  /** The operation that it is about. */
  seq?: number;
  status: ExecStatus;
  payload?: unknown;
  result?: unknown;
}

/** A command that runs for as long as its sandbox does, as it is declared. */
export interface ServiceSpec {
  name: string;
  /** For the shell. */
  command: string;
  /** That it listens on. It is a declared port, and in the service's environment as `PORT`. */
  port?: number;
  /** Default `/workspace`. */
  cwd?: string;
  /** On top of the sandbox's. It is never shown again. */
  env?: Record<string, string>;
  /** Whether it starts again when its command has ended; default `always`. */
  restart?: 'always' | 'on_failure' | 'never';
  /** An absolute path that has to exist before the first start. */
  requires?: string;
}

/** A service of a sandbox as it stands. */
export interface Service {
  name: string;
  command: string;
  port?: number;
  cwd?: string;
  requires?: string;
  restart: 'always' | 'on_failure' | 'never';
  /**
   * `waiting` for the path that it requires; `starting` until it runs and listens on its port; `ready` then; `running`
   * without a port; `backoff` between an end and the next start; `failed` when it is given up; `sleeping` with its
   * sandbox.
   */
  state: 'waiting' | 'starting' | 'running' | 'ready' | 'backoff' | 'failed' | 'stopped' | 'sleeping';
  /** Why it failed, or cannot be started now. */
  reason?: string;
  /** Inside the sandbox. */
  pid?: number;
  /** Since the sandbox was started. */
  restarts: number;
  /** The number of the last run, as a command; absent before the first. */
  exec?: number;
  /** Of the last run, when it has ended. */
  exitCode?: number;
  exitReason?: string;
  /** Of the last run. */
  startedAt?: Date;
  /** The preview of its port, for whoever may see it. */
  url?: string;
}

/** A TCP port of a sandbox. */
export interface Port {
  port: number;
  /** Whether something accepts connections now. */
  listening: boolean;
  /** Whether it is among the sandbox's ports. */
  declared: boolean;
  /** The name of a process that listens; empty when that cannot be told. */
  program: string;
  /** Its id inside the sandbox; 0 when that cannot be told. */
  pid: number;
  /** Its preview, for whoever may see it; absent while the daemon serves none. */
  url?: string;
}

/** Shows a port to whoever has it, until it expires. */
export interface Link {
  url: string;
  expiresAt: Date;
}

/** A session shell. */
export interface SessionShell {
  name: string;
  cwd: string;
  status: Wire['Session']['status'];
  runningSeq?: number;
  pending: number;
  lastUsedAt: Date;
}

/** A path that a sandbox gives out, or was to. */
export interface ExportedFile {
  /** The sandbox's id. */
  sessionId: string;
  /** Absolute, inside the sandbox. */
  path: string;
  success: boolean;
  /** Of a directory, all files below it. */
  size: number;
  dir: boolean;
  error: string;
  downloadUrl: string;
  createdAt?: Date;
}

/** What became of a file that was to come in. */
export interface ImportedFile {
  source: string;
  destination: string;
  success: boolean;
  size: number;
  error: string;
}

/** A root filesystem that sandboxes start from. */
export interface Image {
  name: string;
  digest: string;
  size: number;
  createdAt: Date;
  source?: string;
  /** What it was made of, where it was built from another image. */
  definition?: ImageDefinition;
  /** It was built, and its recipe has changed since. */
  outdated?: boolean;
  damaged?: boolean;
  /** What is wrong with a damaged one. */
  problem?: string;
}

/** What an image was made of. */
export interface ImageDefinition {
  /** The built-in recipe that it comes from. */
  recipe?: string;
  /** The digest of the image that it comes from, where that has no recipe. */
  image?: string;
  apt?: string[];
  /** What was done in a sandbox, in this order. */
  steps?: ImageSteps[];
}

/** What a build does in a sandbox: first npm's packages, then pip's, then the commands, as root. */
export interface ImageSteps {
  npm?: string[];
  pip?: string[];
  run?: string[];
  /** Hosts that the commands may reach; none by default. */
  allow?: string[];
}

/** How far an image is that is being made. */
export interface ImageProgress {
  type: 'progress';
  stage: string;
  /** Bytes, unless `items`. */
  done: number;
  /** 0: unknown. */
  total: number;
  items: boolean;
}

/** Something that keeps a daemon from being ready. */
export interface Problem {
  part: string;
  message: string;
  hint?: string;
}

/** Reads a command. @internal */
export function execFromWire(value: unknown): ExecResult {
  if (!isObject(value) || typeof value.seq !== 'number' || typeof value.status !== 'string') {
    throw malformed('it is not a command');
  }
  const { stdout_encoding: outEncoding, stderr_encoding: errEncoding, ...fields } = value;
  const exec = { exitCode: null, ...fromWire<Record<string, unknown>>(fields) } as unknown as ExecResult;
  const bytes = {
    stdout: () => outputBytes(fields.stdout ?? '', outEncoding),
    stderr: () => outputBytes(fields.stderr ?? '', errEncoding),
  };
  exec.stdout = outEncoding === 'base64' ? new TextDecoder().decode(bytes.stdout()) : String(fields.stdout ?? '');
  exec.stderr = errEncoding === 'base64' ? new TextDecoder().decode(bytes.stderr()) : String(fields.stderr ?? '');
  const finished = exec.status === 'done' || exec.status === 'error';
  return Object.defineProperties(exec, {
    stdoutBytes: { get: bytes.stdout },
    stderrBytes: { get: bytes.stderr },
    finished: { value: finished },
    ok: { value: exec.status === 'done' && exec.exitCode === 0 },
    ...shownShort('ExecResult', () => {
      const { seq, status, kind, cmd, exitCode, reason, message, stdout, stderr } = exec;
      return { seq, status, kind, cmd, exitCode, reason, message, stdout, stderr };
    }),
  });
}
