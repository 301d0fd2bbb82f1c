//! Tables of the registry. Times are seconds since 1970, serial numbers lower-case hexadecimal.

use store::Migration;

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        sql: V1,
    },
    Migration {
        version: 2,
        sql: V2,
    },
    Migration {
        version: 3,
        sql: V3,
    },
    Migration {
        version: 4,
        sql: V4,
    },
    Migration {
        version: 5,
        sql: V5,
    },
    Migration {
        version: 6,
        sql: V6,
    },
    Migration {
        version: 7,
        sql: V7,
    },
    Migration {
        version: 8,
        sql: V8,
    },
    Migration {
        version: 9,
        sql: V9,
    },
    Migration {
        version: 10,
        sql: V10,
    },
    Migration {
        version: 11,
        sql: V11,
    },
    Migration {
        version: 12,
        sql: V12,
    },
    Migration {
        version: 13,
        sql: V13,
    },
    Migration {
        version: 14,
        sql: V14,
    },
    Migration {
        version: 15,
        sql: V15,
    },
];

const V1: &str = "
CREATE TABLE issued (
    authority    TEXT NOT NULL,
    serial       TEXT NOT NULL,
    profile      TEXT NOT NULL,
    holder       TEXT NOT NULL,
    uid          TEXT,
    clearance    INTEGER,
    spki_sha256  TEXT NOT NULL,
    issued_at    INTEGER NOT NULL,
    not_after    INTEGER NOT NULL,
    certificate  BLOB NOT NULL,
    PRIMARY KEY (authority, serial)
) STRICT;
CREATE INDEX issued_by_holder ON issued (authority, holder, issued_at);

CREATE TABLE revoked (
    authority    TEXT NOT NULL,
    serial       TEXT NOT NULL,
    at           INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    PRIMARY KEY (authority, serial),
    FOREIGN KEY (authority, serial) REFERENCES issued (authority, serial)
) STRICT;

CREATE TABLE crl_numbers (
    authority    TEXT PRIMARY KEY,
    number       INTEGER NOT NULL
) STRICT;

-- One code per device. A used code keeps the key it was used for, so that a device which did not
-- get the answer can ask again and no other key is ever certified with it.
CREATE TABLE one_time_codes (
    device       TEXT PRIMARY KEY,
    verifier     BLOB NOT NULL,
    clearance    INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    used_spki    TEXT,
    used_serial  TEXT
) STRICT;
";

/// Holders get a state, certificates a holder, a lineage and a first use.
///
/// Certificates of before count as used and as a lineage of their own, so that nothing that works
/// is superseded by the upgrade. A holder whose newest certificate was revoked is revoked: revoking
/// "all" of its certificates used to stop at the newest thousand.
const V2: &str = "
CREATE TABLE holders (
    authority    TEXT NOT NULL,
    holder_id    TEXT NOT NULL,        -- device name, or user id
    state        TEXT NOT NULL CHECK (state IN ('enrolled', 'suspended', 'revoked', 'retired')),
    changed_at   INTEGER NOT NULL,
    -- Grows with every change and every revocation of a certificate.
    epoch        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (authority, holder_id)
) STRICT;

ALTER TABLE issued ADD COLUMN holder_id TEXT NOT NULL DEFAULT '';
-- A certificate and its renewals; only the newest that was used is accepted.
ALTER TABLE issued ADD COLUMN lineage TEXT NOT NULL DEFAULT '';
ALTER TABLE issued ADD COLUMN renewal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE issued ADD COLUMN first_used_at INTEGER;
ALTER TABLE issued ADD COLUMN superseded_at INTEGER;
-- Superseded, and not on a revocation list yet.
ALTER TABLE issued ADD COLUMN unlisted INTEGER NOT NULL DEFAULT 0;
UPDATE issued SET
    holder_id = CASE authority WHEN 'users' THEN COALESCE(uid, holder) ELSE holder END,
    lineage = serial,
    first_used_at = issued_at;
CREATE INDEX issued_by_holder_id ON issued (authority, holder_id, issued_at);
CREATE INDEX issued_unlisted ON issued (superseded_at) WHERE unlisted = 1;

