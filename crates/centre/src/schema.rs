//! The tables of the centre's index.
//!
//! Times are milliseconds since the Unix epoch (UTC), hashes are lower-case hexadecimal.

use store::Migration;

/// All versions of the schema, oldest first.
pub(crate) const MIGRATIONS: &[Migration] = &[FIRST, CUSTODY_NUMBERS, QUARANTINE];

const FIRST: Migration = Migration {
    version: 1,
    sql: "
-- The intake journal: an upload lives here from its creation until its block is settled.
CREATE TABLE uploads (
    id           TEXT PRIMARY KEY,
    device       TEXT NOT NULL,
    size         INTEGER NOT NULL,
    block_sha256 TEXT,                 -- as announced by the sender; NULL when not announced
    metadata     TEXT NOT NULL,        -- the Upload-Metadata header, returned by HEAD
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX uploads_by_device ON uploads (device);

-- Every block that was ever settled, with the verdict and the receipt given for it.
CREATE TABLE blocks (
    block_sha256    TEXT PRIMARY KEY,
    device          TEXT NOT NULL,     -- who sent it, by certificate
    size            INTEGER NOT NULL,
    received_at     INTEGER NOT NULL,
    verdict         TEXT NOT NULL,     -- accepted | quarantined | rejected
    reason          TEXT NOT NULL,     -- a code, empty when accepted
    sequence        INTEGER,
    manifest_sha256 TEXT,
    log_index       INTEGER,           -- NULL until the audit log has answered
    receipt         BLOB               -- CMS SignedData, NULL until signed
) STRICT;
CREATE INDEX blocks_by_device ON blocks (device, received_at);

-- Which upload became which block, so that a sender can come back for its receipt.
CREATE TABLE settled (
    upload_id    TEXT PRIMARY KEY,
    device       TEXT NOT NULL,
    outcome      TEXT NOT NULL,        -- a block's hash, or '!' and the reason of a discarded upload
    settled_at   INTEGER NOT NULL
) STRICT;

-- The hash chain of each camera's manifests.
CREATE TABLE chain (
    device          TEXT NOT NULL,
    sequence        INTEGER NOT NULL,
    manifest_sha256 TEXT NOT NULL,
    previous        TEXT NOT NULL,
    block_sha256    TEXT NOT NULL REFERENCES blocks,
    PRIMARY KEY (device, sequence)
) STRICT, WITHOUT ROWID;

-- Sequence numbers whose loss the camera has declared, with its reason.
CREATE TABLE dropped (
    device          TEXT NOT NULL,
    sequence        INTEGER NOT NULL,
    manifest_sha256 TEXT NOT NULL,
    reason          TEXT NOT NULL,
    PRIMARY KEY (device, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE violations (
    id             TEXT PRIMARY KEY,   -- 'v-' and the first 16 digits of the block's hash
    block_sha256   TEXT NOT NULL UNIQUE REFERENCES blocks,
    device         TEXT NOT NULL,
    unit           TEXT NOT NULL,
    sequence       INTEGER NOT NULL,
    classification INTEGER NOT NULL,
    captured_at    INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    place          TEXT NOT NULL,
    latitude       INTEGER NOT NULL,   -- microdegrees
    longitude      INTEGER NOT NULL,   -- microdegrees
    speed_kmh      INTEGER,
    limit_kmh      INTEGER,
    plate          TEXT,
    lane           INTEGER,
    manifest       TEXT NOT NULL       -- the signed bytes, canonical JSON
) STRICT;
CREATE INDEX violations_by_time ON violations (captured_at DESC);
CREATE INDEX violations_by_kind ON violations (unit, classification);
CREATE INDEX violations_by_plate ON violations (plate);
CREATE INDEX violations_by_device ON violations (device, captured_at DESC);

-- What reviewers decided; the newest row counts, older ones stay.
CREATE TABLE reviews (
    violation TEXT NOT NULL REFERENCES violations,
    at        INTEGER NOT NULL,
    uid       TEXT NOT NULL,
    name      TEXT NOT NULL,
    decision  TEXT NOT NULL,           -- accepted | rejected
    reason    TEXT NOT NULL
) STRICT;
CREATE INDEX reviews_by_violation ON reviews (violation, at);

-- What happened to each violation, a copy of its audit events for quick reading.
CREATE TABLE custody (
    violation TEXT NOT NULL,
    at        INTEGER NOT NULL,
    actor     TEXT NOT NULL,
    action    TEXT NOT NULL,
    log_index INTEGER NOT NULL,
    PRIMARY KEY (violation, log_index)
) STRICT, WITHOUT ROWID;
",
};

const QUARANTINE: Migration = Migration {
    version: 3,
    sql: "
-- Where the sender announced it from, for the audit event.
ALTER TABLE uploads ADD COLUMN address TEXT;

-- A block leaves quarantine by a person: its verdict becomes accepted, or rejected.
CREATE INDEX blocks_in_quarantine ON blocks (device, size) WHERE verdict = 'quarantined';

-- Blocks that a person let out of quarantine.
CREATE TABLE released (
    block_sha256 TEXT PRIMARY KEY REFERENCES blocks
) STRICT, WITHOUT ROWID;
",
};

const CUSTODY_NUMBERS: Migration = Migration {
    version: 2,
    sql: "
-- Number of the event within the violation's record; NULL for events of earlier versions.
ALTER TABLE custody ADD COLUMN count INTEGER;

-- The event whose number is taken and that may not be in the audit log yet.
CREATE TABLE custody_pending (
    violation TEXT PRIMARY KEY,
    event     TEXT NOT NULL            -- JSON
) STRICT;
",
};
