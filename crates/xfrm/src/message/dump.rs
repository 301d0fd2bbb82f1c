//! What the kernel has under one number of an XFRM interface, and how it is removed.

use super::{
    HEADER_LEN, Message, NLM_F_ACK, NLMSG_ERROR, SA_INFO_LEN, XFRM_MSG_DELPOLICY, XFRM_MSG_DELSA,
    XFRM_MSG_GETSA, XFRM_MSG_NEWPOLICY, XFRM_MSG_NEWSA, XFRMA_IF_ID, find, interface, u16_at,
    u32_at,
};

// linux/netlink.h
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP: u16 = 0x300;

// linux/xfrm.h
const XFRM_MSG_GETPOLICY: u16 = 0x15;
/// Bytes of `xfrm_selector`.
const SELECTOR_LEN: usize = 56;
/// Bytes of `xfrm_userpolicy_info`.
const POLICY_INFO_LEN: usize = 168;
/// Offset of index and direction: behind selector, limits, use and priority.
const INDEX: usize = SELECTOR_LEN + 64 + 32 + 4;

/// A kind of things that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Associations,
    Policies,
}

/// Something in the kernel, in its own words for a request that removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    Association([u8; 24]),
    Policy([u8; 64]),
}

/// Asks for all of a kind; the answers about associations hold keys.
pub(crate) fn list(kind: Kind, sequence: u32) -> Message {
    let kind = match kind {
        Kind::Associations => XFRM_MSG_GETSA,
        Kind::Policies => XFRM_MSG_GETPOLICY,
    };
    Message::new(kind, NLM_F_DUMP, sequence)
}

/// Removes what was found.
pub(crate) fn delete(stale: &Stale, if_id: u32, sequence: u32) -> Message {
    let (kind, id) = match stale {
        Stale::Association(id) => (XFRM_MSG_DELSA, &id[..]),
        Stale::Policy(id) => (XFRM_MSG_DELPOLICY, &id[..]),
    };
    let mut message = Message::new(kind, NLM_F_ACK, sequence);
    message.bytes(id);
    if let Stale::Policy(_) = stale {
        interface(&mut message, Some(if_id));
    }
    message
}

/// One datagram of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// There is more to come.
    More,
    End,
    /// The system's number of an error.
    Failed(i32),
}

