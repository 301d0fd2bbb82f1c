//! A site: all roles of one data folder, opened in the order in which they need one another.
//!
//! ```text
//! DIR/passphrase          unless one is given from elsewhere
//! DIR/audit/log           the central audit log (tlog-tiles), log.vkey beside it
//! DIR/audit/journal       each role's own journal
//! DIR/pki, registry.sqlite   authorities and what they issued
//! DIR/keys                keys of this site's services
//! DIR/directory.sqlite    people and services
//! DIR/logins.sqlite       logins to applications, and logouts to deliver
//! DIR/centre              uploads, archive, quarantine, index
//! DIR/control.sock        for `cordon pki revoke` and its like while the site runs
//! ```

pub mod centre_host;
pub(crate) mod centre_parts;
pub mod files;
pub(crate) mod opening;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use accelerator::Accelerator;
use access::PolicyDecisionPoint;
use audit::journal::JournalError;
use audit::{AuditError, AuditSink, SharedLog};
use centre::Centre;
use directory::Directory;
use error_report::Report;
use event_catalogue::Recorded as _;
use event_catalogue::registry::AuthorityRenewed;
use pki::key::{KeyAlgorithm, Passphrase};
use pool::Pool;
use registry::{AuthorityId, Registry};
use store::ClockFloor;
use time::OffsetDateTime;

use crate::admission::{Admission, Local};
use crate::authority_keys::TokenKeys;
use crate::config::{Approvals, Config, Messages};
use crate::credentials::Credentials;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::keys::log_key;
use crate::last_checkpoint;
use crate::openid_keys::OpenIdKeys;
use crate::trust_state::TrustState;
use centre_parts::CentreParts;

/// What to do about an index that is another file, or has another schema. The index is a cache: nothing of evidence is lost.
pub const INDEX_CHANGED: &str = "keep centre.sqlite for an examination, find out what else writes to the data folder, and make the index again \
    with `cordon evidence rebuild-index --data DIR`";

#[derive(Clone)]
pub struct Site {
    pub data: PathBuf,
    pub config: Config,
    pub audit: SharedLog,
    pub registry: Registry,
    pub directory: Directory,
    pub access: Arc<dyn PolicyDecisionPoint>,
    pub centre: Centre,
    /// The site's own certificates.
    pub credentials: Arc<Credentials>,
    pub trust: TrustState,
    /// Keys that sign tokens of OpenID Connect.
    pub openid_keys: Arc<OpenIdKeys>,
    pub portal_audit: Arc<dyn AuditSink>,
    /// Threads for events about people.
    pub audit_pool: Pool,
    /// The latest time that was known.
    pub clock: ClockFloor,
    /// Engines for media and signatures.
    pub accelerator: Accelerator,
}

/// The disk of the data folder, and the bytes on it that uploads must leave free.
#[derive(Clone)]
pub struct Disk {
    pub data: PathBuf,
    pub reserved: u64,
}

impl Site {
    /// Ends in order: the log says that all that was recorded took effect.
    pub async fn close(&self) {
        let now = OffsetDateTime::now_utc();
        self.registry.close(now).await;
        self.directory.close(now).await;
        if let Err(error) = last_checkpoint::write(&self.data, &self.audit) {
            tracing::error!(
                "the newest checkpoint is not written down: {}",
                error.message()
            );
        }
    }

    /// The portal's address for people, when it listens at `portal`.
    pub fn portal_url(&self, portal: SocketAddr) -> String {
        let name = self.config.site.names.first();
        let name = name.map_or("localhost", String::as_str);
        format!("https://{name}:{}/", portal.port())
    }

    /// Answers about people and devices, from the databases of this host.
    pub(crate) fn admission(&self) -> Arc<dyn Admission> {
        Arc::new(Local {
            registry: self.registry.clone(),
            directory: self.directory.clone(),
        })
    }

    /// What centre and portal need.
    pub(crate) fn centre_parts(&self) -> CentreParts {
        CentreParts {
            data: self.data.clone(),
            config: self.config.clone(),
            audit: self.audit.clone(),
            access: Arc::clone(&self.access),
            centre: self.centre.clone(),
            credentials: Arc::clone(&self.credentials),
            trust: self.trust.clone(),
            holders: self.registry.trust(),
            admission: self.admission(),
            portal_audit: Arc::clone(&self.portal_audit),
            audit_pool: self.audit_pool.clone(),
        }
    }

    /// The directory's address for LDAP clients, when it listens at `ldap`.
    pub fn ldap_url(&self, ldap: SocketAddr) -> String {
        // OpenLDAP's library looks for the machine's own name in the certificate where the address says `localhost`.
        let mut names = self.config.site.names.iter().map(String::as_str);
        let name = names.find(|name| *name != "localhost");
        let name = name.unwrap_or("127.0.0.1");
        format!("ldaps://{name}:{}", ldap.port())
    }

    /// Name of the directory's entry above all others, as LDAP writes it.
    pub fn ldap_base(&self) -> String {
        // The configuration was checked.
        let base = self.config.ldap_base();
        base.map_or_else(|_| String::new(), |name| name.text())
    }

    /// The disk of the data folder.
    pub fn disk(&self) -> Disk {
        Disk {
            data: self.data.clone(),
            reserved: self.config.intake.reserved_bytes,
        }
    }

    /// Where commands reach the running site.
    pub fn control_socket(data: &Path) -> PathBuf {
        data.join("control.sock")
    }
}

