-- +goose Up

-- ready: the disk was made, so one that is not there is a loss.
CREATE TABLE tenants (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    disk_uid TEXT COLLATE "C" NOT NULL UNIQUE,
    ready      BIGINT  NOT NULL,
    created_at BIGINT  NOT NULL
);
