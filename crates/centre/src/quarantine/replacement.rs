//! Replaced cameras: two people close the chain of a camera and begin a new epoch.
//!
//! A camera whose memory was replaced numbers its blocks from 1 again. Each of them contradicts the chain that the log has, as the
//! blocks of a thief with a copied key would. Only people can tell the two apart. Their statement is an event of the log: it names
//! the head of the closed chain. That chain takes only missing blocks that its own links confirm; all others have their place in the
//! new chain, or are forks. People release each block that waits in quarantine, as before.

use access::{Action, Context, Principal, Resource};
use audit::Event;
use event_catalogue::Recorded as _;
use event_catalogue::evidence::{EpochBegun, ReplacementProposed, ReplacementWithdrawn};
use evidence::chain::{MAX_EPOCHS, chain_name};
use pki::clearance::Clearance;
use serde::Serialize;
use time::OffsetDateTime;

use super::{QuarantineDesk, QuarantineError, check_reason};
use crate::ledger::ReplacementProposal;

/// A camera whose chain was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replaced {
    pub device: String,
    /// The epoch that begins.
    pub epoch: u64,
    /// Highest number of the closed chain.
    pub closed_head: Option<u64>,
}

impl QuarantineDesk {
    /// Proposes to close the chain of `device` and to begin a new epoch.
    ///
    /// # Errors
    /// [`QuarantineError`]; in particular [`QuarantineError::NoChain`] for a camera without blocks in its open epoch.
    pub async fn propose_replacement(
        &self,
        who: &Principal,
        device: &str,
        reason: &str,
    ) -> Result<(), QuarantineError> {
        check_reason(reason)?;
        let _turn = self.begin_step().await?;
        let event = self.permit_replacement(who, device).await?;
        self.next_epoch(device)?;
        if let Some(other) = self.replacement(device) {
            return Err(QuarantineError::Proposed {
                act: "replace",
                by: other.uid,
            });
        }
        let event = ReplacementProposed {}.by_permission(event);
        self.record(event.with_reason(reason)).await
    }

    /// Confirms the proposal of another person: the chain is closed, and the new epoch begins.
    ///
    /// # Errors
    /// [`QuarantineError`]; in particular for the person who proposed it.
    pub async fn confirm_replacement(
        &self,
        who: &Principal,
        device: &str,
    ) -> Result<Replaced, QuarantineError> {
        let _turn = self.begin_step().await?;
        let event = self.permit_replacement(who, device).await?;
        let proposal = self.proposed_replacement(device)?;
        if proposal.uid == who.uid() {
            return Err(QuarantineError::SamePerson);
        }
        let epoch = self.next_epoch(device)?;
        let closed = chain_name(device, epoch.saturating_sub(1));
        let head = self.ledger().chain_head(&closed);
        let begun = EpochBegun {
            epoch,
            closed_head: head.map(|head| head.sequence),
            closed_manifest_sha256: head
                .and_then(|head| head.manifest)
                .map(|hash| hash.to_string()),
            proposed_by: Some(proposal.uid),
        };
        let event = begun.by_permission(event).with_reason(&proposal.reason);
        self.record(event).await?;
        Ok(Replaced {
            device: device.to_owned(),
            epoch,
            closed_head: head.map(|head| head.sequence),
        })
    }

    /// Takes a proposal to replace a camera back.
    ///
    /// # Errors
    /// [`QuarantineError`].
    pub async fn withdraw_replacement(
        &self,
        who: &Principal,
        device: &str,
        reason: &str,
    ) -> Result<(), QuarantineError> {
        check_reason(reason)?;
        let _turn = self.begin_step().await?;
        let event = self.permit_replacement(who, device).await?;
        let proposal = self.proposed_replacement(device)?;
        let withdrawn = ReplacementWithdrawn {
            proposed_by: Some(proposal.uid),
        };
        let event = withdrawn.by_permission(event).with_reason(reason);
        self.record(event).await
    }

    /// User id of the person who proposed to replace `device`, if a proposal waits.
    #[must_use]
    pub fn replacement_proposer(&self, device: &str) -> Option<String> {
        self.replacement(device).map(|proposal| proposal.uid)
    }

    fn replacement(&self, device: &str) -> Option<ReplacementProposal> {
        self.ledger().replacement(device)
    }

    fn proposed_replacement(&self, device: &str) -> Result<ReplacementProposal, QuarantineError> {
        let proposal = self.replacement(device);
        proposal.ok_or_else(|| QuarantineError::NotProposed(format!("the chain of {device}")))
    }

    /// The epoch that would begin. A chain without blocks has nothing to close.
    fn next_epoch(&self, device: &str) -> Result<u64, QuarantineError> {
        let open = self.ledger().epoch(device);
        let chain = chain_name(device, open);
        if self.ledger().chain_head(&chain).is_none() {
            return Err(QuarantineError::NoChain(chain));
        }
        match open < MAX_EPOCHS {
            true => Ok(open.saturating_add(1)),
            false => Err(QuarantineError::TooManyEpochs(device.to_owned())),
        }
    }

    /// Asks the rules about the chain of a camera, as about a block that shows nothing. A refusal is recorded here.
    async fn permit_replacement(
        &self,
        who: &Principal,
        device: &str,
    ) -> Result<Event, QuarantineError> {
        let action = Action::QuarantineDecide;
        let unit = self.inner.units.of_device(device);
        // Nothing of the content is shown, and each block that waits is decided about by its own classification.
        let resource = Resource::block(device, unit, Clearance::Unclassified);
        let access = &self.inner.access;
        let decision = access.decide(who, action, &resource, &Context::default());
        let mut event = decision.event(OffsetDateTime::now_utc(), who, action, &resource);
        event.resource = format!("chain/{device}");
        if decision.allowed {
            return Ok(event);
        }
        self.record(event).await?;
        Err(QuarantineError::Denied {
            reasons: decision.reasons,
        })
    }
}
