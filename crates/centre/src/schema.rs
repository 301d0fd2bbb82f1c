//! The tables of the centre's index.
//!
//! Times are milliseconds since the Unix epoch (UTC), hashes are lower-case hexadecimal.

use store::Migration;

/// All versions of the schema, oldest first.
pub(crate) const MIGRATIONS: &[Migration] = &[
    FIRST,
    CUSTODY_NUMBERS,
    QUARANTINE,
    COUNTERS,
    CAMERA_JOURNALS,
    JOURNALS,
    CAMERA_SET_ASIDE,
    DERIVED,
    NOTICES,
    EPOCHS,
];

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

const CAMERA_JOURNALS: Migration = Migration {
    version: 5,
    sql: "
-- Where the block was announced from, for an event that is repeated after a crash.
ALTER TABLE blocks ADD COLUMN address TEXT;

-- What cameras wrote of themselves: the hash of each record, and where it is in the audit log.
CREATE TABLE camera_journal (
    device      TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    leaf_sha256 TEXT NOT NULL,
    log_index   INTEGER,               -- NULL until the audit log has answered
    PRIMARY KEY (device, seq)
) STRICT, WITHOUT ROWID;
",
};

const JOURNALS: Migration = Migration {
    version: 6,
    sql: "
-- Journals that have ever brought a record: camera/NAME, or tunnel/journal for the gateway.
CREATE TABLE journals (
    source    TEXT PRIMARY KEY,
    moved_at  INTEGER NOT NULL,        -- when the newest record came
    silent_at INTEGER                  -- when its silence was recorded; NULL while it moves
) STRICT, WITHOUT ROWID;
-- When their last record came is not known: their time begins now.
INSERT INTO journals
    SELECT 'camera/' || device, unixepoch() * 1000, NULL FROM camera_journal GROUP BY device;
",
};

const CAMERA_SET_ASIDE: Migration = Migration {
    version: 7,
    sql: "
-- Sources that a camera could not seal, as it last reported them.
CREATE TABLE camera_set_aside (
    device      TEXT PRIMARY KEY,
    count       INTEGER NOT NULL,
    since       INTEGER,               -- by the camera's clock
    reason      TEXT NOT NULL,
    reported_at INTEGER NOT NULL       -- by the site's clock
) STRICT, WITHOUT ROWID;
",
};

const DERIVED: Migration = Migration {
    version: 8,
    sql: "
-- Numbers of custody events come from the log.
DROP TABLE custody_pending;
",
};

const NOTICES: Migration = Migration {
    version: 9,
    sql: "
-- The notice that declared the number lost; a start finds it for rows of earlier versions.
ALTER TABLE dropped ADD COLUMN notice TEXT;
-- The log has these.
DROP TABLE forks;
DROP TABLE released;
",
};

