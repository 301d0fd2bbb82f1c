//! A site: all roles of one data folder, opened in the order in which they need one another.
//!
//! ```text
//! DIR/passphrase          unless one is given from elsewhere
//! DIR/audit/log           the central audit log (tlog-tiles), log.vkey beside it
//! DIR/audit/journal       each role's own journal
//! DIR/pki, registry.sqlite   authorities and what they issued
//! DIR/keys                keys of this site's services
//! DIR/directory.sqlite    people
//! DIR/centre              uploads, archive, quarantine, index
//! DIR/control.sock        for `cordon pki revoke` and its like while the site runs
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::PolicyDecisionPoint;
use access_cedar::CedarRules;
use audit::{AuditSink, SharedLog};
use centre::{Centre, Limits, Units};
use directory::Directory;
use pki::key::KeyAlgorithm;
use pool::{Pool, Share};
use registry::{CrlName, Passphrases, Registry};
use store::ClockFloor;
use time::OffsetDateTime;

use crate::cli::SiteArgs;
use crate::config::Config;
use crate::credentials::Credentials;
use crate::failure::{OrHint as _, Outcome};
use crate::keys::log_key;
use crate::last_checkpoint;
use crate::trust_bundle::Bundles;

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) data: PathBuf,
    pub(crate) config: Config,
    pub(crate) audit: SharedLog,
    pub(crate) registry: Registry,
    pub(crate) directory: Directory,
    pub(crate) access: Arc<dyn PolicyDecisionPoint>,
    pub(crate) centre: Centre,
    /// The site's own certificates.
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) bundles: Arc<Bundles>,
    pub(crate) portal_audit: Arc<dyn AuditSink>,
    /// Threads for events about people.
    pub(crate) audit_pool: Pool,
    /// The latest time that was known.
    pub(crate) clock: ClockFloor,
}

impl Site {
    /// Opens the site of `args`, making it when the folder is empty.
    pub(crate) async fn open(args: &SiteArgs) -> Outcome<Self> {
        let config = Config::load(args.config.as_deref())?;
        let data = args.data.clone();
        durable::create_dir_all(&data).or_hint(
            format!("cannot make the data folder {}", data.display()),
            "name another folder with --data, or check its rights",
        )?;
        private(&data)?;
        crate::at_rest::demand(&config, &data)?;
        let secret = commandline::passphrase(&data, args.passphrase_file.as_deref())?;
        let clock = crate::clock::floor(&data)?;
        let real = OffsetDateTime::now_utc();
        if let Err(behind) = clock.check(real) {
            tracing::error!("{behind}: nothing is issued and no block is settled until then");
        }
        // What a start makes, lists for instance, must not be older than what was made before.
        let now = clock.or_later(real);

        last_checkpoint::check_there(&data)?;
        crate::export::sweep(&data).or_hint(
            format!("cannot remove interrupted exports in {}", data.display()),
            "check the folder's rights and its disk",
        )?;
        let audit = open_audit(&data, &secret, &config.site.log_origin)?;
        last_checkpoint::check(&data, &audit)?;
        let entries = audit
            .view()
            .or_hint("the audit log", "see `cordon audit verify`")?
            .size();
        let newest = newest_log_index(&data).await?;
        last_checkpoint::check_index(&data, entries, newest, "the centre's index")?;
        crate::settings::record_changes(&data, &config, &audit, now)?;
        let registry = open_registry(&data, &config, &secret, &audit, &clock, now).await?;
        // Whatever was issued was recorded before.
        let issued = registry.has_issued().await.or_hint(
            "cannot read registry.sqlite",
            "check the data folder and its disk",
        )?;
        last_checkpoint::check_index(&data, entries, issued.then_some(0), "the registry")?;
        let file = data.join("directory.sqlite");
        let audit_pool = Pool::new(Share::Audit);
        let directory =
            Directory::open(&file, role(&audit, "directory")?, audit_pool.clone()).await;
        let directory = directory.or_hint(
            format!("cannot open {}", file.display()),
            "check the folder's rights",
        )?;

        let folder = data.join("keys");
        durable::create_dir_all(&folder).or_hint(
            format!("cannot make {}", folder.display()),
            "check the folder's rights",
        )?;
        let credentials = Credentials::open(
            folder.clone(),
            secret,
            algorithm(&config.keys.leaf),
            config.site.names.clone(),
            &registry,
            now,
        )
        .await?;
        let bundles = Bundles::open(&folder)?;

        let access = CedarRules::shipped().or_hint("cannot load the access rules", "reinstall")?;
        let access: Arc<dyn PolicyDecisionPoint> = Arc::new(access);
        let centre = Centre::open(centre::Setup {
            data: data.join("centre"),
            keys: credentials.centre_keys(),
            trust: registry.trust(),
            scanner: config.scanner(),
            audit: role(&audit, "centre")?,
            log_origin: config.site.log_origin.clone(),
            access: access.clone(),
            units: Units {
                default: config.units.default.clone(),
                by_device: config.units.cameras.clone(),
            },
            audit_pool: audit_pool.clone(),
            clock: clock.clone(),
            checkpoint: crate::log_proof::checkpoint(&audit),
            limits: Limits {
                max_block: config.intake.max_block_bytes,
                max_open_per_device: config.intake.max_open_uploads,
                upload_lifetime: std::time::Duration::from_secs(
                    u64::from(config.intake.upload_days) * 24 * 3600,
                ),
                max_quarantine: config.intake.max_quarantine_bytes,
                quota: centre::Quota {
                    bytes_per_day: config.intake.max_bytes_per_day,
                    uploads_per_hour: config.intake.max_uploads_per_hour,
                    quarantined_blocks: config.intake.max_quarantined_blocks,
                    reserved_bytes: config.intake.reserved_bytes,
                },
            },
        })
        .await
        .or_hint(
            "cannot open the acquisition centre",
            "check the data folder and its disk",
        )?;
        let portal_audit = role(&audit, "portal")?;
        Ok(Self {
            data,
            config,
            audit,
            registry,
            directory,
            access,
            centre,
            credentials: Arc::new(credentials),
            bundles: Arc::new(bundles),
            portal_audit,
            audit_pool,
            clock,
        })
    }

