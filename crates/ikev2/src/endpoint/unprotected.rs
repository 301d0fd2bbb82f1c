//! Unprotected answers to messages for an IKE SA that is not there.
//!
//! Everybody on the path can send such messages, from any address, with the SPIs of an IKE SA that lives. One table
//! decides about all of them:
//!
//! | message | either SPI is of an IKE SA of ours | answer |
//! |---|---|---|
//! | response, or without an encrypted payload | | none (RFC 7296, section 2.21.4) |
//! | first exchange, or an SPI of zero | | none: nobody has an IKE SA by it |
//! | request | yes | none: what it speaks of lives, whichever flags it carries |
//! | request | no | INVALID_IKE_SPI, with the token of RFC 6290 where there is a secret |
//!
//! The Initiator flag says whose SPI is ours, and whoever spoofs a message chooses it. So the table looks up both: with
//! the flag turned round, the token of an IKE SA that lives would go to whoever asks, and end it at the peer.

use crate::wire::Header;

/// The answer to a message for an IKE SA that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unprotected {
    Nothing,
    /// INVALID_IKE_SPI, with a token if there is a secret.
    Gone,
}

impl Unprotected {
    /// Decides by the whole header; `is_ours` tells whether an SPI is that of an IKE SA here, in whichever state.
    pub(super) fn to(header: &Header, is_encrypted: bool, is_ours: impl Fn(u64) -> bool) -> Self {
        let spis = [header.spi_i, header.spi_r];
        if header.flags.response
            || !is_encrypted
            || header.exchange.is_first()
            || spis.contains(&0)
            || spis.into_iter().any(is_ours)
        {
            return Self::Nothing;
        }
        Self::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ExchangeType, Flags, PayloadType};

    const OURS: u64 = 7;
    const OTHER: u64 = 8;

    /// Walks every header that matters, and counts the answers.
    #[test]
    fn answer_needs_a_request_of_which_no_spi_is_ours() {
        let exchanges = [
            ExchangeType::IKE_SA_INIT,
            ExchangeType::IKE_SESSION_RESUME,
            ExchangeType::IKE_AUTH,
            ExchangeType::CREATE_CHILD_SA,
            ExchangeType::INFORMATIONAL,
            ExchangeType(250),
        ];
        let mut answered = 0;
        for exchange in exchanges {
            for bits in 0..8_u8 {
                for spi_i in [0, OURS, OTHER] {
                    for spi_r in [0, OURS, OTHER] {
                        let header = Header {
                            spi_i,
                            spi_r,
                            exchange,
                            flags: Flags {
                                initiator: bits & 1 != 0,
                                response: bits & 2 != 0,
                            },
                            message_id: 3,
                            first: PayloadType::NONE,
                        };
                        let answer = Unprotected::to(&header, bits & 4 != 0, |spi| spi == OURS);
                        let expected = bits & 6 == 4
                            && !exchange.is_first()
                            && (spi_i, spi_r) == (OTHER, OTHER);
                        assert_eq!(answer == Unprotected::Gone, expected, "{header:?} {bits}");
                        answered += u32::from(expected);
                    }
                }
            }
        }
        // Four exchanges, both values of the Initiator flag.
        assert_eq!(answered, 8);
    }
}