/// Reads a datagram of the answer; appends what has the number. None if it is not as it should be.
pub(crate) fn part(
    mut datagram: &[u8],
    sequence: u32,
    if_id: u32,
    found: &mut Vec<Stale>,
) -> Option<Part> {
    while !datagram.is_empty() {
        let len = usize::try_from(u32_at(datagram, 0)?).ok()?;
        let message = datagram.get(..len).filter(|_| len >= HEADER_LEN)?;
        if u32_at(message, 8)? == sequence {
            let payload = message.get(HEADER_LEN..)?;
            match u16_at(message, 4)? {
                NLMSG_DONE => return Some(Part::End),
                NLMSG_ERROR => {
                    let code = i32::from_ne_bytes(*payload.first_chunk()?);
                    return Some(Part::Failed(code.saturating_neg()));
                }
                XFRM_MSG_NEWSA if has(payload, SA_INFO_LEN, if_id) => {
                    found.push(Stale::Association(association(payload)?));
                }
                XFRM_MSG_NEWPOLICY if has(payload, POLICY_INFO_LEN, if_id) => {
                    found.push(Stale::Policy(policy(payload)?));
                }
                _ => {}
            }
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Part::More)
}

/// Whether the attributes behind `info` bytes name the number.
fn has(payload: &[u8], info: usize, if_id: u32) -> bool {
    let value = payload
        .get(info..)
        .and_then(|attributes| find(attributes, XFRMA_IF_ID));
    value.and_then(|value| u32_at(value, 0)) == Some(if_id)
}

/// From `xfrm_usersa_info`: destination, SPI, family, protocol.
fn association(payload: &[u8]) -> Option<[u8; 24]> {
    // `xfrm_id` behind the selector; the family behind statistics and the like.
    const FAMILY: usize = SELECTOR_LEN + 24 + 16 + 64 + 32 + 12 + 4 + 4;
    let id: &[u8; 21] = payload.get(SELECTOR_LEN..)?.first_chunk()?;
    let family: &[u8; 2] = payload.get(FAMILY..)?.first_chunk()?;
    let mut made = [0; 24];
    let (address_and_spi, rest) = made.split_first_chunk_mut::<20>()?;
    address_and_spi.copy_from_slice(id.first_chunk::<20>()?);
    let (place, rest) = rest.split_first_chunk_mut::<2>()?;
    *place = *family;
    *rest.first_mut()? = *id.last()?;
    Some(made)
}

/// From `xfrm_userpolicy_info`: selector, index, direction.
fn policy(payload: &[u8]) -> Option<[u8; 64]> {
    let selector: &[u8; SELECTOR_LEN] = payload.first_chunk()?;
    let index_and_direction: &[u8; 5] = payload.get(INDEX..)?.first_chunk()?;
    let mut made = [0; 64];
    let (place, rest) = made.split_first_chunk_mut::<SELECTOR_LEN>()?;
    *place = *selector;
    *rest.first_chunk_mut::<5>()? = *index_and_direction;
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{forwarded, sa};
    use super::super::{delete_policy, delete_sa, new_policy, new_sa};

    use super::*;

    /// The kernel describes things as it is told of them: the same structures and attributes.
    fn datagram(if_ids: [Option<u32>; 2]) -> Vec<u8> {
        let [of_sa, of_policy] = if_ids;
        let mut policy = forwarded();
        policy.if_id = of_policy;
        let sa = new_sa(&sa(), of_sa, 7).finish();
        let policy = new_policy(&policy, 7).finish();
        [&sa[..], &policy[..]].concat()
    }

    fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut message = Message::new(kind, 0, sequence);
        message.bytes(payload);
        message.finish().to_vec()
    }

    #[test]
    fn stale_entries_under_the_number_are_listed() {
        let mut found = Vec::new();
        let datagram = datagram([Some(3), Some(3)]);
        assert_eq!(part(&datagram, 7, 3, &mut found), Some(Part::More));
        let [association, of_policy] = &found[..] else {
            panic!("{found:?}");
        };
        // As if we had made the request from what we installed.
        let expected = delete_sa(&sa(), 9).finish();
        assert_eq!(delete(association, 3, 9).finish(), expected);
        let mut policy = forwarded();
        policy.if_id = Some(3);
        let expected = delete_policy(&policy, 9).finish();
        assert_eq!(delete(of_policy, 3, 9).finish(), expected);
    }

    #[test]
    fn stale_entries_under_other_numbers_are_skipped() {
        for if_ids in [[None, None], [Some(4), Some(2)]] {
            let mut found = Vec::new();
            assert_eq!(part(&datagram(if_ids), 7, 3, &mut found), Some(Part::More));
            assert_eq!(found, []);
        }
        let mut found = Vec::new();
        let datagram = datagram([Some(3), Some(3)]);
        assert_eq!(part(&datagram, 8, 3, &mut found), Some(Part::More));
        assert_eq!(found, [], "the answer to something else");
    }

    #[test]
    fn end_and_errors_of_a_dump_are_recognised() {
        let mut found = Vec::new();
        let mut read = |datagram: &[u8]| part(datagram, 7, 3, &mut found);
        assert_eq!(read(&message(NLMSG_DONE, 7, &[0; 4])), Some(Part::End));
        assert_eq!(read(&message(NLMSG_DONE, 6, &[0; 4])), Some(Part::More));
        let refused = message(NLMSG_ERROR, 7, &(-1_i32).to_ne_bytes());
        assert_eq!(read(&refused), Some(Part::Failed(1)));
    }

    #[test]
    fn truncated_datagram_is_no_answer() {
        let whole = datagram([Some(3), Some(3)]);
        for len in 1..whole.len() {
            let mut found = Vec::new();
            let read = part(&whole[..len], 7, 3, &mut found);
            assert!(
                read.is_none() || found.len() == 1,
                "{len}: {read:?} {found:?}"
            );
        }
    }
}
