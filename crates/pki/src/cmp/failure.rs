//! Reasons of refusals, as the protocol names them.

use der::asn1::BitString;

/// A bit of PKIFailureInfo (RFC 9810, section 5.2.3); those that are sent from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureInfo {
    /// The algorithm is unknown or not accepted.
    BadAlg = 0,
    /// The protection does not verify.
    BadMessageCheck = 1,
    /// The transaction is not supported or not permitted.
    BadRequest = 2,
    /// The message's time is too far from ours.
    BadTime = 3,
    /// No such certificate, or not the sender's.
    BadCertId = 4,
    BadDataFormat = 5,
    /// The proof of possession failed.
    BadPop = 9,
    CertRevoked = 10,
    CertConfirmed = 11,
    /// A shared secret in the place of a signature, or the other way round.
    WrongIntegrity = 12,
    BadRecipientNonce = 13,
    BadSenderNonce = 18,
    /// The wanted certificate is not one to issue.
    BadCertTemplate = 19,
    SignerNotTrusted = 20,
    TransactionIdInUse = 21,
    UnsupportedVersion = 22,
    NotAuthorized = 23,
    /// Too much was asked for; later it may be done.
    SystemUnavail = 24,
    /// A fault on our side.
    SystemFailure = 25,
    /// The key has a certificate.
    DuplicateCertReq = 26,
}

impl FailureInfo {
    /// The bit string with this bit, without trailing zeros as DER wants of named bits.
    pub(super) fn to_bits(self) -> der::Result<BitString> {
        let bit = self as u8;
        let mut bytes = vec![0; usize::from(bit / 8)];
        bytes.push(0x80 >> (bit % 8));
        BitString::new(7 - bit % 8, bytes)
    }
}

#[cfg(test)]
mod tests {
    use der::Encode as _;

    use super::*;

    #[test]
    fn bits_are_as_openssl_writes_them() {
        let der = |failure: FailureInfo| hex::encode(failure.to_bits().unwrap().to_der().unwrap());
        assert_eq!(der(FailureInfo::BadAlg), "03020780");
        assert_eq!(der(FailureInfo::BadPop), "0303060040");
        assert_eq!(der(FailureInfo::NotAuthorized), "030400000001");
        assert_eq!(der(FailureInfo::DuplicateCertReq), "03050500000020");
    }
}
