//! How certificates come about.

use audit::Event;
use event_catalogue::{Details as _, context};

/// How a certificate comes about, which decides what it takes the place of.
pub(crate) enum Origin {
    /// Ordered, beside whatever the holder has; on an approved request or directly.
    Order { request: Option<String> },
    /// For a service of the site itself.
    Own,
    /// For a person whom the first event of the log names.
    Founding,
    /// With a one-time code: takes the place of what earlier codes gave.
    Enrolment,
    /// With the code of an invitation, beside whatever the holder has.
    Invitation(Invited),
    /// With a certificate, whose place it takes.
    Renewal {
        lineage: String,
        /// Its serial number.
        renews: String,
        /// Where the first of the lineage came from one.
        invited: Option<Invited>,
    },
}

/// The invitation that a certificate rests on.
#[derive(Clone)]
pub(crate) struct Invited {
    pub(crate) id: String,
    /// The request that approved it.
    pub(crate) request: Option<String>,
}

impl Origin {
    pub(crate) const fn kind(&self) -> OriginKind {
        match self {
            Self::Order { request: Some(_) } => OriginKind::Request,
            Self::Order { request: None } => OriginKind::Order,
            Self::Own => OriginKind::Own,
            Self::Founding => OriginKind::Founding,
            Self::Enrolment => OriginKind::Enrolment,
            Self::Invitation(_) => OriginKind::Invitation,
            Self::Renewal { .. } => OriginKind::Renewal,
        }
    }

    /// Serial number of the certificate that it renews.
    pub(crate) fn renews(&self) -> Option<&str> {
        match self {
            Self::Renewal { renews, .. } => Some(renews),
            _ => None,
        }
    }

    /// The invitation that it rests on.
    pub(crate) fn invitation(&self) -> Option<&str> {
        Some(&self.invited()?.id)
    }

    /// Adds the request that the certificate rests on to its event.
    pub(crate) fn explained(&self, event: Event) -> Event {
        let request = match self {
            Self::Order { request } => request.as_ref(),
            _ => self.invited().and_then(|invited| invited.request.as_ref()),
        };
        context::Registry::of_request(request.cloned()).add_to(event)
    }

    const fn invited(&self) -> Option<&Invited> {
        match self {
            Self::Order { .. } | Self::Own | Self::Founding | Self::Enrolment => None,
            Self::Invitation(invited) => Some(invited),
            Self::Renewal { invited, .. } => invited.as_ref(),
        }
    }
}

/// An [`Origin`] by the name that it has in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginKind {
    Request,
    Order,
    Own,
    Founding,
    Enrolment,
    Invitation,
    Renewal,
}

impl OriginKind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Request,
        Self::Order,
        Self::Own,
        Self::Founding,
        Self::Enrolment,
        Self::Invitation,
        Self::Renewal,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Order => "order",
            Self::Own => "own",
            Self::Founding => "founding",
            Self::Enrolment => "enrolment",
            Self::Invitation => "invitation",
            Self::Renewal => "renewal",
        }
    }
}
