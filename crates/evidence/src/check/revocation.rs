//! Revocation at the time that counts for each signer.

use der::Document;
use pki::cert::Certificate;
use pki::crl::{self, CrlError, RevocationReason, VerifiedCrl};
use time::OffsetDateTime;

use super::error::{CheckError, malformed};
use super::folder::Folder;
use pki::name::shown;

/// Revocation lists, not yet verified: each is verified against the authority whose it should be.
pub(super) struct Lists {
    /// DER, and the time at which it must be in force.
    lists: Vec<(Vec<u8>, OffsetDateTime)>,
    exported_at: OffsetDateTime,
}

/// A signer with its path, leaf first, and the time at which it must not have been revoked.
pub(super) struct Role<'a> {
    pub(super) name: &'static str,
    pub(super) path: &'a [Certificate],
    pub(super) at: OffsetDateTime,
    /// When the signer says that it signed: what counts where its certificate was only superseded.
    pub(super) signed: Option<OffsetDateTime>,
}

impl Role<'_> {
    /// The time that a revocation of the signer's own certificate is held against. A certificate that was
    /// superseded is no doubt about its key, so a block that was sealed before may arrive after; any
    /// other revocation counts by a time that the signer does not choose.
    fn time_of_use(&self, reason: RevocationReason, is_signer: bool) -> OffsetDateTime {
        match self.signed {
            Some(signed) if is_signer && reason == RevocationReason::Superseded => {
                signed.min(self.at)
            }
            _ => self.at,
        }
    }
}

impl Lists {
    pub(super) fn read(
        folder: &Folder,
        extra: &[Vec<u8>],
        exported_at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Self, CheckError> {
        let mut lists = Vec::new();
        for name in folder.lists() {
            let pem = String::from_utf8(folder.read(name)?).map_err(|e| malformed(name, e))?;
            let (label, der) = Document::from_pem(&pem).map_err(|e| malformed(name, e))?;
            if label != "X509 CRL" {
                return Err(malformed(name, "not a revocation list"));
            }
            lists.push((der.as_bytes().to_vec(), exported_at));
        }
        lists.extend(extra.iter().map(|der| (der.clone(), now)));
        Ok(Self { lists, exported_at })
    }

    /// Refuses a signer who had been revoked, or of whom that cannot be known; notes a later
    /// revocation. Gives the time until which revocations are known.
    pub(super) fn decide(
        &self,
        role: &Role<'_>,
        notes: &mut Vec<String>,
    ) -> Result<OffsetDateTime, CheckError> {
        let mut until: Option<OffsetDateTime> = None;
        for (depth, (subject, issuer)) in role.path.iter().zip(role.path.iter().skip(1)).enumerate()
        {
            let lists = self.of(issuer)?;
            let newest = lists.iter().map(|list| list.window.this_update).max();
            let newest = newest.ok_or_else(|| CheckError::ListMissing {
                issuer: shown(&issuer.tbs_certificate.subject),
            })?;
            until = Some(until.map_or(newest, |u| u.min(newest)));
            let serial = subject.tbs_certificate.serial_number.as_bytes();
            let name = shown(&subject.tbs_certificate.subject);
            // A revocation that a later list takes back, or dates later, stays one: the first counts.
            let revoked = lists
                .iter()
                .flat_map(|list| &list.entries)
                .filter(|entry| trimmed(&entry.serial) == trimmed(serial))
                .map(|entry| {
                    let used = role.time_of_use(entry.revocation.reason, depth == 0);
                    (entry.revocation.at > used, entry.revocation.at, used)
                })
                .min();
            match revoked {
                Some((false, at, used)) => {
                    return Err(CheckError::Revoked {
                        role: role.name,
                        subject: name,
                        at,
                        used,
                    });
                }
                Some((true, at, _)) => {
                    let note = format!(
                        "certificate {name} of the {} signer was revoked at {at}, after its use",
                        role.name
                    );
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                None => {}
            }
        }
        Ok(until.unwrap_or(self.exported_at))
    }

    /// The lists that `issuer` signed, one of them in force at the export.
    fn of(&self, issuer: &Certificate) -> Result<Vec<VerifiedCrl>, CheckError> {
        let mut found = Vec::new();
        let mut in_force = false;
        for (der, at) in &self.lists {
            match crl::verify(der, issuer, *at) {
                Ok(list) => {
                    in_force |= *at == self.exported_at;
                    found.push(list);
                }
                Err(CrlError::UnknownIssuer { .. } | CrlError::Signature(_)) => {}
                Err(error) => return Err(malformed("a revocation list", error)),
            }
        }
        if !in_force {
            found.clear();
        }
        Ok(found)
    }
}

fn trimmed(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|b| **b == 0).count();
    serial.get(zeros..).unwrap_or_default()
}
