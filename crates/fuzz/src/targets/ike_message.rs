//! IKEv2 messages: the outer chain, and chains as they come out of an Encrypted payload. What decodes
//! encodes, and decodes to the same.

use ikev2::wire::{Datagram, PayloadType, decode_chain, encode_chain, encode_clear};

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(input: &[u8]) {
    if let Ok(datagram) = Datagram::parse(input) {
        // The logging path must stand whatever a peer calls itself.
        let _ = format!("{datagram:?}");
        if datagram.encrypted.is_none() {
            let again = encode_clear(datagram.header, &datagram.clear);
            if again.len() == input.len() {
                assert_eq!(Datagram::parse(&again).unwrap(), datagram);
            }
        }
    }
    let Some((first, chain)) = input.split_first() else {
        return;
    };
    if let Ok(payloads) = decode_chain(PayloadType(*first), chain) {
        let mut again = Vec::new();
        let kind = encode_chain(&payloads, &mut again);
        // Attributes that we do not know are not kept, so the length tells whether all was.
        if again.len() == chain.len() {
            assert_eq!(decode_chain(kind, &again).unwrap(), payloads);
        }
    }
}
