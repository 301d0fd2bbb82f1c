//! Outcomes of requests.

/// Outcome of a request, the low half of a descriptor's status word.
///
/// A number that is not listed survives decoding; a driver takes it for a broken device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// All outcomes with their names and meanings.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, stringify!($name), $text)),*];
        }
    };
}

statuses! {
    OK = 1, "The destination is written.";
    BAD_DESCRIPTOR = 2, "The descriptor's check value is wrong, or a reserved byte is not zero.";
    UNSUPPORTED = 3, "The device has no such operation, algorithm, mode or combination of them.";
    BAD_LENGTH = 4, "A length is zero, too large, or does not fit the others or the mode.";
    BAD_ADDRESS = 5, "A segment or list lies outside of registered memory, or may not be written.";
    BAD_LIST = 6, "A segment list is damaged, too long, loops, or contradicts the descriptor's lengths.";
    NO_KEY = 7, "The slot holds no key for this algorithm.";
    CORE_ALARM = 8, "The core detected an error in its own computation; nothing was written.";
    CORE_HUNG = 9, "The core did not end within its bound of cycles; nothing was written.";
    BAD_OPERAND = 10, "A number is out of range, even where it must not be, or a point is not on its curve.";
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match Self::ALL.iter().find(|(status, ..)| status == self) {
            Some((_, name, _)) => f.write_str(name),
            None => write!(f, "status {:#06x}", self.0),
        }
    }
}