INSERT INTO holders (authority, holder_id, state, changed_at)
SELECT n.authority, n.holder_id, CASE WHEN r.serial IS NULL THEN 'enrolled' ELSE 'revoked' END,
       COALESCE(r.at, n.issued_at)
FROM issued n LEFT JOIN revoked r ON r.authority = n.authority AND r.serial = n.serial
WHERE n.authority IN ('users', 'devices') AND n.rowid = (
    SELECT max(o.rowid) FROM issued o WHERE o.authority = n.authority AND o.holder_id = n.holder_id);
";

/// Requests for acts that need approval.
const V3: &str = "
CREATE TABLE requests (
    id           TEXT PRIMARY KEY,
    version      INTEGER NOT NULL,
    requester    TEXT NOT NULL,
    act          TEXT NOT NULL,
    subject      TEXT NOT NULL,
    state        TEXT NOT NULL,
    -- Whether it waits for somebody.
    open         INTEGER NOT NULL,
    -- End of the time for the second approval of an emergency.
    confirm_by   INTEGER,
    alerted      INTEGER NOT NULL DEFAULT 0,
    begun_at     INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    content      BLOB NOT NULL,        -- JSON, with the signed approvals as they came
    csr          BLOB
) STRICT;
CREATE INDEX requests_open ON requests (changed_at) WHERE open = 1;
CREATE INDEX requests_by_requester ON requests (requester, begun_at);
CREATE INDEX requests_unconfirmed ON requests (confirm_by) WHERE confirm_by IS NOT NULL;

CREATE TABLE request_history (
    request      TEXT NOT NULL REFERENCES requests,
    version      INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    author       TEXT NOT NULL,
    step         TEXT NOT NULL,
    state        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    PRIMARY KEY (request, version)
) STRICT;

CREATE TABLE request_certificates (
    request      TEXT NOT NULL REFERENCES requests,
    certificate  BLOB NOT NULL,
    PRIMARY KEY (request, certificate)
) STRICT;

-- Steps under way: a row that is left names events without effect.
CREATE TABLE request_steps (
    request      TEXT PRIMARY KEY,
    version      INTEGER NOT NULL,
    step         TEXT NOT NULL
) STRICT;

-- A key is certified once.
CREATE INDEX issued_by_key ON issued (spki_sha256);
";

/// Requests are listed a page at a time, and what each version of one said is kept.
const V4: &str = "
DROP INDEX requests_open;
CREATE INDEX requests_open ON requests (changed_at, id) WHERE open = 1;
CREATE INDEX requests_by_change ON requests (changed_at, id);
CREATE INDEX requests_by_state ON requests (state, changed_at, id);
CREATE INDEX requests_by_subject ON requests (subject, changed_at, id);

-- JSON of act and reason, where the step wrote them.
ALTER TABLE request_history ADD COLUMN content BLOB;
";

/// Invitations of people, and of devices that only open tunnels.
const V5: &str = "
-- A used one stays: its certificates have its identifier as lineage, and it says how often they are renewed.
CREATE TABLE invitations (
    id           TEXT PRIMARY KEY,
    authority    TEXT NOT NULL,
    holder_id    TEXT NOT NULL,
    verifier     BLOB NOT NULL,        -- SHA-256 of name and code
    profile      TEXT NOT NULL,
    subject      BLOB NOT NULL,        -- name in DER
    clearance    INTEGER NOT NULL,
    renewals     INTEGER NOT NULL,
    request      TEXT,                 -- that approved it; NULL for an order
    expires_at   INTEGER NOT NULL,
    used_spki    TEXT,
    used_serial  TEXT
) STRICT;
CREATE UNIQUE INDEX invitations_by_code ON invitations (holder_id, verifier);
CREATE UNIQUE INDEX invitations_unused ON invitations (authority, holder_id) WHERE used_serial IS NULL;
";

/// Revocation lists for parts of an authority's certificates, and what changed since a list.
const V6: &str = "
-- The part (shard) of its authority's certificates that it names in its distribution point; NULL: it names the list of all,
-- or none. For ever, whatever the configuration says by now.
ALTER TABLE issued ADD COLUMN shard INTEGER;
-- The same, from the first list on.
ALTER TABLE revoked ADD COLUMN shard INTEGER;
-- Number of the first list that names it; NULL: it is on none yet.
ALTER TABLE revoked ADD COLUMN listed INTEGER;
CREATE INDEX revoked_by_listing ON revoked (authority, listed);
CREATE INDEX revoked_by_shard ON revoked (authority, shard, listed);

