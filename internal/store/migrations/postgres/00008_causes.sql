-- +goose Up

-- Why a sandbox rests or has ended. Before, its reason alone said so, in words.
ALTER TABLE sandboxes ADD COLUMN cause TEXT NOT NULL DEFAULT '';
UPDATE sandboxes SET cause = CASE
    WHEN state = 'failed' THEN 'undone'
    WHEN reason LIKE 'CONTAINER_DIED: OOM-killed: %' THEN 'oom'
    WHEN reason LIKE 'CONTAINER_DIED: %' THEN 'died'
    WHEN reason = 'idle' OR reason LIKE 'idle: %' THEN 'idle'
    WHEN reason = 'its max_lifetime was over' THEN 'lifetime'
    WHEN reason LIKE 'create: %' THEN 'undone'
    WHEN reason LIKE 'its thread was the longest unused of %' THEN 'evicted'
    WHEN reason = 'the daemon was stopped, and on-shutdown is destroy' THEN 'shutdown'
    WHEN reason = '' THEN 'request'
    ELSE 'interrupted' END
    WHERE state NOT IN ('creating', 'running');
