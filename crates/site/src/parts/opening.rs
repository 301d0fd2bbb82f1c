//! Opening a site: each role after those that it needs, and the checks between them.

use pki::key::Passphrase;
use pki::path::TrustStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use accelerator::Accelerator;
use access::PolicyDecisionPoint;
use access_cedar::CedarRules;
use audit::SharedLog;
use centre::{Centre, Limits, Rebuilt, SetupError, Units};
use directory::{Directory, DirectoryError};
use pool::{Pool, Share};
use registry::{
    AuthorityId, AuthorityRecord, ListedPerson, Passphrases, PersonLookup, Registry, RegistryError,
};
use store::{ClockFloor, StoreError};
use time::OffsetDateTime;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::files;
use super::{
    INDEX_CHANGED, Site, algorithm, newest_log_index, newest_log_index_if_readable, open_audit,
    private, registry_settings, renew_authorities, role,
};
use crate::config::Config;
use crate::credentials::{self, Credentials};
use crate::databases::{CHANGED, is_foreign};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::founding::Founding;
use crate::last_checkpoint;
use crate::openid_keys::OpenIdKeys;
use crate::registration::subject_of;
use crate::trust_bundle::Bundles;
use crate::trust_state::TrustState;
use commandline::SiteArgs;

impl Site {
    /// Opens the site of `args` for a command, making it when the folder is empty.
    pub async fn open(args: &SiteArgs) -> Outcome<Self> {
        let (site, _) = Self::open_with(args, |_| Accelerator::software(), false, None).await?;
        Ok(site)
    }

    /// Opens the site of `args` whose log begins, or is to begin, with `founding`.
    pub(crate) async fn open_founding(args: &SiteArgs, founding: &Founding) -> Outcome<Self> {
        let software = |_: &Config| Accelerator::software();
        let (site, _) = Self::open_with(args, software, false, Some(founding)).await?;
        Ok(site)
    }

    /// Opens the site of `args` with an index that is made again. Gives what was made, and where the former index is.
    pub async fn rebuild_index(args: &SiteArgs) -> Outcome<(Self, Rebuilt, PathBuf)> {
        let opened = Self::open_with(args, |_| Accelerator::software(), true, None).await?;
        let (site, rebuilt) = opened;
        let (rebuilt, kept) = rebuilt.unwrap_or_default();
        Ok((site, rebuilt, kept))
    }

    /// Opens the site of `args` to run it. That takes the accelerator as well, which serves one process only.
    pub async fn open_to_run(args: &SiteArgs) -> Outcome<Self> {
        let accelerator =
            |config: &Config| Accelerator::open(config.accelerator.as_ref(), beside_others);
        let (site, _) = Self::open_with(args, accelerator, false, None).await?;
        Ok(site)
    }

