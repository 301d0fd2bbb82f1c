//! A host with centre and portal, whose registry and directory are on another one.

use std::sync::Arc;

use accelerator::Accelerator;
use centre::Centre;
use peering::Peer;
use pool::{Pool, Share};
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::centre_parts::CentreParts;
use super::opening::{CentreGround, Ground, beside_others, centre_setup, opened, rules};
use super::{algorithm, newest_log_index, role};
use crate::admission;
use crate::audit_host::peer_key;
use crate::credentials::{self, Credentials};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::issuing;
use crate::last_checkpoint;
use crate::trust_bundle::Bundles;
use crate::trust_state::TrustState;
use commandline::SiteArgs;

/// The host, opened.
pub struct CentreHost {
    pub(crate) parts: CentreParts,
    pub(crate) clock: ClockFloor,
    pub(crate) accelerator: Accelerator,
    pub(crate) issuing: issuing::Remote,
}

impl CentreHost {
    /// Opens the host of `args` to run it, once the registry's host answers. None when `stop` comes before that.
    pub async fn open(args: &SiteArgs, stop: &CancellationToken) -> Outcome<Option<Self>> {
        let Ground {
            config,
            data,
            secret,
            clock,
            audit,
            now,
            kept,
        } = Ground::open(args)?;
        let Some(host) = &config.registry_host else {
            let error = anyhow::anyhow!("the configuration names no host with a registry");
            let hint = "add [registry_host], or start the whole site with `cordon up`";
            return Err(Failure::new(error, hint));
        };
        refuse_registry(&data)?;
        let view = audit.view();
        let view = view.or_hint("the audit log", "see `cordon audit verify`")?;
        let newest = newest_log_index(&data).await?;
        last_checkpoint::check_index(&data, &view, newest, "the centre's index")?;
        last_checkpoint::begin(&data, &audit, kept, now)?;
        crate::settings::record_changes(&data, &config, &audit, now)?;

        let key = peer_key(&data, &secret)?;
        let peer = Arc::new(Peer::new(host.address.clone(), key, host.peer));
        let issuing = issuing::Remote::connect(Arc::clone(&peer), clock.clone(), stop).await?;
        let Some(issuing) = issuing else {
            return Ok(None);
        };
        let accelerator = Accelerator::open(config.accelerator.as_ref(), beside_others);
        let folder = data.join("keys");
        let credentials = Credentials::open(
            credentials::Settings {
                folder: folder.clone(),
                secret,
                algorithm: algorithm(&config.keys.leaf),
                names: config.site.names.clone(),
                engines: Arc::clone(accelerator.policy()),
            },
            Arc::new(issuing.clone()),
            None,
            now,
        );
        let credentials = Arc::new(credentials.await?);
        let trust = TrustState::new(
            Arc::new(issuing.clone()),
            Arc::clone(&credentials),
            Bundles::open(&folder)?,
            audit.verifier().to_string(),
        );
        let (access, audit_pool) = (rules()?, Pool::new(Share::Audit));
        let setup = centre_setup(&CentreGround {
            data: &data,
            config: &config,
            audit: &audit,
            audit_pool: &audit_pool,
            clock: &clock,
            access: &access,
            keys: credentials.centre_keys(),
            trust: issuing.trust(),
        })?;
        let centre = opened(Centre::open(setup).await)?;
        let holders = issuing.trust();
        let admission = Arc::new(admission::Remote {
            peer,
            trust: holders.clone(),
        });
        let portal_audit = role(&audit, "portal")?;
        let parts = CentreParts {
            data,
            config,
            audit,
            access,
            centre,
            credentials,
            trust,
            holders,
            admission,
            portal_audit,
            audit_pool,
        };
        Ok(Some(Self {
            parts,
            clock,
            accelerator,
            issuing,
        }))
    }
}

/// Refuses the folder of a whole site: its registry would be out of use, unnoticed.
fn refuse_registry(data: &std::path::Path) -> Outcome {
    let database = data.join("registry.sqlite");
    match commandline::is_there(&database)? {
        false => Ok(()),
        true => Err(Failure::new(
            anyhow::anyhow!("{} has a registry of its own", data.display()),
            "name a folder of its own for this host",
        )),
    }
}

/// The time of this host, for tasks that renew.
pub(crate) fn now_of(clock: &ClockFloor) -> Option<OffsetDateTime> {
    let now = OffsetDateTime::now_utc();
    clock.check(now).is_ok().then_some(now)
}