    /// Where commands reach the running site.
    pub(crate) fn control_socket(data: &Path) -> PathBuf {
        data.join("control.sock")
    }

    /// The current revocation lists for cameras and services, in PEM. A custody package holds no
    /// person's certificate, hence nothing that the users' list could be checked with.
    pub(crate) fn crls_pem(&self) -> Vec<String> {
        let names = [
            pki::profile::CaKind::Devices,
            pki::profile::CaKind::Services,
        ]
        .map(CrlName::Issuing);
        std::iter::once(CrlName::Root)
            .chain(names)
            .filter_map(|name| self.registry.crl(name))
            .filter_map(|der| {
                der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, &der).ok()
            })
            .collect()
    }

    /// The issuing authorities, in PEM.
    pub(crate) fn authorities_pem(&self) -> Outcome<String> {
        let authorities = self.registry.authorities();
        let pem = authorities
            .iter()
            .skip(1)
            .map(pki::cert::to_pem)
            .collect::<Result<String, _>>();
        pem.or_hint("cannot write the authorities", "check the folder pki")
    }

    /// An issuing authority, in PEM.
    pub(crate) fn authority_pem(&self, kind: pki::profile::CaKind) -> Outcome<String> {
        let certificate = self.registry.authority_certificate(kind);
        let pem = certificate.as_ref().map(pki::cert::to_pem).transpose();
        let pem = pem.or_hint("cannot write an authority", "check the folder pki")?;
        Ok(pem.unwrap_or_default())
    }

    /// The root certificate, in PEM.
    pub(crate) fn root_pem(&self) -> Outcome<String> {
        pki::cert::to_pem(self.registry.root())
            .or_hint("cannot write the root", "check pki/root.pem")
    }
}

/// The data folder holds keys and evidence: nobody else has business in it.
fn private(data: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    let rights = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(data, rights).or_hint(
        format!("cannot close {} to others", data.display()),
        "check the folder's owner",
    )
}

/// An algorithm by a name that the configuration has checked.
pub(crate) fn algorithm(name: &str) -> KeyAlgorithm {
    name.parse().unwrap_or(KeyAlgorithm::EcdsaP256)
}

pub(crate) fn open_audit(data: &Path, secret: &[u8], origin: &str) -> Outcome<SharedLog> {
    let folder = data.join("audit");
    durable::create_dir_all(&folder).or_hint(
        format!("cannot make {}", folder.display()),
        "check the folder's rights",
    )?;
    let key = log_key(&folder.join("log.key"), secret, origin)?;
    let public = folder.join("log.vkey");
    let text = format!("{}\n", key.verifier());
    // Not at every start: a site whose disk is full must still come up, and say so itself.
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
    SharedLog::open(folder, key).or_hint(
        format!("cannot open the audit log in {}", folder.display()),
        "stop another cordon that uses this folder, or run `cordon audit verify` on it",
    )
}

