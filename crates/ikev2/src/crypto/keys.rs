//! Keys of IKE SAs and Child SAs (RFC 7296 §2.13, §2.14, §2.17, §2.18; RFC 9370 §2.2.2).

use offload::{KeyMaterial, Suite};
use zeroize::Zeroizing;

use super::exchange::Shared;
use super::prf::Prf;
use crate::select::IkeSuite;
use crate::types::{Nonces, SpiPair};

/// The secrets of one IKE SA.
pub struct IkeKeys {
    /// The pseudorandom function.
    pub prf: Prf,
    /// SK_d, from which Child SAs and rekeyed IKE SAs get theirs.
    pub sk_d: Zeroizing<Vec<u8>>,
    /// SK_ei and SK_ai: what the initiator protects with.
    pub initiator: KeyMaterial,
    /// SK_er and SK_ar.
    pub responder: KeyMaterial,
    /// SK_pi, for the initiator's proof of identity.
    pub sk_pi: Zeroizing<Vec<u8>>,
    /// SK_pr.
    pub sk_pr: Zeroizing<Vec<u8>>,
}

/// Keys as they were before a post-quantum preshared key.
pub struct Unmixed([Zeroizing<Vec<u8>>; 3]);

impl IkeKeys {
    /// Keys of a first IKE SA: SKEYSEED = prf(Ni | Nr, g^ir) (§2.14).
    pub fn initial(
        suite: &IkeSuite,
        shared: &[u8],
        nonces: &Nonces,
        spis: SpiPair,
    ) -> Option<Self> {
        let halves = [&nonces.initiator, &nonces.responder].map(|nonce| suite.prf.of_nonce(nonce));
        let key = Zeroizing::new(halves.concat());
        let skeyseed = suite.prf.compute(&key, &[shared]);
        Self::expand(suite, &skeyseed, nonces, spis)
    }

    /// Keys after an additional key exchange: SKEYSEED = prf(SK_d, SK(n) | Ni | Nr) (RFC 9370
    /// §2.2.2).
    pub fn updated(
        &self,
        suite: &IkeSuite,
        shared: &[u8],
        nonces: &Nonces,
        spis: SpiPair,
    ) -> Option<Self> {
        let parts = [
            shared,
            nonces.initiator.as_slice(),
            nonces.responder.as_slice(),
        ];
        let skeyseed = self.prf.compute(&self.sk_d, &parts);
        Self::expand(suite, &skeyseed, nonces, spis)
    }

    /// Keys of the IKE SA that replaces this one: SKEYSEED = prf(SK_d (old), g^ir | Ni | Nr) with the
    /// old pseudorandom function (§2.18); secrets after the first of `shared` come from further key
    /// exchanges, and behind the nonces (RFC 9370 §2.2.4).
    pub fn rekeyed(
        &self,
        suite: &IkeSuite,
        shared: &[Shared],
        nonces: &Nonces,
        spis: SpiPair,
    ) -> Option<Self> {
        let (first, further) = shared.split_first()?;
        let mut parts = vec![
            first.as_slice(),
            nonces.initiator.as_slice(),
            nonces.responder.as_slice(),
        ];
        parts.extend(further.iter().map(|shared| shared.as_slice()));
        let skeyseed = self.prf.compute(&self.sk_d, &parts);
        Self::expand(suite, &skeyseed, nonces, spis)
    }

    /// Keys of a resumed IKE SA: SKEYSEED = prf(SK_d (old), "Resumption" | Ni | Nr) (RFC 5723 §5.1).
    pub fn resumed(suite: &IkeSuite, sk_d: &[u8], nonces: &Nonces, spis: SpiPair) -> Option<Self> {
        let parts = [
            b"Resumption",
            nonces.initiator.as_slice(),
            nonces.responder.as_slice(),
        ];
        let skeyseed = suite.prf.compute(sk_d, &parts);
        Self::expand(suite, &skeyseed, nonces, spis)
    }

    /// Mixes a post-quantum preshared key into what authenticates and into what later keys derive from
    /// (RFC 8784 §3); gives back what was there before.
    pub fn mix(&mut self, ppk: &[u8]) -> Unmixed {
        let len = self.prf.output_len();
        let keys = [&mut self.sk_d, &mut self.sk_pi, &mut self.sk_pr];
        Unmixed(keys.map(|key| {
            let mixed = self.prf.plus(ppk, &[key], len);
            std::mem::replace(key, mixed)
        }))
    }

    /// Undoes [`Self::mix`]: the peer does without.
    pub fn unmix(&mut self, unmixed: Unmixed) {
        [self.sk_d, self.sk_pi, self.sk_pr] = unmixed.0;
    }

    fn expand(suite: &IkeSuite, skeyseed: &[u8], nonces: &Nonces, spis: SpiPair) -> Option<Self> {
        let (prf, encryption) = (suite.prf, suite.encryption.key_len());
        let integrity = suite.integrity.map_or(0, offload::Integrity::key_len);
        let lens = [
            prf.output_len(),
            integrity,
            integrity,
            encryption,
            encryption,
            prf.output_len(),
            prf.output_len(),
        ];
        let total = lens
            .iter()
            .fold(0, |sum: usize, len| sum.saturating_add(*len));
        let (spi_i, spi_r) = (spis.initiator.to_be_bytes(), spis.responder.to_be_bytes());
        let seed: [&[u8]; 4] = [
            nonces.initiator.as_slice(),
            nonces.responder.as_slice(),
            &spi_i,
            &spi_r,
        ];
        let stream = prf.plus(skeyseed, &seed, total);
        let mut rest = stream.as_slice();
        let mut next = |len| {
            let (head, tail) = rest.split_at_checked(len)?;
            rest = tail;
            Some(head)
        };
        let [sk_d, sk_ai, sk_ar, sk_ei, sk_er, sk_pi, sk_pr] = lens.map(&mut next);
        Some(Self {
            prf,
            sk_d: Zeroizing::new(sk_d?.to_vec()),
            initiator: KeyMaterial::new(sk_ei?, sk_ai?),
            responder: KeyMaterial::new(sk_er?, sk_ar?),
            sk_pi: Zeroizing::new(sk_pi?.to_vec()),
            sk_pr: Zeroizing::new(sk_pr?.to_vec()),
        })
    }
}

/// Keys of a Child SA, first those with which the exchange's initiator sends:
/// KEYMAT = prf+(SK_d, [g^ir] | Ni | Nr), with encryption before integrity (§2.17). Secrets after the
/// first of `shared` come from further key exchanges, and behind the nonces (RFC 9370 §2.2.4).
pub fn child_keys(
    keys: &IkeKeys,
    suite: Suite,
    shared: &[Shared],
    nonces: &Nonces,
) -> Option<(KeyMaterial, KeyMaterial)> {
    let encryption = suite.encryption().key_len();
    let integrity = suite.integrity().map_or(0, offload::Integrity::key_len);
    let one = encryption.saturating_add(integrity);
    let mut secrets = shared.iter().map(|shared| shared.as_slice());
    let mut seed = vec![
        secrets.next().unwrap_or_default(),
        &nonces.initiator,
        &nonces.responder,
    ];
    seed.extend(secrets);
    let stream = keys.prf.plus(&keys.sk_d, &seed, one.saturating_mul(2));
    let (initiator, responder) = stream.split_at_checked(one)?;
    let split = |half: &[u8]| {
        let (encryption, integrity) = half.split_at_checked(encryption)?;
        Some(KeyMaterial::new(encryption, integrity))
    };
    Some((split(initiator)?, split(responder)?))
}
