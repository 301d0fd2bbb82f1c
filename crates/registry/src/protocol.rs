//! By which protocol a request came.

/// A protocol beside EST, which events name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Acme,
    Cmp,
    Scep,
}

impl Protocol {
    /// Its name in events.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Acme => "acme",
            Self::Cmp => "cmp",
            Self::Scep => "scep",
        }
    }

    /// True where its messages are signed by themselves and travel over plain HTTP, so that whoever is on the way can keep one,
    /// and deliver it after a later one.
    pub(crate) const fn may_come_late(self) -> bool {
        matches!(self, Self::Cmp | Self::Scep)
    }
}
