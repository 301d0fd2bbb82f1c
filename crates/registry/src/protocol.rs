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
}
