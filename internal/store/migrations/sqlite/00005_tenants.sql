-- +goose Up

-- ready: the disk was made, so one that is not there is a loss.
CREATE TABLE tenants (
    name       TEXT    NOT NULL PRIMARY KEY,
    disk_uid   TEXT    NOT NULL UNIQUE,
    ready      INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
