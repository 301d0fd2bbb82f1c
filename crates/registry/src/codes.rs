//! One-time codes, with which somebody enrols for the first time: of devices here, of others in `invitations`.

use audit::Actor;
use aws_lc_rs::digest;
use event_catalogue::Recorded as _;
use event_catalogue::registry::Invited;
use pki::clearance::Clearance;
use pki::issue::IssueError;
use pki::profile::CaKind;
use store::sqlx::{self, Sqlite, SqlitePool, Transaction};
use subtle::ConstantTimeEq;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use crate::holders::{self, HolderRefused, HolderState};
use crate::{EnrolError, Registry, RegistryError};

/// Random bytes in a code.
const CODE_BYTES: usize = 20;
/// Letters of a code: no vowels, so no words; no `l`, `o`, `0`, `1`, so no misreading. 32 of them.
const ALPHABET: &[u8; 32] = b"23456789bcdfghjkmnpqrstvwxzBCDFG";
/// Longest name of a device: the bound of CN (RFC 5280, `ub-common-name`).
const MAX_NAME_LEN: usize = 64;

/// A code to be handed to the device's installer; not stored anywhere, wiped on drop.
pub struct OneTimeCode(Zeroizing<String>);

impl OneTimeCode {
    /// The code in clear.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn generate() -> Result<Self, RegistryError> {
        let mut bytes = Zeroizing::new([0_u8; CODE_BYTES]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice()).map_err(|_| RegistryError::Random)?;
        // 5 of 8 bits of each byte: 100 bits in all, out of reach of guessing over the network
        // and, hashed without salt or stretching, of guessing offline.
        let letters = bytes
            .iter()
            .filter_map(|b| ALPHABET.get(usize::from(b & 31)));
        Ok(Self(Zeroizing::new(
            letters.map(|l| char::from(*l)).collect(),
        )))
    }
}

/// Rights of a valid code.
pub(crate) struct Grant {
    pub(crate) clearance: Clearance,
    /// Set if the code was used: for which key, and the certificate issued then.
    pub(crate) used: Option<(String, String)>,
}

pub(crate) fn check_device_name(name: &str) -> Result<(), RegistryError> {
    let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    // A leading hyphen would be an option of whatever the name is passed to.
    let plain = !name.starts_with('-') && name.bytes().all(letters);
    if name.is_empty() || name.len() > MAX_NAME_LEN || !plain {
        return Err(RegistryError::DeviceName(name.to_owned()));
    }
    Ok(())
}

pub(crate) fn verifier(device: &str, code: &str) -> digest::Digest {
    // The name is in, so that a stolen table row is of no use under another name. Neither holds
    // a colon.
    digest::digest(&digest::SHA256, format!("{device}:{code}").as_bytes())
}

