//! Transactions: none is begun twice, and some wait for their confirmation.

use std::collections::VecDeque;

use audit::Actor;
use pki::Certificate;
use pki::cmp::Mac;
use pki::profile::CaKind;
use store::sqlx;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::bounds::{CONFIRM_WITHIN, KEPT, MOST_KEPT, MOST_WAITING, MOST_WAITING_OF_ONE};
use super::refusal::CmpRefusal;
use crate::{EnrolError, Registry};

/// With what the answer is protected.
#[derive(Clone)]
pub(super) enum Kept {
    Secret { mac: Mac, secret: Zeroizing<String> },
    Signature,
}

/// A certificate that its holder has not confirmed.
pub(super) struct Waiting {
    pub(super) sender: String,
    pub(super) transaction: Vec<u8>,
    /// Ours, which the confirmation answers.
    pub(super) nonce: [u8; 16],
    /// The request's number.
    pub(super) id: i64,
    pub(super) certificate: Certificate,
    pub(super) authority: CaKind,
    pub(super) serial: String,
    pub(super) actor: Actor,
    /// The invitation whose code ends with it.
    pub(super) invitation: Option<String>,
    pub(super) until: OffsetDateTime,
    /// With what the confirmation is protected.
    pub(super) kept: Kept,
    /// Certificate of the sender, where that protects it.
    pub(super) signer: Option<Vec<u8>>,
}

/// Transactions that wait, the oldest first.
#[derive(Default)]
pub(super) struct Transactions(VecDeque<Waiting>);

impl Transactions {
    pub(super) fn add(&mut self, waiting: Waiting, now: OffsetDateTime) {
        self.0.retain(|one| one.until > now);
        let of_one = |one: &&Waiting| one.sender == waiting.sender;
        if self.0.iter().filter(of_one).count() >= MOST_WAITING_OF_ONE
            && let Some(oldest) = self.0.iter().position(|one| one.sender == waiting.sender)
        {
            self.0.remove(oldest);
        }
        if self.0.len() >= MOST_WAITING {
            self.0.pop_front();
        }
        self.0.push_back(waiting);
    }

    /// Those of this identifier, of whichever sender.
    pub(super) fn of(&self, transaction: &[u8], now: OffsetDateTime) -> Vec<&Waiting> {
        let of = |one: &&Waiting| one.transaction == transaction && one.until > now;
        self.0.iter().filter(of).collect()
    }

    /// Ends the wait of a transaction, if it waits.
    pub(super) fn take(&mut self, sender: &str, transaction: &[u8]) -> Option<Waiting> {
        let of = |one: &Waiting| one.sender == sender && one.transaction == transaction;
        let position = self.0.iter().position(of)?;
        self.0.remove(position)
    }
}

impl Waiting {
    pub(super) fn until(now: OffsetDateTime) -> OffsetDateTime {
        now.saturating_add(CONFIRM_WITHIN)
    }
}

impl Registry {
    /// Takes a message of a sender whose protection holds, unless it came before.
    pub(super) async fn begin_transaction(
        &self,
        sender: &str,
        transaction: &[u8],
        nonce: &[u8],
        now: OffsetDateTime,
    ) -> Result<(), EnrolError> {
        let (at, kept) = (now.unix_timestamp(), KEPT.whole_seconds());
        let mut tx = self.inner.sql.write().await?;
        // Those of a clock that was set back as well: their time is refused.
        sqlx::query("DELETE FROM cmp_transactions WHERE seen_at < ?1 - ?2 OR seen_at > ?1 + ?2")
            .bind(at)
            .bind(kept)
            .execute(&mut *tx)
            .await?;
        let (count, same, nonces): (i64, i64, i64) = sqlx::query_as(
            "SELECT count(*), count(*) FILTER (WHERE transaction_id = ?2),
                 count(*) FILTER (WHERE nonce = ?3) FROM cmp_transactions WHERE sender = ?1",
        )
        .bind(sender)
        .bind(transaction)
        .bind(nonce)
        .fetch_one(&mut *tx)
        .await?;
        if same > 0 {
            return Err(CmpRefusal::TransactionInUse.into());
        }
        if nonces > 0 {
            return Err(CmpRefusal::NonceInUse.into());
        }
        if count >= MOST_KEPT {
            return Err(CmpRefusal::TooMany { limit: MOST_KEPT }.into());
        }
        sqlx::query(
            "INSERT INTO cmp_transactions (sender, transaction_id, nonce, seen_at)
             VALUES (?, ?, ?, ?)",
        )
        .bind(sender)
        .bind(transaction)
        .bind(nonce)
        .bind(at)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
    use pki::key::{KeyAlgorithm, PrivateKey};
    use pki::name::Subject;
    use pki::profile::Profile;
    use time::Duration;

    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 12:00 UTC);

    fn certificate() -> Certificate {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let validity = Validity::starting(NOW, Duration::DAY);
        let root = CertificateRequest::new(Profile::Root, Subject::new("R"), key.spki(), validity);
        let arc = pki::oid::ExtensionArc::default();
        let root = CertificateAuthority::create_root(&root, key, arc).unwrap();
        root.certificate().clone()
    }

    fn waiting(certificate: &Certificate, sender: &str, number: usize) -> Waiting {
        Waiting {
            sender: sender.to_owned(),
            transaction: number.to_be_bytes().to_vec(),
            nonce: [0; 16],
            id: 0,
            certificate: certificate.clone(),
            authority: CaKind::Users,
            serial: String::new(),
            actor: Actor::device("camera-17"),
            invitation: None,
            until: Waiting::until(NOW),
            kept: Kept::Signature,
            signer: None,
        }
    }

    #[test]
    fn one_sender_takes_nobody_elses_place_and_all_have_a_bound() {
        let one = certificate();
        let of_one = |sender: &str, number: usize| waiting(&one, sender, number);
        let mut all = Transactions::default();
        all.add(of_one("camera-17", 0), NOW);
        for number in 1..100 {
            all.add(of_one("flood", number), NOW);
        }
        assert_eq!(all.0.len(), 1 + MOST_WAITING_OF_ONE);
        assert!(all.take("camera-17", &0_usize.to_be_bytes()).is_some());
        assert!(all.take("camera-17", &0_usize.to_be_bytes()).is_none());
        for number in 0..2 * MOST_WAITING {
            all.add(of_one(&number.to_string(), number), NOW);
        }
        assert_eq!(all.0.len(), MOST_WAITING);
        all.add(of_one("later", 0), NOW + CONFIRM_WITHIN);
        assert_eq!(all.0.len(), 1);
    }
}