-- Addresses that certificates of a shard name: its list names them too.
CREATE TABLE crl_shards (
    authority    TEXT NOT NULL,
    shard        INTEGER NOT NULL,
    url          TEXT NOT NULL,
    PRIMARY KEY (authority, shard, url)
) STRICT;

-- Complete lists that may still be in use, to which delta lists say what changed.
CREATE TABLE crl_bases (
    authority    TEXT NOT NULL,
    shard        INTEGER NOT NULL,     -- -1: all certificates
    number       INTEGER NOT NULL,
    issued_at    INTEGER NOT NULL,
    PRIMARY KEY (authority, shard, number)
) STRICT;
";

/// Enrolment over CMP.
const V7: &str = "
-- The code of an invitation for CMP, encrypted; NULL for others, and once it was used or is over.
ALTER TABLE invitations ADD COLUMN sealed BLOB;
CREATE INDEX invitations_sealed ON invitations (holder_id) WHERE sealed IS NOT NULL;

-- Messages that were taken, until their time is over: none is taken twice, also not after a restart.
CREATE TABLE cmp_transactions (
    sender       TEXT NOT NULL,        -- invitation or certificate
    transaction_id BLOB NOT NULL,
    nonce        BLOB NOT NULL,
    seen_at      INTEGER NOT NULL,
    PRIMARY KEY (sender, transaction_id)
) STRICT;
CREATE UNIQUE INDEX cmp_transactions_nonce ON cmp_transactions (sender, nonce);
CREATE INDEX cmp_transactions_seen ON cmp_transactions (seen_at);
";

/// Servers of the network, and enrolment over ACME.
const V8: &str = "
-- Names of a server, with spaces between; NULL for anybody else.
ALTER TABLE invitations ADD COLUMN names TEXT;
CREATE INDEX invitations_named ON invitations (holder_id) WHERE names IS NOT NULL;

