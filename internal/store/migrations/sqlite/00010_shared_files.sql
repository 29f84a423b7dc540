-- +goose Up

-- Whether a sandbox uses its tenant's disk is part of its spec. Before, every
-- sandbox of a tenant did.
UPDATE sandboxes SET spec = '{"shared_files":true,' || substr(spec, 2)
    WHERE tenant <> '' AND state NOT IN ('failed', 'destroyed');
