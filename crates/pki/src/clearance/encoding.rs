//! `Clearance` and `AuthorityClearanceConstraints` of RFC 5913, in DER.
//!
//! ```text
//! Clearance ::= SEQUENCE {
//!   policyId            OBJECT IDENTIFIER,
//!   classList           ClassList DEFAULT {unclassified},
//!   securityCategories  SET OF SecurityCategory OPTIONAL }
//! ClassList ::= BIT STRING { unmarked(0), unclassified(1), restricted(2),
//!                            confidential(3), secret(4), topSecret(5) }
//! AuthorityClearanceConstraints ::= SEQUENCE SIZE (1..MAX) OF Clearance
//! ```
//!
//! A level is written as the set of all classes up to it, because RFC 5913 (section 6) combines
//! holder and authorities by intersection. We read only such sets, of our own policy, and no
//! categories: what we do not understand must not widen what somebody may see.

use const_oid::ObjectIdentifier;
use der::asn1::{AnyRef, BitString};
use der::{Decode, Encode, Sequence};

use super::Clearance;

/// Most clearances read in one constraints extension.
const MAX_CONSTRAINTS: usize = 16;

/// Why a clearance could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClearanceError {
    /// Not the ASN.1 of RFC 5913, or not in DER.
    #[error("malformed clearance")]
    Malformed,
    /// The clearance is one of another organisation's security policy.
    #[error("clearance of unknown security policy {0}")]
    UnknownPolicy(ObjectIdentifier),
    /// The classes are not "everything up to a level", or security categories are present.
    #[error("clearance with classes or categories that have no level")]
    NotALevel,
}

#[derive(Sequence)]
struct ClearanceValue<'a> {
    policy_id: ObjectIdentifier,
    class_list: Option<BitString>,
    security_categories: Option<AnyRef<'a>>,
}

impl Clearance {
    /// Encodes the level as an RFC 5913 `Clearance` under the security policy `policy`.
    ///
    /// # Errors
    /// [`ClearanceError::Malformed`] if encoding fails.
    pub fn to_rfc5913(self, policy: ObjectIdentifier) -> Result<Vec<u8>, ClearanceError> {
        let value = ClearanceValue {
            policy_id: policy,
            class_list: self.class_list()?,
            security_categories: None,
        };
        value.to_der().map_err(|_| ClearanceError::Malformed)
    }

    /// Reads an RFC 5913 `Clearance` of the security policy `policy`.
    ///
    /// # Errors
    /// [`ClearanceError`], one variant per reason.
    pub fn from_rfc5913(der: &[u8], policy: ObjectIdentifier) -> Result<Self, ClearanceError> {
        let value = ClearanceValue::from_der(der).map_err(|_| ClearanceError::Malformed)?;
        if value.policy_id != policy {
            return Err(ClearanceError::UnknownPolicy(value.policy_id));
        }
        if value.security_categories.is_some() {
            return Err(ClearanceError::NotALevel);
        }
        for level in Self::ALL {
            if level.class_list()? == value.class_list {
                return Ok(level);
            }
        }
        Err(ClearanceError::NotALevel)
    }

    /// The classes up to this level; `None` stands for the default, which DER omits.
    fn class_list(self) -> Result<Option<BitString>, ClearanceError> {
        if self == Self::Unclassified {
            return Ok(None);
        }
        // Bit 0 is the most significant; classes occupy bits 1 to level + 1, and DER cuts the
        // zeros behind the last of them.
        let last_bit = self.level().saturating_add(1);
        let unused = 7_u8.saturating_sub(last_bit);
        let bits = 0b0111_1111_u8 & (0xff_u8 << unused);
        BitString::new(unused, [bits])
            .map(Some)
            .map_err(|_| ClearanceError::Malformed)
    }

    /// Encodes an `AuthorityClearanceConstraints` extension value allowing levels up to `self`.
    ///
    /// # Errors
    /// [`ClearanceError::Malformed`] if encoding fails.
    pub fn to_authority_constraints(
        self,
        policy: ObjectIdentifier,
    ) -> Result<Vec<u8>, ClearanceError> {
        let value = ClearanceValue {
            policy_id: policy,
            class_list: self.class_list()?,
            security_categories: None,
        };
        vec![value].to_der().map_err(|_| ClearanceError::Malformed)
    }