/// The largest number of an audit event on which the centre's index relies.
pub(crate) async fn newest_log_index(data: &Path) -> Outcome<Option<u64>> {
    centre::newest_log_index(&data.join("centre"))
        .await
        .or_hint(
            "cannot read the centre's index",
            "check the data folder and its disk",
        )
}

pub(crate) fn role(audit: &SharedLog, name: &str) -> Outcome<Arc<dyn AuditSink>> {
    let role = audit.role(name).or_hint(
        format!("cannot open the journal of {name}"),
        "check the disk",
    )?;
    Ok(Arc::new(role))
}

/// Renews authorities that are due, where the root's key is at hand and opens with the site's own
/// passphrase. Elsewhere health and metrics ask for a person years before.
async fn renew_due_authorities(
    data: &Path,
    settings: &registry::Config,
    secret: &[u8],
    audit: &SharedLog,
    now: OffsetDateTime,
) -> Outcome {
    const HINT: &str = "check the folder pki";
    let due = Registry::authorities_due(data, now).or_hint("certificate authorities", HINT)?;
    if due.is_empty() {
        return Ok(());
    }
    let (data, settings) = (data.to_owned(), settings.clone());
    let secret = zeroize::Zeroizing::new(secret.to_vec());
    let sink = role(audit, "registry")?;
    let renewed = tokio::task::spawn_blocking(move || {
        if Registry::has_root_key(&data, &secret) {
            let who = audit::Actor::service("cordon");
            renew_authorities(&data, &settings, &secret, &due, &*sink, who, now)
        } else {
            tracing::warn!(
                authorities = ?due,
                "authorities should be renewed with the root's key: `cordon pki renew-authorities`"
            );
            Ok(())
        }
    });
    renewed.await.or_hint("certificate authorities", HINT)?
}

/// Renews `kinds` with the root's key, recorded before it takes effect. Blocks.
pub(crate) fn renew_authorities(
    data: &Path,
    settings: &registry::Config,
    root_passphrase: &[u8],
    kinds: &[pki::profile::CaKind],
    sink: &dyn AuditSink,
    who: audit::Actor,
    now: OffsetDateTime,
) -> Outcome {
    for kind in kinds {
        let resource = format!("authority/{kind}");
        let event = audit::Event::new(
            now,
            who.clone(),
            "authority.renew",
            resource,
            audit::Outcome::Ok,
        );
        sink.record(event)
            .or_hint("not recorded, hence not renewed", "make room on the disk")?;
    }
    Registry::renew_authorities(data, settings, root_passphrase, kinds, now).or_hint(
        "cannot renew the authorities",
        "put root.key back into the folder pki for the time, and check its passphrase",
    )
}

pub(crate) fn registry_settings(config: &Config) -> registry::Config {
    let base = config.site.public_url.trim_end_matches('/');
    let public = |name: &str| (!base.is_empty()).then(|| format!("{base}/{name}"));
    registry::Config {
        country: Some(config.site.country.clone()),
        authority_algorithm: algorithm(&config.keys.authority),
        crl_base_url: public("crl"),
        ocsp_url: public("ocsp"),
        renewal_grace: time::Duration::days(i64::from(config.enrolment.expired_grace_days)),
        ..registry::Config::new(&config.site.organisation)
    }
}

async fn open_registry(
    data: &Path,
    config: &Config,
    secret: &[u8],
    audit: &SharedLog,
    clock: &ClockFloor,
    now: OffsetDateTime,
) -> Outcome<Registry> {
    let settings = registry::Config {
        clock: clock.clone(),
        ..registry_settings(config)
    };
    let initialised = Registry::is_initialised(data);
    if !initialised.or_hint(
        "cannot look at the certificate authorities",
        "check the data folder",
    )? {
        tracing::info!("making the certificate authorities");
        let (data, settings) = (data.to_owned(), settings.clone());
        let secret = zeroize::Zeroizing::new(secret.to_vec());
        let made = tokio::task::spawn_blocking(move || {
            let passphrases = Passphrases {
                root: &secret,
                issuing: &secret,
            };
            Registry::init(&data, &settings, &passphrases, now)
        });
        made.await
            .or_hint("cannot make the certificate authorities", "try again")?
            .or_hint(
                "cannot make the certificate authorities",
                "check the data folder",
            )?;
    }
    renew_due_authorities(data, &settings, secret, audit, now).await?;
    Registry::open(data, settings, secret, role(audit, "registry")?, now)
        .await
        .or_hint(
            "cannot open the certificate authorities",
            "check the passphrase and the folder pki",
        )
}
