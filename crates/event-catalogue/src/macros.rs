//! Declarations of events and shared details.

/// `personal` after a field's name marks it.
macro_rules! is_personal {
    () => {
        false
    };
    (personal) => {
        true
    };
}

macro_rules! fields {
    ($( $(#[doc = $about:expr])+ $type:ty, $key:tt, ($($personal:ident)?); )*) => {
        &[$( $crate::Field {
            key: $key,
            kind: <$type as $crate::detail::Detail>::KIND,
            is_optional: <$type as $crate::detail::Detail>::IS_OPTIONAL,
            is_personal: $crate::macros::is_personal!($($personal)?),
            about: &[$($about),+],
        } ),*]
    };
}

/// A struct of details that several events share: `name: Type = "key" personal`.
macro_rules! details {
    ($(
        $(#[doc = $about:expr])+
        $name:ident { $( $(#[doc = $told:expr])+ $field:ident : $type:ty = $key:tt $($personal:ident)? ),* $(,)? }
    )*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[doc = $told])+ pub $field: $type ),* }

        impl $name {
            pub(crate) const CONTEXT: $crate::Context = $crate::Context {
                fields: <Self as $crate::Details>::FIELDS,
                rewrite: |from, to| {
                    <Self as $crate::Details>::of(from).map(|read| $crate::Details::add_to(read, to))
                },
            };
        }

        impl $crate::Details for $name {
            const FIELDS: &'static [$crate::Field] =
                $crate::macros::fields!($( $(#[doc = $told])+ $type, $key, ($($personal)?); )*);

            fn add_to(self, event: audit::Event) -> audit::Event {
                $( let event = $crate::detail::Detail::write(self.$field, $key, event); )*
                event
            }

            fn of(event: &audit::Event) -> Option<Self> {
                Some(Self { $( $field: $crate::detail::Detail::read($key, event)? ),* })
            }
        }
    )*};
}

macro_rules! entry {
    ($self:ty, $action:expr, [$($about:expr),+], [$($object:literal),+], [$($outcome:ident),+], $severity:ident, $ocsf:ident, [$($context:ident),*]) => {
        $crate::Entry {
            action: $action,
            about: &[$($about),+],
            objects: &[$($object),+],
            outcomes: &[$(audit::Outcome::$outcome),+],
            severity: $crate::Severity::$severity,
            ocsf: $crate::ocsf::$ocsf,
            fields: <$self as $crate::Recorded>::FIELDS,
            contexts: &[$($crate::context::$context::CONTEXT),*],
            rewrite: |from, to| {
                <$self as $crate::Recorded>::from_event(from).map(|read| $crate::Recorded::add_to(read, to))
            },
        }
    };
}

/// Events with fields of their own: `Name = "action" on [objects] ends [outcomes] Severity ACTIVITY with [contexts] { fields }`.
/// The first outcome is that of `into_event`.
macro_rules! events {
    ($(
        $(#[doc = $about:expr])+
        $name:ident = $action:tt on [$($object:literal),+] ends [$first:ident $(, $outcome:ident)*] $severity:ident $ocsf:ident
        with [$($context:ident),*]
        { $( $(#[doc = $told:expr])+ $field:ident : $type:ty = $key:tt $($personal:ident)? ),* $(,)? }
    )*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[doc = $told])+ pub $field: $type ),* }

        impl $name {
            pub const ACTION: &'static str = $action;
        }

        impl $crate::Recorded for $name {
            const OUTCOME: audit::Outcome = audit::Outcome::$first;
            const ENTRIES: &'static [$crate::Entry] = &[$crate::macros::entry!(
                Self, $action, [$($about),+], [$($object),+], [$first $(, $outcome)*], $severity, $ocsf, [$($context),*]
            )];
            const FIELDS: &'static [$crate::Field] =
                $crate::macros::fields!($( $(#[doc = $told])+ $type, $key, ($($personal)?); )*);

            fn action(&self) -> &'static str {
                Self::ACTION
            }

            fn add_to(self, event: audit::Event) -> audit::Event {
                $( let event = $crate::detail::Detail::write(self.$field, $key, event); )*
                event
            }

            fn from_event(event: &audit::Event) -> Option<Self> {
                if event.action != Self::ACTION {
                    return None;
                }
                Some(Self { $( $field: $crate::detail::Detail::read($key, event)? ),* })
            }
        }
    )*};
}

/// Several events with the same fields, told apart by an enumeration: as `events`, with `Name: Enumeration { Variant = "action" }`
/// in the place of the action.
macro_rules! family {
    (
        $(#[doc = $about:expr])+
        $name:ident : $kind:ident { $( $(#[doc = $each:expr])+ $variant:ident = $action:literal ),+ $(,)? }
        on [$($object:literal),+] ends [$first:ident $(, $outcome:ident)*] $severity:ident $ocsf:ident
        with $contexts:tt
        { $( $(#[doc = $told:expr])+ $field:ident : $type:ty = $key:tt $($personal:ident)? ),* $(,)? }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { pub kind: $kind, $( $(#[doc = $told])+ pub $field: $type ),* }

        #[doc = concat!("Events of [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $( $(#[doc = $each])+ $variant ),+ }

        impl $kind {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            #[must_use]
            pub const fn action(self) -> &'static str {
                match self { $( Self::$variant => $action ),+ }
            }

            /// The event with this action.
            #[must_use]
            pub fn of_action(action: &str) -> Option<Self> {
                match action { $( $action => Some(Self::$variant), )+ _ => None }
            }
        }

        impl $crate::Recorded for $name {
            const OUTCOME: audit::Outcome = audit::Outcome::$first;
            const ENTRIES: &'static [$crate::Entry] = $crate::macros::entries!(
                Self, [$( ($action, [$($each),+]) ),+], [$($object),+], [$first $(, $outcome)*], $severity, $ocsf, $contexts
            );
            const FIELDS: &'static [$crate::Field] =
                $crate::macros::fields!($( $(#[doc = $told])+ $type, $key, ($($personal)?); )*);

            fn action(&self) -> &'static str {
                self.kind.action()
            }

            fn add_to(self, event: audit::Event) -> audit::Event {
                $( let event = $crate::detail::Detail::write(self.$field, $key, event); )*
                event
            }

            fn from_event(event: &audit::Event) -> Option<Self> {
                let kind = $kind::of_action(&event.action)?;
                Some(Self { kind, $( $field: $crate::detail::Detail::read($key, event)? ),* })
            }
        }
    };
}

macro_rules! entries {
    ($self:ty, [$( ($action:expr, $about:tt) ),+], $objects:tt, $outcomes:tt, $severity:ident, $ocsf:ident, $contexts:tt) => {
        &[$( $crate::macros::entry!($self, $action, $about, $objects, $outcomes, $severity, $ocsf, $contexts) ),+]
    };
}

pub(crate) use {details, entries, entry, events, family, fields, is_personal};
