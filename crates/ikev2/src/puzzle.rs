//! Puzzles (RFC 8019): under load a stranger works for its handshake before we do.
//!
//! ```text
//! IKE_SA_INIT: SA, KE, Ni                              ──►
//!                                                      ◄──  COOKIE, PUZZLE (which function, how many bits)
//! IKE_SA_INIT: COOKIE, puzzle solution, SA, KE, Ni     ──►
//! ```
//!
//! The solution is four keys with which the pseudorandom function turns the cookie into something that ends with so
//! many zero bits. Finding them takes 4 · 2^bits trials, checking them four. The cookie says how hard the puzzle was,
//! so nothing is remembered, and who has begun to work is not asked for more.

use crate::crypto::Prf;
use crate::select::prf_from_id;
use crate::wire::{Notify, NotifyType, Payload, TransformType};

/// Keys in a solution (RFC 8019 §7.1.2).
const KEYS: usize = 4;
/// Bytes of each key that we send.
const KEY: usize = 8;
/// Bytes of each key that we take: HMAC takes any, and longer ones than its block cost us more than the sender.
const KEY_MAX: usize = 64;
/// Hardest puzzle that an initiator solves: some four million trials, seconds for a small device.
pub const MAX_BITS: u8 = 20;
/// Trials for each key beyond the expected number, after which the solver gives up: one in four million is worse.
const PATIENCE: u64 = 16;

/// A puzzle to be solved ([`crate::Ask::Solve`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Puzzle {
    prf: Prf,
    bits: u8,
    cookie: Vec<u8>,
}

/// Four keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution(pub(crate) Vec<u8>);

/// Whether the function with this key gives enough zero bits at the end.
fn fits(prf: Prf, key: &[u8], cookie: &[u8], bits: u8) -> bool {
    let out = prf.compute(key, &[cookie]);
    let mut zeros: u32 = 0;
    for byte in out.iter().rev() {
        zeros = zeros.saturating_add(byte.trailing_zeros());
        if *byte != 0 {
            break;
        }
    }
    zeros >= u32::from(bits)
}

impl Puzzle {
    /// Number of zero bits.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Solves it; a second's work for a hard one. None after far more trials than it should take.
    pub fn solve(&self) -> Option<Solution> {
        let mut out = Vec::with_capacity(KEYS.saturating_mul(KEY));
        let expected = 1_u64.checked_shl(self.bits.into())?;
        let most = expected
            .saturating_mul(PATIENCE)
            .saturating_mul(u64::try_from(KEYS).ok()?);
        let found = (0..most).map(u64::to_be_bytes);
        let found = found.filter(|key| fits(self.prf, key, &self.cookie, self.bits));
        for key in found.take(KEYS) {
            out.extend(key);
        }
        (out.len() == KEYS.saturating_mul(KEY)).then_some(Solution(out))
    }
}

/// The notification that demands a solution: function and number of bits (RFC 8019 §8.1).
pub(crate) fn demand(prf: u16, bits: u8) -> Payload {
    let mut data = prf.to_be_bytes().to_vec();
    data.push(bits);
    Payload::Notify(Notify::new(NotifyType::PUZZLE).with_data(data))
}

/// Reads a responder's demand beside its cookie; none if it demands nothing that we understand.
pub(crate) fn demanded(payloads: &[Payload], cookie: &[u8]) -> Option<Puzzle> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::PUZZLE => {
            let [high, low, bits] = *notify.data.as_slice() else {
                return None;
            };
            let prf = prf_from_id(u16::from_be_bytes([high, low]))?;
            let cookie = cookie.to_vec();
            Some(Puzzle { prf, bits, cookie })
        }
        _ => None,
    })
}

/// The pseudorandom function for a stranger's puzzle: the first that it offers and we know (RFC 8019 §7.1.1.1).
pub(crate) fn function(payloads: &[Payload]) -> Option<(u16, Prf)> {
    let proposals = payloads.iter().find_map(|payload| match payload {
        Payload::Sa(proposals) => Some(proposals),
        _ => None,
    })?;
    let mut transforms = proposals.iter().flat_map(|proposal| &proposal.transforms);
    transforms.find_map(|transform| {
        let prf = (transform.kind == TransformType::PRF).then_some(transform.id)?;
        Some((prf, prf_from_id(prf)?))
    })
}