/// `device` of `chain`, `dropped` and `gaps` is the name of a chain: the camera, with the epoch after the first one. `cameras` has a
/// row for each chain, and counts blocks in that of the camera.
const EPOCHS: Migration = Migration {
    version: 10,
    // No change of tables: earlier versions would take rows of later epochs for rows without a camera.
    sql: "",
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

/// Counters beside the rows that they count, and rows in the order in which people read them: what
/// a page costs does not grow with what is stored. Triggers keep the counters, in the transaction of
/// the row: no statement can forget them. [`crate::check`] compares them with the rows.
const COUNTERS: Migration = Migration {
    version: 4,
    sql: "
-- What the access rules look at beside the person; entries stay for ever.
CREATE TABLE audiences (
    id             INTEGER PRIMARY KEY,
    unit           TEXT NOT NULL,
    classification INTEGER NOT NULL,
    UNIQUE (unit, classification)
) STRICT;
INSERT INTO audiences (unit, classification) SELECT DISTINCT unit, classification FROM violations;

-- Violations of one audience in one state, and how many they are.
CREATE TABLE violation_groups (
    id       INTEGER PRIMARY KEY,
    audience INTEGER NOT NULL REFERENCES audiences,
    state    TEXT NOT NULL,            -- open | accepted | rejected
    count    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (audience, state)
) STRICT;
INSERT INTO violation_groups (audience, state)
    SELECT id, state FROM audiences, (SELECT 'open' AS state UNION SELECT decision FROM reviews);

-- Violations by when they were received, in steps of ten minutes since the Unix epoch.
CREATE TABLE arrivals (
    step     INTEGER NOT NULL,
    audience INTEGER NOT NULL REFERENCES audiences,
    count    INTEGER NOT NULL,
    PRIMARY KEY (step, audience)
) STRICT, WITHOUT ROWID;

CREATE TABLE sorted_violations (
    -- The order by time of capture: milliseconds times 2^15, or the next number that is free.
    position        INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE, -- 'v-' and the first 16 digits of the block's hash
    block_sha256    TEXT NOT NULL UNIQUE REFERENCES blocks,
    device          TEXT NOT NULL,
    violation_group INTEGER NOT NULL REFERENCES violation_groups,
    sequence        INTEGER NOT NULL,
    captured_at     INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    place           TEXT NOT NULL,
    latitude        INTEGER NOT NULL,  -- microdegrees
    longitude       INTEGER NOT NULL,  -- microdegrees
    speed_kmh       INTEGER,
    limit_kmh       INTEGER,
    plate           TEXT,
    lane            INTEGER,
    manifest        TEXT NOT NULL      -- the signed bytes, canonical JSON
) STRICT;
INSERT INTO sorted_violations
    SELECT rank + max(captured_at * 32768 - rank) OVER (ORDER BY rank), v.id, block_sha256, device,
        g.id, sequence, captured_at, kind, place, latitude, longitude, speed_kmh, limit_kmh, plate,
        lane, manifest
    FROM (SELECT *, row_number() OVER (ORDER BY captured_at, id) AS rank FROM violations) v
        JOIN audiences a USING (unit, classification)
        JOIN violation_groups g ON g.audience = a.id AND g.state = coalesce(
            (SELECT decision FROM reviews r WHERE r.violation = v.id
             ORDER BY r.at DESC, r.rowid DESC LIMIT 1), 'open');

-- The table of reviews names the one of violations, and is made anew with it.
CREATE TABLE reviews_of_sorted (
    violation TEXT NOT NULL REFERENCES sorted_violations (id),
    at        INTEGER NOT NULL,
    uid       TEXT NOT NULL,
    name      TEXT NOT NULL,
    decision  TEXT NOT NULL,           -- accepted | rejected
    reason    TEXT NOT NULL
) STRICT;
INSERT INTO reviews_of_sorted SELECT * FROM reviews ORDER BY rowid;
DROP TABLE reviews;
DROP TABLE violations;
ALTER TABLE sorted_violations RENAME TO violations;
ALTER TABLE reviews_of_sorted RENAME TO reviews;
CREATE INDEX reviews_by_violation ON reviews (violation, at);
-- Each ends with the position: within a group, violations are in the order of the list.
CREATE INDEX violations_by_group ON violations (violation_group);
CREATE INDEX violations_by_device ON violations (device, violation_group);

UPDATE violation_groups AS g
    SET count = (SELECT count(*) FROM violations WHERE violation_group = g.id);
INSERT INTO arrivals
    SELECT b.received_at / 600000, g.audience, count(*)
    FROM violations v JOIN blocks b USING (block_sha256)
        JOIN violation_groups g ON g.id = v.violation_group
    GROUP BY 1, 2;

CREATE TRIGGER violation_added AFTER INSERT ON violations BEGIN
    UPDATE violation_groups SET count = count + 1 WHERE id = NEW.violation_group;
    INSERT INTO arrivals
        SELECT b.received_at / 600000, g.audience, 1 FROM blocks b, violation_groups g
        WHERE b.block_sha256 = NEW.block_sha256 AND g.id = NEW.violation_group
        ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER violation_moved AFTER UPDATE OF violation_group ON violations BEGIN
    UPDATE violation_groups SET count = count - 1 WHERE id = OLD.violation_group;
    UPDATE violation_groups SET count = count + 1 WHERE id = NEW.violation_group;
END;
-- A violation is in the state of its newest decision.
CREATE TRIGGER review_added AFTER INSERT ON reviews BEGIN
    INSERT INTO violation_groups (audience, state)
        SELECT g.audience, NEW.decision FROM violations v
            JOIN violation_groups g ON g.id = v.violation_group
        WHERE v.id = NEW.violation
        ON CONFLICT DO NOTHING;
    UPDATE violations SET violation_group = (
        SELECT next.id FROM violation_groups now JOIN violation_groups next USING (audience)
        WHERE now.id = violations.violation_group AND next.state = (
            SELECT decision FROM reviews WHERE violation = NEW.violation
            ORDER BY at DESC, rowid DESC LIMIT 1))
        WHERE id = NEW.violation;
END;

-- Cameras that have sent something.
CREATE TABLE cameras (
    device      TEXT PRIMARY KEY,
    last_seen   INTEGER NOT NULL DEFAULT 0,
    accepted    INTEGER NOT NULL DEFAULT 0,
    quarantined INTEGER NOT NULL DEFAULT 0,
    quarantined_bytes INTEGER NOT NULL DEFAULT 0,
    head        INTEGER NOT NULL DEFAULT 0, -- highest number that arrived
    highest     INTEGER NOT NULL DEFAULT 0, -- highest number that arrived or was declared lost
    known       INTEGER NOT NULL DEFAULT 0, -- how many numbers arrived or were declared lost
    dropped     INTEGER NOT NULL DEFAULT 0  -- how many were declared lost
) STRICT, WITHOUT ROWID;
CREATE INDEX cameras_with_gaps ON cameras (device) WHERE known < highest;

-- Ranges of numbers below the highest that neither arrived nor were declared lost.
CREATE TABLE gaps (
    device TEXT NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    PRIMARY KEY (device, first)
) STRICT, WITHOUT ROWID;

INSERT INTO cameras (device, last_seen, accepted, quarantined, quarantined_bytes)
    SELECT device, max(received_at), sum(verdict = 'accepted'), sum(verdict = 'quarantined'),
        sum(size * (verdict = 'quarantined'))
    FROM blocks GROUP BY device;
INSERT INTO cameras (device, head) SELECT device, max(sequence) FROM chain GROUP BY device
    ON CONFLICT DO UPDATE SET head = excluded.head;
INSERT INTO cameras (device, dropped) SELECT device, count(*) FROM dropped GROUP BY device
    ON CONFLICT DO UPDATE SET dropped = excluded.dropped;
CREATE TEMP TABLE known_numbers AS
    SELECT device, sequence FROM chain WHERE sequence > 0
    UNION SELECT device, sequence FROM dropped WHERE sequence > 0;
UPDATE cameras AS c SET (known, highest) =
    (SELECT count(*), coalesce(max(sequence), 0) FROM known_numbers n WHERE n.device = c.device);
INSERT INTO gaps
    SELECT device, before + 1, sequence - 1 FROM (
        SELECT device, sequence,
            lag(sequence, 1, 0) OVER (PARTITION BY device ORDER BY sequence) AS before
        FROM known_numbers)
    WHERE sequence > before + 1;
DROP TABLE known_numbers;

CREATE TRIGGER block_added AFTER INSERT ON blocks BEGIN
    INSERT INTO cameras (device, last_seen, accepted, quarantined, quarantined_bytes)
        VALUES (NEW.device, NEW.received_at, NEW.verdict = 'accepted', NEW.verdict = 'quarantined',
            NEW.size * (NEW.verdict = 'quarantined'))
        ON CONFLICT DO UPDATE SET last_seen = max(last_seen, excluded.last_seen),
            accepted = accepted + excluded.accepted,
            quarantined = quarantined + excluded.quarantined,
            quarantined_bytes = quarantined_bytes + excluded.quarantined_bytes;
END;
CREATE TRIGGER block_removed AFTER DELETE ON blocks BEGIN
    UPDATE cameras SET accepted = accepted - (OLD.verdict = 'accepted'),
        quarantined = quarantined - (OLD.verdict = 'quarantined'),
        quarantined_bytes = quarantined_bytes - OLD.size * (OLD.verdict = 'quarantined')
        WHERE device = OLD.device;
END;
CREATE TRIGGER block_verified_again AFTER UPDATE OF verdict ON blocks BEGIN
    UPDATE cameras SET
        accepted = accepted + (NEW.verdict = 'accepted') - (OLD.verdict = 'accepted'),
        quarantined = quarantined + (NEW.verdict = 'quarantined') - (OLD.verdict = 'quarantined'),
        quarantined_bytes = quarantined_bytes
            + NEW.size * ((NEW.verdict = 'quarantined') - (OLD.verdict = 'quarantined'))
        WHERE device = NEW.device;
END;

-- What a camera announced, by hours since the Unix epoch.
CREATE TABLE intake_use (
    device  TEXT NOT NULL,
    hour    INTEGER NOT NULL,
    bytes   INTEGER NOT NULL,
    uploads INTEGER NOT NULL,
    PRIMARY KEY (device, hour)
) STRICT, WITHOUT ROWID;

-- Numbers that two blocks of a camera claim. Both are kept, one in the archive and one in quarantine;
-- which one is the camera's, a person finds out.
CREATE TABLE forks (
    device         TEXT NOT NULL,
    sequence       INTEGER NOT NULL,
    accepted_block TEXT NOT NULL,
    other_block    TEXT NOT NULL,
    found_at       INTEGER NOT NULL,
    PRIMARY KEY (device, accepted_block, other_block)
) STRICT, WITHOUT ROWID;
CREATE INDEX forks_by_block ON forks (accepted_block);

-- A number becomes known once: it arrives, or is declared lost, or first one and then the other.
CREATE VIEW known_numbers AS SELECT device, highest AS sequence FROM cameras;
CREATE TRIGGER number_known INSTEAD OF INSERT ON known_numbers BEGIN
    INSERT INTO gaps
        SELECT device, highest + 1, NEW.sequence - 1 FROM cameras
        WHERE device = NEW.device AND NEW.sequence > highest + 1;
    -- The range around the number becomes what is above of it and what is below.
    INSERT INTO gaps
        SELECT device, NEW.sequence + 1, last FROM gaps
        WHERE device = NEW.device AND last > NEW.sequence AND first = (
            SELECT max(first) FROM gaps WHERE device = NEW.device AND first <= NEW.sequence);
    UPDATE gaps SET last = NEW.sequence - 1
        WHERE device = NEW.device AND last >= NEW.sequence AND first = (
            SELECT max(first) FROM gaps WHERE device = NEW.device AND first <= NEW.sequence);
    DELETE FROM gaps
        WHERE device = NEW.device AND first = NEW.sequence AND last < NEW.sequence;
    UPDATE cameras SET known = known + 1, highest = max(highest, NEW.sequence)
        WHERE device = NEW.device;
END;
CREATE TRIGGER link_added AFTER INSERT ON chain BEGIN
    INSERT INTO cameras (device, head) VALUES (NEW.device, NEW.sequence)
        ON CONFLICT DO UPDATE SET head = max(head, excluded.head);
    INSERT INTO known_numbers
        SELECT NEW.device, NEW.sequence WHERE NEW.sequence > 0 AND NOT EXISTS
            (SELECT 1 FROM dropped WHERE device = NEW.device AND sequence = NEW.sequence);
END;
CREATE TRIGGER number_dropped AFTER INSERT ON dropped BEGIN
    INSERT INTO cameras (device, dropped) VALUES (NEW.device, 1)
        ON CONFLICT DO UPDATE SET dropped = dropped + 1;
    INSERT INTO known_numbers
        SELECT NEW.device, NEW.sequence WHERE NEW.sequence > 0 AND NOT EXISTS
            (SELECT 1 FROM chain WHERE device = NEW.device AND sequence = NEW.sequence);
END;

-- Parts of plates and places, by audience: what somebody may not see neither shows in a search nor
-- in its duration. The row's number is the violation's position. Filled by `search`.
CREATE VIRTUAL TABLE violation_text
    USING fts5 (parts, content = '', detail = none, columnsize = 0, tokenize = 'ascii');
-- The version of the parts; without a row they are made anew at the next start.
CREATE TABLE violation_text_version (version INTEGER NOT NULL) STRICT;
",
};