-- Accounts, each bound to the invitation of a server. One that has ended stays, so that its key gets no other.
CREATE TABLE acme_accounts (
    id           TEXT PRIMARY KEY,
    invitation   TEXT NOT NULL UNIQUE,
    holder       TEXT NOT NULL,
    jwk          TEXT NOT NULL,        -- as RFC 7638 writes it
    thumbprint   TEXT NOT NULL UNIQUE,
    spki_sha256  TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL CHECK (state IN ('valid', 'deactivated', 'revoked')),
    created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX acme_accounts_by_holder ON acme_accounts (holder);

CREATE TABLE acme_orders (
    id           TEXT PRIMARY KEY,
    account      TEXT NOT NULL,
    names        TEXT NOT NULL,        -- sorted, with spaces between
    serial       TEXT,                 -- of the certificate; NULL: not asked for yet
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX acme_orders_by_account ON acme_orders (account, created_at);
";

/// Recorded transactions that took effect.
const V9: &str = "
-- One row: the number of the last transaction with events that was committed; and whether some process has begun any since the
-- last orderly end.
CREATE TABLE writing (
    committed    INTEGER NOT NULL,
    open         INTEGER NOT NULL
) STRICT;
INSERT INTO writing VALUES (0, 0);
";

/// Generations of the issuing authorities: those of before are the first.
const V10: &str = "
CREATE TABLE authorities (
    kind         TEXT NOT NULL,
    generation   INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('ready', 'issuing', 'retired')),
    changed_at   INTEGER NOT NULL,
    -- End of the last certificate of a retired one; NULL: it issues, or never did.
    needed_until INTEGER,
    PRIMARY KEY (kind, generation)
) STRICT;
CREATE UNIQUE INDEX authorities_issuing ON authorities (kind) WHERE state = 'issuing';
INSERT INTO authorities (kind, generation, state, changed_at)
VALUES ('users', 1, 'issuing', 0), ('devices', 1, 'issuing', 0), ('services', 1, 'issuing', 0);

-- Column authority is the kind: holders, and what they have, belong to all generations of it. No serial number is used by two
-- generations of a kind. In crl_numbers, crl_shards and crl_bases, which are about lists, it names the generation.
ALTER TABLE issued ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
CREATE INDEX issued_by_end ON issued (authority, generation, not_after);
ALTER TABLE revoked ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
DROP INDEX revoked_by_listing;
DROP INDEX revoked_by_shard;
CREATE INDEX revoked_by_listing ON revoked (authority, generation, listed);
CREATE INDEX revoked_by_shard ON revoked (authority, generation, shard, listed);
";

/// Profiles as files, and accounts of Windows.
const V11: &str = "
-- What acts put in force; the others are built in.
CREATE TABLE profiles (
    name         TEXT PRIMARY KEY,
    definition   TEXT NOT NULL,        -- TOML
    request      TEXT,                 -- that put it in force; NULL for an order
    changed_at   INTEGER NOT NULL
) STRICT;

-- The account that a certificate logs on to, where its profile names one.
ALTER TABLE invitations ADD COLUMN principal TEXT;
ALTER TABLE invitations ADD COLUMN sid TEXT;
";

/// The archive of keys, and lists of what somebody asked for.
const V12: &str = "
-- Keys for decryption that the centre made, encrypted to the recovery certificates (CMS); no key of the site opens them.
CREATE TABLE archived_keys (
    authority    TEXT NOT NULL,
    serial       TEXT NOT NULL,
    envelope     BLOB NOT NULL,
    PRIMARY KEY (authority, serial),
    FOREIGN KEY (authority, serial) REFERENCES issued (authority, serial)
) STRICT;
CREATE INDEX requests_by_own ON requests (requester, changed_at, id);
";

/// Where the log has what put a profile in force, and when that was to the nanosecond: approvals are before it or after.
const V13: &str = "
ALTER TABLE profiles ADD COLUMN entry INTEGER; -- index of the event in the log; NULL: of before this version
ALTER TABLE profiles ADD COLUMN changed_nanos INTEGER NOT NULL DEFAULT 0;
CREATE INDEX requests_of_profiles ON requests (state) WHERE act = 'change-profile';
";

/// The number of the newest transaction stands in one row by its key.
const V14: &str = "
CREATE TABLE writing_by_key (
    one          INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    committed    INTEGER NOT NULL
) STRICT;
INSERT INTO writing_by_key (committed) SELECT committed FROM writing;
DROP TABLE writing;
ALTER TABLE writing_by_key RENAME TO writing;
";

/// Holds follow from the state of a holder; what lists have said of them is kept.
const V15: &str = "
-- Since when the directory has the person disabled; NULL: it does not.
ALTER TABLE holders ADD COLUMN disabled_at INTEGER;
-- The state that counts: the certificates of a disabled person are on hold, as those of a suspended one.
ALTER TABLE holders ADD COLUMN effective TEXT AS (
    CASE WHEN state = 'enrolled' AND disabled_at IS NOT NULL THEN 'suspended' ELSE state END);
-- Since when all certificates are on hold; NULL: they are not.
ALTER TABLE holders ADD COLUMN held_at INTEGER AS (
    CASE state WHEN 'suspended' THEN min(changed_at, coalesce(disabled_at, changed_at))
               WHEN 'enrolled' THEN disabled_at END);
CREATE INDEX holders_held ON holders (authority, holder_id) WHERE held_at IS NOT NULL;
CREATE INDEX holders_disabled ON holders (authority, holder_id) WHERE disabled_at IS NOT NULL;

-- Holds on revocation lists. A delta list takes certificates back whose hold has ended.
CREATE TABLE listed_holds (
    authority    TEXT NOT NULL,
    serial       TEXT NOT NULL,
    generation   INTEGER NOT NULL,
    shard        INTEGER,
    at           INTEGER NOT NULL,     -- since when it is on hold
    listed       INTEGER NOT NULL,     -- number of the first list with it
    released     INTEGER,              -- number of the first list without it; NULL: there is none yet
    PRIMARY KEY (authority, serial, listed),
    FOREIGN KEY (authority, serial) REFERENCES issued (authority, serial)
) STRICT;
CREATE INDEX listed_holds_by_listing ON listed_holds (authority, generation, listed);
CREATE INDEX listed_holds_by_release ON listed_holds (authority, generation, released);
CREATE UNIQUE INDEX listed_holds_open ON listed_holds (authority, serial) WHERE released IS NULL;
";