impl Registry {
    /// Makes a code with which `device` may enrol once until `now + valid_for`; an earlier code
    /// for it becomes void. The certificate will carry `clearance`.
    ///
    /// # Errors
    /// [`RegistryError::DeviceName`], [`RegistryError::Issue`] for a clearance above the devices
    /// authority's bound, [`RegistryError::Audit`] or [`RegistryError::Store`].
    pub async fn create_code(
        &self,
        device: &str,
        clearance: Clearance,
        valid_for: Duration,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<OneTimeCode, RegistryError> {
        check_device_name(device)?;
        // Told now to whoever invites, not later to a device that cannot help it.
        if let Some(allowed) = self.issuing(CaKind::Devices)?.max_clearance()?
            && clearance > allowed
        {
            let requested = clearance;
            return Err(IssueError::ClearanceAboveAuthority { requested, allowed }.into());
        }
        let code = OneTimeCode::generate()?;
        let expires_at = now.saturating_add(valid_for).unix_timestamp();
        let mut tx = self.write(now).await?;
        if let Some(state) = holders::state_in(&mut tx, CaKind::Devices, device).await?
            && state != HolderState::Enrolled
        {
            return Err(HolderRefused {
                authority: CaKind::Devices,
                holder: device.to_owned(),
                state,
            }
            .into());
        }
        sqlx::query(
            "INSERT OR REPLACE INTO one_time_codes (device, verifier, clearance, expires_at)
             VALUES (?, ?, ?, ?)",
        )
        .bind(device)
        .bind(verifier(device, code.as_str()).as_ref())
        .bind(i64::from(clearance.level()))
        .bind(expires_at)
        .execute(&mut **tx)
        .await?;
        let invited = Invited {
            clearance: Some(clearance.level().into()),
            expires_at: Some(expires_at),
            ..Invited::default()
        };
        let event = invited.into_event(now, actor, format!("device/{device}"));
        tx.record(vec![event]).await?;
        tx.commit().await?;
        Ok(code)
    }

    /// Checks a code inside the transaction that will mark it used.
    pub(crate) async fn check_code(
        tx: &mut Transaction<'static, Sqlite>,
        device: &str,
        code: &str,
        now: OffsetDateTime,
    ) -> Result<Grant, EnrolError> {
        type Row = (Vec<u8>, i64, i64, Option<String>, Option<String>);
        let row: Option<Row> = sqlx::query_as(
            "SELECT verifier, clearance, expires_at, used_spki, used_serial
             FROM one_time_codes WHERE device = ?",
        )
        .bind(device)
        .fetch_optional(&mut **tx)
        .await?;
        let presented = verifier(device, code);
        let Some((stored, clearance, expires_at, used_spki, used_serial)) = row else {
            return Err(EnrolError::Unauthorised);
        };
        let matches: bool = stored.as_slice().ct_eq(presented.as_ref()).into();
        if !matches || now.unix_timestamp() >= expires_at {
            return Err(EnrolError::Unauthorised);
        }
        let clearance = u8::try_from(clearance)
            .ok()
            .and_then(|level| Clearance::try_from(level).ok())
            .ok_or(RegistryError::Corrupt("clearance"))?;
        Ok(Grant {
            clearance,
            used: used_spki.zip(used_serial),
        })
    }

    /// Whether a device of this name has this code, good or not: that it is the right one has been shown then.
    pub(crate) async fn is_device_code(
        readers: &SqlitePool,
        device: &str,
        code: &str,
    ) -> Result<bool, EnrolError> {
        let stored: Option<Vec<u8>> =
            sqlx::query_scalar("SELECT verifier FROM one_time_codes WHERE device = ?")
                .bind(device)
                .fetch_optional(readers)
                .await?;
        let presented = verifier(device, code);
        // Of the same length, so that both comparisons take the same time.
        let stored = stored.unwrap_or_else(|| vec![0; presented.as_ref().len()]);
        Ok(stored.as_slice().ct_eq(presented.as_ref()).into())
    }

    pub(crate) async fn mark_used(
        tx: &mut Transaction<'static, Sqlite>,
        device: &str,
        spki: &str,
        serial: &str,
    ) -> Result<(), RegistryError> {
        sqlx::query("UPDATE one_time_codes SET used_spki = ?, used_serial = ? WHERE device = ?")
            .bind(spki)
            .bind(serial)
            .bind(device)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_twenty_letters_and_differ() {
        let letters: BTreeSet<u8> = ALPHABET.iter().copied().collect();
        assert_eq!(letters.len(), 32);
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let code = OneTimeCode::generate().unwrap();
            assert_eq!(code.as_str().len(), 20);
            assert!(code.as_str().bytes().all(|b| letters.contains(&b)));
            assert!(seen.insert(code.as_str().to_owned()));
        }
    }

    #[test]
    fn device_names_are_plain() {
        check_device_name("camera-17").unwrap();
        check_device_name(&"x".repeat(64)).unwrap();
        for bad in [
            "",
            "Camera",
            "a:b",
            "a b",
            "kamera-ž",
            "../x",
            "-x",
            "--",
            &"x".repeat(65),
        ] {
            assert!(check_device_name(bad).is_err(), "{bad}");
        }
    }
}