    async fn open_with(
        args: &SiteArgs,
        accelerator: impl FnOnce(&Config) -> Accelerator,
        rebuilds: bool,
        founding: Option<&Founding>,
    ) -> Outcome<(Self, Option<(Rebuilt, PathBuf)>)> {
        if founding.is_none() {
            crate::owner::check(&args.data)?;
            crate::founding::check_complete(&args.data)?;
        }
        let Ground {
            config,
            data,
            secret,
            clock,
            audit,
            now,
            kept,
        } = Ground::open(args)?;
        if let Some(host) = &config.registry_host {
            let error = anyhow::anyhow!("the registry of this site is on {}", host.address);
            return Err(Failure::new(
                error,
                "give this command there; here, start `cordon run centre portal`",
            ));
        }
        let file = data.join("directory.sqlite");
        check_relied_on(&data, &file, &audit, rebuilds).await?;
        if let Some(founding) = founding {
            last_checkpoint::prepare(&data, &audit, kept)?;
            founding.record(&data, &audit, now)?;
        }
        last_checkpoint::begin(&data, &audit, kept, now)?;
        crate::settings::record_changes(&data, &config, &audit, now)?;
        let registry = open_registry(&data, &config, &secret, &audit, &clock, now).await?;
        let audit_pool = Pool::new(Share::Audit);
        let sink = role(&audit, "directory")?;
        let directory = Directory::open(&file, sink, audit_pool.clone(), now).await;
        let hint = match &directory {
            Err(DirectoryError::Store(error)) if error.is_foreign() => CHANGED,
            _ => "check the folder's rights",
        };
        let directory = directory.or_hint(format!("cannot open {}", file.display()), hint)?;
        report_flawed(&directory).await;
        let registry = registry.with_people(people(&directory, &config));
        let by = audit::Actor::service("cordon");
        let followed = crate::disabled_people::follow(&registry, &directory, &by, now).await;
        followed.or_hint(
            "cannot put the certificates of disabled people on hold",
            "check the data folder and its disk",
        )?;

        let folder = data.join("keys");
        durable::create_dir_all(&folder).or_hint(
            format!("cannot make {}", folder.display()),
            "check the folder's rights",
        )?;
        let openid_keys = Arc::new(OpenIdKeys::new(&folder, &secret));
        let accelerator = accelerator(&config);
        let credentials = Credentials::open(
            credentials::Settings {
                folder: folder.clone(),
                secret,
                algorithm: algorithm(&config.keys.leaf),
                names: config.site.names.clone(),
                engines: Arc::clone(accelerator.policy()),
            },
            Arc::new(registry.clone()),
            Some(&registry),
            now,
        )
        .await?;
        let credentials = Arc::new(credentials);
        let trust = TrustState::new(
            Arc::new(registry.clone()),
            Arc::clone(&credentials),
            Bundles::open(&folder)?,
            audit.verifier().to_string(),
        );

        let access = rules()?;
        let setup = || {
            centre_setup(&CentreGround {
                data: &data,
                config: &config,
                audit: &audit,
                audit_pool: &audit_pool,
                clock: &clock,
                access: &access,
                keys: credentials.centre_keys(),
                trust: registry.trust(),
            })
        };
        let rebuilt = match rebuilds {
            true => Some(opened(Centre::rebuild_index(setup()?).await)?),
            false => None,
        };
        let centre = opened(Centre::open(setup()?).await)?;
        let portal_audit = role(&audit, "portal")?;
        let site = Self {
            data,
            config,
            audit,
            registry,
            directory,
            access,
            centre,
            credentials,
            trust,
            openid_keys,
            portal_audit,
            audit_pool,
            clock,
            accelerator,
        };
        Ok((site, rebuilt))
    }
}

/// The rules that the program has with it.
pub(super) fn rules() -> Outcome<Arc<dyn PolicyDecisionPoint>> {
    let rules = CedarRules::shipped().or_hint("cannot load the access rules", "reinstall")?;
    Ok(Arc::new(rules))
}

/// What a host opens first: settings, secret, clock and log.
pub(super) struct Ground {
    pub(super) config: Config,
    pub(super) data: PathBuf,
    pub(super) secret: Passphrase,
    pub(super) clock: ClockFloor,
    pub(super) audit: SharedLog,
    /// By the clock, and no earlier than what was made before.
    pub(super) now: OffsetDateTime,
    /// The newest checkpoint of the last run.
    pub(super) kept: last_checkpoint::Kept,
}

impl Ground {
    pub(super) fn open(args: &SiteArgs) -> Outcome<Self> {
        let config = Config::load(args.config.as_deref())?;
        let data = args.data.clone();
        crate::owner::check(&data)?;
        durable::create_dir_all(&data).or_hint(
            format!("cannot make the data folder {}", data.display()),
            "name another folder with --data, or check its rights",
        )?;
        private(&data)?;
        if args.config.is_none() {
            crate::settings::check_without_file(&data)?;
        }
        crate::settings::check_elsewhere(&data, &config)?;
        crate::at_rest::demand(&config, &data)?;
        let secret = commandline::passphrase(&data, args.passphrase_file.as_deref())?;
        let secret = Passphrase::new(secret);
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
        let kept = last_checkpoint::check(&data, &audit)?;
        Ok(Self {
            config,
            data,
            secret,
            clock,
            audit,
            now,
            kept,
        })
    }
}

/// What a centre is opened with.
pub(super) struct CentreGround<'a> {
    pub(super) data: &'a Path,
    pub(super) config: &'a Config,
    pub(super) audit: &'a SharedLog,
    pub(super) audit_pool: &'a Pool,
    pub(super) clock: &'a ClockFloor,
    pub(super) access: &'a Arc<dyn PolicyDecisionPoint>,
    pub(super) keys: centre::Keys,
    pub(super) trust: TrustStore,
}