    /// Reads an `AuthorityClearanceConstraints` value: the highest level that the authority may
    /// grant under `policy`.
    ///
    /// # Errors
    /// [`ClearanceError`]; an extension that does not name `policy` grants nothing under it and is
    /// [`ClearanceError::UnknownPolicy`].
    pub fn from_authority_constraints(
        der: &[u8],
        policy: ObjectIdentifier,
    ) -> Result<Self, ClearanceError> {
        let values = Vec::<AnyRef<'_>>::from_der(der).map_err(|_| ClearanceError::Malformed)?;
        if values.is_empty() || values.len() > MAX_CONSTRAINTS {
            return Err(ClearanceError::Malformed);
        }
        let mut found = None;
        for value in values {
            let der = value.to_der().map_err(|_| ClearanceError::Malformed)?;
            match Self::from_rfc5913(&der, policy) {
                Ok(level) if found.is_none() => found = Some(level),
                // Two entries of one policy: we do not guess which is meant.
                Ok(_) => return Err(ClearanceError::Malformed),
                Err(ClearanceError::UnknownPolicy(_)) => {}
                Err(e) => return Err(e),
            }
        }
        found.ok_or(ClearanceError::UnknownPolicy(policy))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.99999.1.4");
    const OTHER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.99999.2");

    #[test]
    fn levels_round_trip() {
        for level in Clearance::ALL {
            let der = level.to_rfc5913(POLICY).unwrap();
            assert_eq!(Clearance::from_rfc5913(&der, POLICY), Ok(level));
            let der = level.to_authority_constraints(POLICY).unwrap();
            assert_eq!(
                Clearance::from_authority_constraints(&der, POLICY),
                Ok(level)
            );
        }
    }

    #[test]
    fn secret_is_the_set_of_four_classes() {
        let der = Clearance::Secret.to_rfc5913(POLICY).unwrap();
        // BIT STRING, 3 unused bits, unclassified | restricted | confidential | secret.
        assert!(der.ends_with(&[0x03, 0x02, 0x03, 0b0111_1000]));
    }

    #[test]
    fn default_is_omitted_and_must_be() {
        let der = Clearance::Unclassified.to_rfc5913(POLICY).unwrap();
        assert!(!der.contains(&0x03) || der.last() == Some(&0x04));
        let mut spelled_out = der.clone();
        spelled_out.extend([0x03, 0x02, 0x06, 0b0100_0000]);
        spelled_out[1] += 4;
        assert_eq!(
            Clearance::from_rfc5913(&spelled_out, POLICY),
            Err(ClearanceError::NotALevel)
        );
    }

    #[test]
    fn gaps_other_policies_and_categories_are_refused() {
        let gap = ClearanceValue {
            policy_id: POLICY,
            class_list: Some(BitString::new(3, [0b0000_1000]).unwrap()),
            security_categories: None,
        };
        assert_eq!(
            Clearance::from_rfc5913(&gap.to_der().unwrap(), POLICY),
            Err(ClearanceError::NotALevel)
        );
        let category = ClearanceValue {
            policy_id: POLICY,
            class_list: Clearance::Secret.class_list().unwrap(),
            security_categories: Some(AnyRef::new(der::Tag::Set, &[]).unwrap()),
        };
        assert_eq!(
            Clearance::from_rfc5913(&category.to_der().unwrap(), POLICY),
            Err(ClearanceError::NotALevel)
        );
        let der = Clearance::Secret.to_rfc5913(OTHER).unwrap();
        assert_eq!(
            Clearance::from_rfc5913(&der, POLICY),
            Err(ClearanceError::UnknownPolicy(OTHER))
        );
        let der = Clearance::Secret.to_authority_constraints(OTHER).unwrap();
        assert!(Clearance::from_authority_constraints(&der, POLICY).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Clearance::from_rfc5913(&bytes, POLICY);
            let _ = Clearance::from_authority_constraints(&bytes, POLICY);
        }
    }
}
