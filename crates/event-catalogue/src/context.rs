//! Details that surround events of several kinds.

use audit::rows::{ROWS, TRANSACTION};
use serde_json::Value;

use crate::macros::details;

impl Registry {
    /// The context of an act that carries out `request`.
    #[must_use]
    pub fn of_request(request: Option<String>) -> Self {
        Self {
            request,
            ..Self::default()
        }
    }
}

details! {
    /// Address of the client.
    Origin {
        /// IP address of the client.
        address: Option<String> = "address" personal,
    }

    /// Refusals of the same cause that were counted instead of recorded.
    Repeated {
        /// Number of events that were counted only.
        not_recorded: Option<u64> = "not_recorded",
    }

    /// Facts about the person behind a decision of the access policy.
    Permission {
        /// Clearance of the person, as a level.
        clearance: u64 = "clearance",
        /// How the person logged in, with the certificate's fingerprint.
        login: String = "login" personal,
        /// IP address of the client.
        address: Option<String> = "address" personal,
        /// Account of the operating system that gave the command.
        console: Option<String> = "console" personal,
    }

    /// A block that arrived.
    Block {
        /// Size in bytes.
        size: Option<u64> = "size",
        /// Arrival of the last byte, in milliseconds since the Unix epoch.
        received_at: Option<i64> = "received_at",
        /// Number in the camera's chain.
        sequence: Option<u64> = "sequence",
        /// SHA-256 of the manifest.
        manifest_sha256: Option<String> = "manifest_sha256",
        /// First missing number before this block.
        missing_from: Option<u64> = "missing_from",
        /// Last missing number before this block.
        missing_to: Option<u64> = "missing_to",
        /// Epoch of the camera's chain; absent in the first one, which is epoch 0.
        epoch: Option<u64> = "epoch",
        /// Expiry of the signer's certificate, in seconds since the Unix epoch, if the block arrived after it.
        signer_expired: Option<i64> = "signer_expired",
        /// The event was recorded before, and a crash or a failure separated it from its effect.
        repeated: Option<bool> = "repeated",
    }

    /// Position in a violation's custody record; `docs/formats.md` describes the chain.
    Custody {
        /// Number in the record, from 1 for the event of receipt.
        count: Option<u64> = "custody_count",
        /// Log index of the event before it.
        previous: Option<u64> = "custody_previous",
        /// SHA-256 of the log indices before the first numbered event.
        earlier_sha256: Option<String> = "custody_earlier_sha256",
    }

    /// Terms of a search.
    Search {
        /// Beginning of the time span, in seconds since the Unix epoch.
        from: Option<String> = "search.from",
        /// End of the time span, in seconds since the Unix epoch.
        to: Option<String> = "search.to",
        /// Place.
        place: Option<String> = "search.place",
        /// Camera.
        device: Option<String> = "search.device",
        /// Number plate.
        plate: Option<String> = "search.plate" personal,
        /// Least speed in km/h.
        min_speed: Option<String> = "search.min_speed",
        /// State of the violation.
        state: Option<String> = "search.state",
        /// Page before this position.
        before: Option<String> = "search.before",
        /// Page after this position.
        after: Option<String> = "search.after",
    }

    /// Search of the directory.
    LookUp {
        /// LDAP filter with the names of attributes, without values.
        filter: Option<String> = "filter",
    }

    /// Facts about the page that a person read.
    Viewed {
        /// The person saw the small picture only.
        thumbnail: Option<bool> = "thumbnail",
        /// Page of the portal.
        page: Option<String> = "page",
        /// Log index before which the page of the log ends.
        before: Option<String> = "before",
    }

    /// Block of a decision about quarantine.
    SetApart {
        /// Device that sent the block.
        device: Option<String> = "device",
        /// Size of the block in bytes.
        size: Option<u64> = "size",
        /// Check that the block failed.
        quarantined_for: Option<String> = "quarantined_for",
    }

    /// Record of a camera's or gateway's journal that the event was taken from.
    Shipped {
        /// Number of the record.
        journal_seq: Option<Value> = "journal_seq",
        /// SHA-256 of the record.
        journal_sha256: Option<String> = "journal_sha256",
        /// Time by the camera's clock (RFC 3339).
        camera_at: Option<String> = "camera_at",
    }

    /// Request and transaction of the registry.
    Registry {
        /// IP address of the client.
        address: Option<String> = "address" personal,
        /// Enrolment protocol: `acme`, `cmp` or `scep`.
        protocol: Option<String> = "protocol",
        /// Registration request that the act carries out.
        request: Option<String> = "request",
        /// Number of the transaction.
        transaction: Option<u64> = TRANSACTION,
        /// Hash of all rows after the transaction.
        rows_sha256: Option<String> = ROWS,
    }

    /// Message with an archived key.
    Archived {
        /// SHA-256 of the encrypted key.
        archived_sha256: Option<String> = "archived_sha256",
        /// Fingerprints of the certificates that can decrypt it.
        archived_to: Option<String> = "archived_to",
    }

    /// Rows of the directory.
    Rows {
        /// Hash of all rows after the change.
        rows_sha256: Option<String> = ROWS,
    }

    /// Proof of a step's author.
    Login {
        /// How the person logged in, with the certificate's fingerprint.
        login: Option<String> = "login" personal,
    }
}