pub(super) fn centre_setup(ground: &CentreGround<'_>) -> Outcome<centre::Setup> {
    let CentreGround { config, audit, .. } = ground;
    Ok(centre::Setup {
        data: ground.data.join("centre"),
        keys: ground.keys.clone(),
        trust: ground.trust.clone(),
        scanner: config.scanner(),
        audit: role(audit, "centre")?,
        log_origin: config.site.log_origin.clone(),
        access: ground.access.clone(),
        units: Units {
            default: config.units.default.clone(),
            by_device: config.units.cameras.clone(),
        },
        audit_pool: ground.audit_pool.clone(),
        clock: ground.clock.clone(),
        checkpoint: crate::log_proof::checkpoint(audit),
        destruction_delay: std::time::Duration::from_secs(
            u64::from(config.intake.destroy_after_hours.get()) * 3600,
        ),
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
}

/// Gives advice about a centre that does not open.
pub(super) fn opened<T>(centre: Result<T, SetupError>) -> Outcome<T> {
    let hint = match &centre {
        Err(SetupError::IndexIncomplete { .. }) => {
            "bring back the newest index, or make it anew with `cordon evidence rebuild-index --data DIR`"
        }
        Err(SetupError::ArchiveIncomplete { .. }) => {
            "bring back the newest archive; where no copy is left, `cordon evidence accept-loss --data DIR --reason TEXT` \
             lets the site go on without it"
        }
        Err(SetupError::Compare(_)) => INDEX_CHANGED,
        Err(SetupError::Index { source, .. }) if !matches!(source, StoreError::TooNew { .. }) => {
            INDEX_CHANGED
        }
        _ => "check the data folder and its disk",
    };
    centre.or_hint("cannot open the acquisition centre", hint)
}

/// Compares the size of the log with what index, registry and directory rely on, before anything is recorded: all that they have
/// was recorded before, and the events of a start that is refused would make a log that was removed look as if it had begun.
async fn check_relied_on(
    data: &Path,
    directory: &Path,
    audit: &SharedLog,
    rebuilds: bool,
) -> Outcome {
    let view = audit
        .view()
        .or_hint("the audit log", "see `cordon audit verify`")?;
    let check = |newest, who| last_checkpoint::check_index(data, &view, newest, who);
    // An index that is made again may be damaged.
    let newest = match rebuilds {
        true => newest_log_index_if_readable(data).await,
        false => newest_log_index(data).await?,
    };
    check(newest, "the centre's index")?;
    let issued = Registry::has_issued(data).await.or_hint(
        "cannot read registry.sqlite",
        "check the data folder and its disk",
    )?;
    check(issued.then_some(0), "the registry")?;
    let people = Directory::has_people(directory).await.or_hint(
        "cannot read directory.sqlite",
        "check the data folder and its disk",
    )?;
    check(people.then_some(0), "the directory")
}

/// Renews the authorities that issue and are due, where the root's key is at hand and opens with the site's own
/// passphrase. Elsewhere health and metrics ask for a person years before.
async fn renew_due_authorities(
    registry: &Registry,
    data: &Path,
    settings: &registry::Config,
    secret: &Passphrase,
    audit: &SharedLog,
    now: OffsetDateTime,
) -> Outcome {
    const HINT: &str = "check the folder pki";
    let records = registry.authority_records(now).into_iter();
    let is_due = |record: &AuthorityRecord| record.is_due(now) && !record.is_revoked;
    let due: Vec<AuthorityId> = records.filter(is_due).map(|record| record.id).collect();
    if due.is_empty() {
        return Ok(());
    }
    let data = data.to_owned();
    let (folder, passphrase) = (data.clone(), secret.clone());
    let found = tokio::task::spawn_blocking(move || Registry::has_root_key(&folder, &passphrase));
    if !found.await.or_hint("certificate authorities", HINT)? {
        tracing::warn!(
            authorities = ?due,
            "authorities should be renewed with the root's key: `cordon pki renew-authorities`"
        );
        return Ok(());
    }
    let (settings, passphrase) = (settings.clone(), secret.clone());
    let sink = role(audit, "registry")?;
    let renewed = tokio::task::spawn_blocking(move || {
        let who = audit::Actor::service("cordon");
        renew_authorities(&data, &settings, &passphrase, &due, &*sink, who, now)
    });
    renewed.await.or_hint("certificate authorities", HINT)??;
    let taken = registry.take_authorities(secret, now).await;
    taken.or_hint("certificate authorities", HINT)?;
    registry
        .take_root_list(now)
        .or_hint("the root's list", HINT)
}

/// Holds which generations issue against the log.
async fn check_issuing(registry: &Registry, audit: &SharedLog, now: OffsetDateTime) -> Outcome {
    const HINT: &str = "keep registry.sqlite and the log for an examination, and bring back the newest copy of the data \
         folder; without one, `cordon audit accept-loss --data DIR --reason TEXT` has the database count";
    let view = audit
        .view()
        .or_hint("the audit log", "see `cordon audit verify`")?;
    let checked = registry.check_issuing(view).await;
    let is_due = checked.or_hint("the certificate authorities are not opened", HINT)?;
    if is_due && let Err(error) = registry.note_issuing(now).await {
        // A site whose disk is full comes up; the next start reads as much of the log again.
        tracing::warn!(%error, "which authorities issue is not noted in the log");
    }
    Ok(())
}

/// Makes the certificate authorities where there are none.
pub(crate) async fn make_authorities(
    data: &Path,
    settings: &registry::Config,
    secret: &Passphrase,
    now: OffsetDateTime,
) -> Outcome {
    let initialised = Registry::is_initialised(data);
    if initialised.or_hint(
        "cannot look at the certificate authorities",
        "check the data folder",
    )? {
        return Ok(());
    }
    tracing::info!("making the certificate authorities");
    let (data, settings) = (data.to_owned(), settings.clone());
    let secret = secret.clone();
    let made = tokio::task::spawn_blocking(move || {
        let passphrases = Passphrases {
            root: secret.clone(),
            issuing: secret,
        };
        Registry::init(&data, &settings, &passphrases, now)
    });
    let made = made
        .await
        .or_hint("cannot make the certificate authorities", "try again")?;
    let hint = match made {
        Err(RegistryError::AuthoritiesRequested(_)) => {
            "install what the ceremony made with `cordon pki install-authorities`"
        }
        _ => "check the data folder",
    };
    made.or_hint("cannot make the certificate authorities", hint)
}

async fn open_registry(
    data: &Path,
    config: &Config,
    secret: &Passphrase,
    audit: &SharedLog,
    clock: &ClockFloor,
    now: OffsetDateTime,
) -> Outcome<Registry> {
    let settings = registry::Config {
        clock: clock.clone(),
        weak_keys: files::weak_keys(config)?,
        recovery: files::recovery(config, now)?,
        ..registry_settings(config)
    };
    make_authorities(data, &settings, secret, now).await?;
    let sink = role(audit, "registry")?;
    let registry = Registry::open(data, settings.clone(), secret, sink, now).await;
    let hint = match &registry {
        Err(
            RegistryError::SeveralIssue(..)
            | RegistryError::NoneIssues(_)
            | RegistryError::WrongKind { .. },
        ) => {
            "keep pki and registry.sqlite for an examination, and bring back the newest copy of the data folder"
        }
        Err(RegistryError::ProfileNotApproved(_) | RegistryError::ProfileMissing(_)) => CHANGED,
        Err(error) if is_foreign(error) => CHANGED,
        _ => "check the passphrase and the folder pki",
    };
    let registry = registry.or_hint("cannot open the certificate authorities", hint)?;
    check_issuing(&registry, audit, now).await?;
    renew_due_authorities(&registry, data, &settings, secret, audit, now).await?;
    Ok(registry)
}

/// The directory for the registry: who is disabled there, or has fewer rights, gets nothing.
fn people(directory: &Directory, config: &Config) -> PersonLookup {
    let (directory, config) = (directory.clone(), Arc::new(config.clone()));
    Arc::new(move |uid: &str| {
        let (directory, config, uid) = (directory.clone(), config.clone(), uid.to_owned());
        Box::pin(async move {
            let entry = directory.get(&uid).await?;
            Ok(entry.map(|person| ListedPerson {
                record: person.record(),
                subject: subject_of(&config, &person),
            }))
        })
    })
}

/// Entries that earlier versions took keep no site from starting; the log names them.
async fn report_flawed(directory: &Directory) {
    match directory.flawed().await {
        Ok(flawed) => {
            for (uid, error) in flawed {
                tracing::warn!(uid = ?uid, %error, "an entry of the directory breaks a rule: import it anew");
            }
        }
        Err(error) => tracing::warn!(%error, "the directory's entries are not checked"),
    }
}

/// Waits for the accelerator. A handshake has it sign on a thread of the runtime: other work there continues meanwhile.
pub(super) fn beside_others(wait: &mut dyn FnMut()) {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        // Without another thread, or without other work.
        _ => wait(),
    }
}
