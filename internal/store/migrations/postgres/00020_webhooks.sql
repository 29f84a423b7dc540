-- +goose Up

-- Messages to webhooks: those that are to be sent, and for a while those that were or
-- were given up, which have no body any more. state is pending, delivered or failed.
-- status is that of the last answer, 0 for none, and failure why the last attempt failed.
CREATE TABLE webhook_messages (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    status BIGINT NOT NULL,
    failure TEXT NOT NULL,
    next_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX webhook_messages_due ON webhook_messages (tenant, next_at, id, bytes) WHERE state = 'pending';
CREATE INDEX webhook_messages_of_tenant ON webhook_messages (tenant, created_at DESC, id DESC);
CREATE INDEX webhook_messages_ended ON webhook_messages (updated_at, id) WHERE state <> 'pending';

-- What the messages of a tenant are signed with, sealed.
CREATE TABLE webhook_secrets (
    tenant TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
