//! Numbers of approvals.

use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};
use time::Duration;

use crate::{Act, Rights};

/// Numbers of approvals by clearance, and the time for those that may follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Policy {
    approvals: [u8; Clearance::ALL.len()],
    confirm_within: Duration,
}

/// Why numbers are no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No act goes without an approval.
    #[error("{0} acts would need no approval; the least is one")]
    None(Clearance),
    /// A higher clearance is not easier to get.
    #[error("{0} acts would need fewer approvals than those of the level below")]
    Falls(Clearance),
    #[error("approvals that follow have from one hour to seven days, not {0} s")]
    ConfirmWithin(i64),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    approvals: [u8; Clearance::ALL.len()],
    confirm_within_seconds: i64,
}

impl Default for Policy {
    /// One approval up to level 2, two above; approvals that follow an emergency have a day.
    fn default() -> Self {
        Self {
            approvals: [1, 1, 1, 2, 2],
            confirm_within: Duration::DAY,
        }
    }
}

impl Policy {
    /// A policy with so many approvals for each level, lowest first.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn new(
        approvals: [u8; Clearance::ALL.len()],
        confirm_within: Duration,
    ) -> Result<Self, PolicyError> {
        let mut below = 0;
        for (clearance, wanted) in Clearance::ALL.into_iter().zip(approvals) {
            if wanted == 0 {
                return Err(PolicyError::None(clearance));
            }
            if wanted < below {
                return Err(PolicyError::Falls(clearance));
            }
            below = wanted;
        }
        if confirm_within < Duration::HOUR || confirm_within > Duration::WEEK {
            return Err(PolicyError::ConfirmWithin(confirm_within.whole_seconds()));
        }
        Ok(Self {
            approvals,
            confirm_within,
        })
    }

    /// Approvals that `act` needs in the end.
    ///
    /// Keys given out, what grants to many, and what makes somebody an approver need two at least, whatever their level.
    /// A person's certificate counts by the rights of the person, not by its own clearance alone: whoever has it acts in
    /// that name.
    #[must_use]
    pub fn approvals(&self, act: &Act) -> usize {
        self.approvals_with(act, act.rights())
    }

    /// The same if the person has `rights` by now.
    pub(crate) fn approvals_with(&self, act: &Act, rights: Option<&Rights>) -> usize {
        let of_act = act.clearance();
        let clearance = rights.map_or(of_act, |rights| rights.clearance.max(of_act));
        // The array has every level; the highest number stands in for one that it has not.
        let by_level = self.approvals.get(usize::from(clearance.level()));
        let by_level = by_level.copied().unwrap_or(u8::MAX);
        let least = match act {
            Act::RecoverKey { .. } | Act::AddAuthority { .. } | Act::ChangeProfile { .. } => 2,
            _ if act.makes_approver() || rights.is_some_and(Rights::approves) => 2,
            _ => 1,
        };
        // A password proves little, and whoever set it may be one of those who approve: one more looks at it.
        usize::from(by_level.max(least)) + usize::from(act.is_by_password())
    }

    /// Approvals that `act` needs before it is carried out.
    #[must_use]
    pub fn approvals_before(&self, act: &Act) -> usize {
        if act.is_emergency() {
            1
        } else {
            self.approvals(act)
        }
    }

    /// Approvals that an emergency needs in the end: a second person looks at it, whatever the level.
    #[must_use]
    pub fn confirmations(&self, act: &Act) -> usize {
        if act.is_emergency() {
            self.approvals(act).max(2)
        } else {
            self.approvals(act)
        }
    }

    /// Time for the approvals that may follow an emergency.
    #[must_use]
    pub const fn confirm_within(&self) -> Duration {
        self.confirm_within
    }
}

impl TryFrom<Stored> for Policy {
    type Error = PolicyError;

    fn try_from(stored: Stored) -> Result<Self, PolicyError> {
        Self::new(
            stored.approvals,
            Duration::seconds(stored.confirm_within_seconds),
        )
    }
}

impl From<Policy> for Stored {
    fn from(policy: Policy) -> Self {
        Self {
            approvals: policy.approvals,
            confirm_within_seconds: policy.confirm_within.whole_seconds(),
        }
    }
}