/// An algorithm by a name that the configuration has checked.
pub fn algorithm(name: &str) -> KeyAlgorithm {
    name.parse().unwrap_or(KeyAlgorithm::EcdsaP256)
}

/// Closes the data folder, which has keys and evidence, to all other users.
pub fn private(data: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    let rights = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(data, rights).or_hint(
        format!("cannot close {} to others", data.display()),
        "check the folder's owner",
    )
}

pub fn open_audit(data: &Path, secret: &Passphrase, origin: &str) -> Outcome<SharedLog> {
    crate::owner::check(data)?;
    let folder = data.join("audit");
    durable::create_dir_all(&folder).or_hint(
        format!("cannot make {}", folder.display()),
        "check the folder's rights",
    )?;
    let key = log_key(&folder.join("log.key"), secret, origin)?;
    let public = folder.join("log.vkey");
    let text = format!("{}\n", key.verifier());
    // Not at every start: a site whose disk is full comes up, and says so itself, unless a kill left events for the log.
    if std::fs::read_to_string(&public).is_ok_and(|known| known == text) {
        return open_log(&folder, key);
    }
    durable::write_atomic(&public, text.as_bytes(), 0o644).or_hint(
        format!("cannot write {}", public.display()),
        "check the folder's rights and the room on its disk",
    )?;
    open_log(&folder, key)
}

fn open_log(folder: &Path, key: audit::LogKey) -> Outcome<SharedLog> {
    SharedLog::open(folder, key).map_err(|error| {
        let hint = log_hint(&error);
        let what = format!("cannot open the audit log in {}", folder.display());
        Failure::new(anyhow::Error::new(error).context(what), hint)
    })
}

/// Gives advice about a log that cannot be opened.
fn log_hint(error: &AuditError) -> String {
    const EXAMINE: &str =
        "keep a copy of the folder `audit` for an examination, then bring back its newest copy";
    match error {
        AuditError::Journal {
            source: JournalError::NotAuthentic { path, offset, .. },
            ..
        } => format!(
            "somebody else wrote it: {EXAMINE}; without one, `truncate -s {offset} {}` takes out the record and \
             what follows it",
            path.display()
        ),
        AuditError::Journal {
            source: JournalError::Unproven { .. },
            ..
        } => format!(
            "after an upgrade, start the former version once, so that the log takes the record over; \
             otherwise {EXAMINE}"
        ),
        _ => "stop another cordon that uses this folder, or run `cordon audit verify` on it"
            .to_owned(),
    }
}

/// The largest number of an audit event on which the centre's index relies.
pub async fn newest_log_index(data: &Path) -> Outcome<Option<u64>> {
    centre::newest_log_index(&data.join("centre"))
        .await
        .or_hint("cannot read the centre's index", INDEX_CHANGED)
}

/// The same, for commands that must work with a damaged index: it relies on nothing then.
pub async fn newest_log_index_if_readable(data: &Path) -> Option<u64> {
    match centre::newest_log_index(&data.join("centre")).await {
        Ok(newest) => newest,
        Err(error) => {
            tracing::warn!(error = %Report(&error), "the centre's index cannot be read: the log is not compared with it");
            None
        }
    }
}

pub fn role(audit: &SharedLog, name: &str) -> Outcome<Arc<dyn AuditSink>> {
    let role = audit.role(name).or_hint(
        format!("cannot open the journal of {name}"),
        "check the disk",
    )?;
    Ok(Arc::new(role))
}

/// Renews `authorities` with the root's key, recorded before it takes effect. Blocks.
pub fn renew_authorities(
    data: &Path,
    settings: &registry::Config,
    root_passphrase: &Passphrase,
    authorities: &[AuthorityId],
    sink: &dyn AuditSink,
    who: audit::Actor,
    now: OffsetDateTime,
) -> Outcome {
    for id in authorities {
        let resource = format!("authority/{id}");
        let event = AuthorityRenewed {}.into_event(now, who.clone(), resource);
        sink.record(event)
            .or_hint("not recorded, hence not renewed", "make room on the disk")?;
    }
    Registry::renew_authorities(data, settings, root_passphrase, authorities, now).or_hint(
        "cannot renew the authorities",
        "put root.key back into the folder pki for the time, and check its passphrase",
    )
}

/// Numbers of approvals, which the configuration has checked.
pub fn policy(config: &Config) -> approval::Policy {
    config.registration.policy().unwrap_or_default()
}

pub fn registry_settings(config: &Config) -> registry::Config {
    let base = config.site.public_url.trim_end_matches('/');
    let public = |name: &str| (!base.is_empty()).then(|| format!("{base}/{name}"));
    registry::Config {
        country: Some(config.site.country.clone()),
        authority_algorithm: algorithm(&config.keys.authority),
        authority_keys: Arc::new(TokenKeys::new(&config.keys)),
        crl_base_url: public("crl"),
        crl_shards: config.revocation.shards,
        ocsp_url: public("ocsp"),
        ca_base_url: public("ca"),
        cmp: config.enrolment.cmp != Messages::Off,
        scep: config.enrolment.scep != Messages::Off,
        acme: config.enrolment.acme,
        renewal_grace: time::Duration::days(i64::from(config.enrolment.expired_grace_days)),
        registration: registry::Registration {
            approvals: match config.registration.approvals {
                Approvals::Direct => registry::Approvals::Direct,
                Approvals::Required => registry::Approvals::Required,
            },
            policy: policy(config),
        },
        ..registry::Config::new(&config.site.organisation)
    }
}
