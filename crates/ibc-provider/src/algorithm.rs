//! The fifteen ciphers: five pairs of key size and rounds, three modes.

use std::ffi::{CStr, c_uint};

use ibc::Variant;

use crate::abi::evp_mode;

pub(crate) const COUNT: usize = 15;

/// A mode of operation (IBC specification, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Ecb,
    Cbc,
    Ctr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Algorithm {
    pub(crate) variant: Variant,
    pub(crate) mode: Mode,
}

impl Algorithm {
    /// The cipher with this number, from 0 to [`COUNT`] - 1.
    pub(crate) const fn numbered(number: usize) -> Self {
        let variant = match number / 3 {
            0 => Variant::Indect128,
            1 => Variant::Indect192,
            2 => Variant::Indect256,
            3 => Variant::Indect320,
            _ => Variant::Indect128Vh,
        };
        let mode = match number % 3 {
            0 => Mode::Ecb,
            1 => Mode::Cbc,
            _ => Mode::Ctr,
        };
        Self { variant, mode }
    }

    /// Name under which it is fetched.
    pub(crate) const fn name(self) -> &'static CStr {
        use Mode::{Cbc, Ctr, Ecb};
        match (self.variant, self.mode) {
            (Variant::Indect128, Ecb) => c"INDECT-128-ECB",
            (Variant::Indect128, Cbc) => c"INDECT-128-CBC",
            (Variant::Indect128, Ctr) => c"INDECT-128-CTR",
            (Variant::Indect192, Ecb) => c"INDECT-192-ECB",
            (Variant::Indect192, Cbc) => c"INDECT-192-CBC",
            (Variant::Indect192, Ctr) => c"INDECT-192-CTR",
            (Variant::Indect256, Ecb) => c"INDECT-256-ECB",
            (Variant::Indect256, Cbc) => c"INDECT-256-CBC",
            (Variant::Indect256, Ctr) => c"INDECT-256-CTR",
            (Variant::Indect320, Ecb) => c"INDECT-320-ECB",
            (Variant::Indect320, Cbc) => c"INDECT-320-CBC",
            (Variant::Indect320, Ctr) => c"INDECT-320-CTR",
            (Variant::Indect128Vh, Ecb) => c"INDECT-128-VH-ECB",
            (Variant::Indect128Vh, Cbc) => c"INDECT-128-VH-CBC",
            (Variant::Indect128Vh, Ctr) => c"INDECT-128-VH-CTR",
        }
    }

    pub(crate) const fn description(self) -> &'static CStr {
        match self.variant {
            Variant::Indect128 => c"INDECT Block Cipher, 8 rounds (research cipher, not secure)",
            Variant::Indect192 | Variant::Indect256 => {
                c"INDECT Block Cipher, 10 rounds (research cipher, not secure)"
            }
            Variant::Indect320 => c"INDECT Block Cipher, 12 rounds (research cipher, not secure)",
            Variant::Indect128Vh => c"INDECT Block Cipher, 14 rounds (research cipher, not secure)",
        }
    }

    /// Block size as EVP has it: 1 for what works like a stream cipher.
    pub(crate) const fn block_size(self) -> usize {
        match self.mode {
            Mode::Ecb | Mode::Cbc => ibc::BLOCK_SIZE,
            Mode::Ctr => 1,
        }
    }

    /// IV length that is advertised. Not the native 32: applications keep IVs in buffers of
    /// `EVP_MAX_IV_LENGTH` (16) bytes (section 8).
    pub(crate) const fn iv_len(self) -> usize {
        match self.mode {
            Mode::Ecb => 0,
            Mode::Cbc | Mode::Ctr => 16,
        }
    }

    /// The mode that is reported.
    pub(crate) const fn evp_mode(self, flavour: Flavour) -> c_uint {
        match (self.mode, flavour) {
            (Mode::Ecb, _) => evp_mode::ECB,
            (Mode::Cbc, Flavour::Plain) => evp_mode::CBC,
            (Mode::Cbc, Flavour::OpenVpn) => evp_mode::OFB,
            (Mode::Ctr, _) => evp_mode::CTR,
        }
    }
}

/// The module that this is, of two (section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Everything is reported as it is.
    Plain,
    /// CBC is reported as OFB and computed as ever: OpenVPN ends itself when a CBC cipher's block
    /// is not as long as its IV, and asks nothing of the kind of an OFB cipher.
    OpenVpn,
}

impl Flavour {
    /// The flavour of a module by its file's name or, where there is none, its provider's name:
    /// the same library is installed as `cordon_ibc.so` and `cordon_ibc_openvpn.so`.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        let stem = name.strip_suffix(b".so").unwrap_or(name);
        if stem.ends_with(b"_openvpn") {
            Self::OpenVpn
        } else {
            Self::Plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_those_of_variant_and_mode() {
        let mut names = BTreeSet::new();
        for number in 0..COUNT {
            let algorithm = Algorithm::numbered(number);
            let mode = format!("{:?}", algorithm.mode).to_uppercase();
            let expected = format!("{}-{mode}", algorithm.variant);
            assert_eq!(algorithm.name().to_str().unwrap(), expected);
            let rounds = format!(" {} rounds ", algorithm.variant.rounds());
            let description = algorithm.description().to_str().unwrap();
            assert!(description.contains(&rounds), "{expected}: {description}");
            names.insert(expected);
        }
        assert_eq!(names.len(), COUNT);
    }

    #[test]
    fn only_cbc_is_disguised_and_only_for_openvpn() {
        for number in 0..COUNT {
            let algorithm = Algorithm::numbered(number);
            let plain = algorithm.evp_mode(Flavour::Plain);
            let openvpn = algorithm.evp_mode(Flavour::OpenVpn);
            if algorithm.mode == Mode::Cbc {
                assert_eq!((plain, openvpn), (evp_mode::CBC, evp_mode::OFB));
            } else {
                assert_eq!(plain, openvpn);
            }
        }
    }

    #[test]
    fn the_flavour_follows_the_name() {
        for name in [
            "cordon_ibc_openvpn",
            "/usr/lib/ossl-modules/cordon_ibc_openvpn.so",
        ] {
            assert_eq!(Flavour::of_name(name.as_bytes()), Flavour::OpenVpn);
        }
        for name in [
            "cordon_ibc",
            "cordon_ibc.so",
            "/cordon_ibc_openvpn/x.so",
            "",
        ] {
            assert_eq!(Flavour::of_name(name.as_bytes()), Flavour::Plain);
        }
    }
}
