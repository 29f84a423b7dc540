/** What git operations give. Commits are full hashes, and empty where there is none. */

/** A clone. */
export interface GitCloned {
  path: string;
  /** Empty when a tag was asked for. */
  branch: string;
  /** Empty in an empty repository. */
  commit: string;
}

/** How a path differs from what it is compared with; absent where it does not. */
export type GitChange =
  | 'modified'
  | 'added'
  | 'deleted'
  | 'renamed'
  | 'copied'
  | 'type_changed'
  | 'unmerged'
  | 'untracked';

/** A path that differs. */
export interface GitFileStatus {
  path: string;
  /** What a renamed or copied one was. */
  from?: string;
  index?: GitChange;
  worktree?: GitChange;
  conflict?: boolean;
}

/** What differs between the last commit, the index and the files. */
export interface GitStatus {
  branch: string;
  commit: string;
  upstream?: string;
  ahead: number;
  behind: number;
  clean: boolean;
  files: GitFileStatus[];
  /** How many files are not listed. */
  omitted?: number;
}

/** How much a file changed, in lines. */
export interface GitFileDiff {
  path: string;
  /** What a renamed one was. */
  from?: string;
  additions: number;
  deletions: number;
  binary?: boolean;
}

/** Changes. */
export interface GitDiff {
  files: GitFileDiff[];
  additions: number;
  deletions: number;
  /** How many files are not listed. */
  omitted?: number;
}

/** Who made a commit, and when. */
export interface GitPerson {
  name: string;
  email: string;
  time: Date;
}

/** A commit. */
export interface GitRevision {
  commit: string;
  parents: string[];
  author: GitPerson;
  committer: GitPerson;
  subject: string;
  /** What follows the first line of its message, up to 4 KiB. */
  body?: string;
}

/** A commit that was just made, with its branch and what changed. */
export interface GitCommitted extends GitRevision {
  branch: string;
  changes: GitDiff;
}

/** A branch: `main`, or `origin/main` of a remote. */
export interface GitBranch {
  name: string;
  commit: string;
  remote?: boolean;
  upstream?: string;
  ahead?: number;
  behind?: number;
}

/** Branches, and which one is checked out; empty when none is. */
export interface GitBranches {
  current: string;
  branches: GitBranch[];
}

/** What is checked out. */
export interface GitHead {
  branch: string;
  commit: string;
}

/** What a pull did: from the commit `before` to `commit`. */
export interface GitPulled {
  branch: string;
  before: string;
  commit: string;
  updated: boolean;
}

/** What became of a branch that was pushed. */
export interface GitPushedRef {
  from: string;
  to: string;
  status: 'new' | 'updated' | 'forced' | 'deleted' | 'up_to_date' | 'rejected';
  summary: string;
}

/** What a push did. */
export interface GitPushed {
  remote: string;
  refs: GitPushedRef[];
}