/// Whether a message has the solution of the puzzle that came with this cookie.
pub(crate) fn is_solved(payloads: &[Payload], cookie: &[u8], bits: u8) -> bool {
    let keys = payloads.iter().find_map(|payload| match payload {
        Payload::PuzzleSolution(keys) => Some(keys.as_slice()),
        _ => None,
    });
    let Some((keys, (_, prf))) = keys.zip(function(payloads)) else {
        return false;
    };
    let len = keys.len().checked_div(KEYS).unwrap_or(0);
    if len == 0 || len > KEY_MAX || len.saturating_mul(KEYS) != keys.len() {
        return false;
    }
    let keys: Vec<&[u8]> = keys.chunks(len).collect();
    let differ =
        |(index, key): (usize, &&[u8])| keys.iter().skip(index.saturating_add(1)).all(|k| k != key);
    keys.iter().enumerate().all(differ) && keys.iter().all(|key| fits(prf, key, cookie, bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::IkeProposal;

    fn message(prf: Prf, keys: Vec<u8>) -> Vec<Payload> {
        let offer = IkeProposal {
            encryption: vec![offload::Encryption::AesGcm128],
            integrity: vec![],
            prf: vec![prf],
            groups: vec![crate::crypto::Group::X25519],
            additional: vec![],
        };
        vec![
            Payload::PuzzleSolution(keys),
            Payload::Sa(vec![offer.to_wire(1, &[])]),
        ]
    }

    fn puzzle(prf: Prf, bits: u8) -> Puzzle {
        let cookie = vec![3; 34];
        Puzzle { prf, bits, cookie }
    }

    #[test]
    fn a_solution_solves_its_puzzle_and_no_harder_or_other_one() {
        for prf in [Prf::HmacSha256, Prf::HmacSha512] {
            let Solution(keys) = puzzle(prf, 9).solve().unwrap();
            assert_eq!(keys.len(), 32);
            let solved = |cookie: &[u8], bits| is_solved(&message(prf, keys.clone()), cookie, bits);
            assert!(solved(&[3; 34], 9) && solved(&[3; 34], 1));
            assert!(!solved(&[3; 34], 14), "harder");
            assert!(!solved(&[4; 34], 9), "another cookie");
            for at in 0..keys.len() {
                let mut changed = keys.clone();
                changed[at] ^= 0x10;
                assert!(!is_solved(&message(prf, changed), &[3; 34], 9), "byte {at}");
            }
        }
    }

    #[test]
    fn keys_differ_are_four_and_of_one_bounded_length() {
        let Solution(keys) = puzzle(Prf::HmacSha256, 4).solve().unwrap();
        let refused = |keys: Vec<u8>| !is_solved(&message(Prf::HmacSha256, keys), &[3; 34], 4);
        assert!(refused(keys[..8].repeat(4)), "one key four times");
        assert!(refused([&keys[..24], &keys[..8]].concat()));
        for len in [0, 1, 3, 31, 24, 40] {
            assert!(
                refused(keys.iter().copied().cycle().take(len).collect()),
                "{len}"
            );
        }
        assert!(refused(vec![0; KEY_MAX * 4 + 4]));
        assert!(!is_solved(&[], &[3; 34], 0), "no solution at all");
    }

    #[test]
    fn a_demand_is_understood_and_bounds_are_the_callers() {
        let payloads = [demand(5, 12)];
        assert_eq!(
            demanded(&payloads, &[3; 34]),
            Some(puzzle(Prf::HmacSha256, 12))
        );
        assert_eq!(
            demanded(&[demand(99, 12)], &[]),
            None,
            "an unknown function"
        );
        let short = Notify::new(NotifyType::PUZZLE).with_data([0, 5]);
        assert_eq!(demanded(&[Payload::Notify(short)], &[]), None);
        assert_eq!(puzzle(Prf::HmacSha256, 64).solve(), None, "without end");
    }
}
