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
