//! Padding that hides the sizes of packets.

use serde::{Deserialize, Deserializer};

/// Smallest padded size in bytes: fewer would hide nothing of any packet.
const LEAST: u16 = 64;

/// Traffic-flow confidentiality padding (RFC 4303 §2.7) of a child's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TfcPadding {
    /// Packets keep their sizes.
    #[default]
    Off,
    /// Inner packets are padded to as many bytes as the path takes.
    Mtu,
    /// Inner packets are padded to this many bytes.
    Bytes(u16),
}

impl TfcPadding {
    /// Bytes to which the data plane pads; it goes no further than the path takes.
    pub(crate) const fn size(self) -> Option<u16> {
        match self {
            Self::Off => None,
            Self::Mtu => Some(u16::MAX),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl<'de> Deserialize<'de> for TfcPadding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "\"off\", \"mtu\", or a number of bytes from 64")]
        enum Written {
            Word(Word),
            Bytes(u16),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            Off,
            Mtu,
        }
        match Written::deserialize(deserializer)? {
            Written::Word(Word::Off) => Ok(Self::Off),
            Written::Word(Word::Mtu) => Ok(Self::Mtu),
            Written::Bytes(bytes) if bytes >= LEAST => Ok(Self::Bytes(bytes)),
            Written::Bytes(_) => Err(serde::de::Error::custom(
                "padding to fewer than 64 bytes hides nothing",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_words_are_read() {
        #[derive(Deserialize)]
        struct Child {
            #[serde(default)]
            tfc_padding: TfcPadding,
        }
        let of = |text: &str| toml::from_str::<Child>(text).map(|child| child.tfc_padding);
        assert_eq!(of(""), Ok(TfcPadding::Off));
        assert_eq!(of("tfc_padding = \"off\""), Ok(TfcPadding::Off));
        assert_eq!(of("tfc_padding = \"mtu\""), Ok(TfcPadding::Mtu));
        assert_eq!(of("tfc_padding = 64"), Ok(TfcPadding::Bytes(64)));
        for bad in ["63", "0", "-1", "65536", "\"on\"", "true", "1.5"] {
            assert!(of(&format!("tfc_padding = {bad}")).is_err(), "{bad}");
        }
    }
}
