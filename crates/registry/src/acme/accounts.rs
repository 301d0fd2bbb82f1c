//! Accounts: each bound to the invitation of one server.

use audit::{Actor, Event};
use event_catalogue::Recorded;
use event_catalogue::registry::{AccountEnded, AccountKeyChanged, AccountMade};
use pki::acme::{Binding, Jwk, KeyChange, NewAccount};
use store::sqlx::{self, Sqlite, SqlitePool, Transaction};
use time::OffsetDateTime;

use super::refusal::AcmeRefusal;
use super::state::binding_key;
use crate::holders;
use crate::invitations::{self, Forget, Stored};
use crate::{EnrolError, Registry, RegistryError};

/// Random bytes in the identifier of an account.
const ID_BYTES: usize = 12;
/// The code that a binding is held against where there is none.
const NOBODY: &str = "no code has such letters";

/// Letters of an identifier that wrong bindings are counted by; those of invitations are shorter.
const MAX_KID: usize = 64;

/// An account in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) id: String,
    pub(super) invitation: String,
    pub(super) holder: String,
    pub(super) key: Jwk,
    /// `valid`, `deactivated` by its owner, or `revoked` by the site.
    pub(super) state: String,
}

impl Account {
    /// Whoever acts by it, in events.
    pub(super) fn actor(&self) -> Actor {
        Actor::service(&self.holder)
    }

    fn event(&self, what: impl Recorded, now: OffsetDateTime) -> Event {
        what.into_event(now, self.actor(), format!("server/{}", self.holder))
    }
}

/// By which an account is looked for.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    Id(&'a str),
    Key(&'a Jwk),
}

/// An account, whatever its state is. One whose invitation became void has ended.
pub(super) async fn find(
    readers: &SqlitePool,
    by: By<'_>,
) -> Result<Option<Account>, RegistryError> {
    type Row = (String, String, String, String, String);
    let (id, thumbprint) = match by {
        By::Id(id) => (Some(id), None),
        By::Key(key) => (None, Some(key.thumbprint())),
    };
    let row: Option<Row> = sqlx::query_as(
        "SELECT a.id, a.invitation, a.holder, a.jwk,
             CASE WHEN i.id IS NULL THEN 'revoked' ELSE a.state END
         FROM acme_accounts a LEFT JOIN invitations i ON i.id = a.invitation
         WHERE a.id = ?1 OR a.thumbprint = ?2",
    )
    .bind(id)
    .bind(thumbprint)
    .fetch_optional(readers)
    .await?;
    let Some((id, invitation, holder, jwk, state)) = row else {
        return Ok(None);
    };
    let key = Jwk::parse(jwk.as_bytes()).map_err(|_| RegistryError::Corrupt("account's key"))?;
    Ok(Some(Account {
        id,
        invitation,
        holder,
        key,
        state,
    }))
}

impl Registry {
    /// The account of this key, made if there is none and it is bound to an invitation. Tells whether it is new.
    pub(super) async fn account_of_key(
        &self,
        key: &Jwk,
        asked: &NewAccount,
        url: &str,
        now: OffsetDateTime,
    ) -> Result<(Account, bool), EnrolError> {
        if let Some(account) = find(self.inner.sql.read(), By::Key(key)).await? {
            // Whoever has the key may know that it has ended.
            return match account.state.as_str() {
                "valid" => Ok((account, false)),
                _ => Err(AcmeRefusal::AccountEnded(account.state).into()),
            };
        }
        if asked.only_existing {
            return Err(AcmeRefusal::NoAccount.into());
        }
        let binding = asked.binding.as_ref();
        let binding = binding.ok_or(AcmeRefusal::BindingRequired)?;
        if binding.url != url {
            return Err(AcmeRefusal::BindingMismatch("address").into());
        }
        if binding.key != *key {
            return Err(AcmeRefusal::BindingMismatch("key").into());
        }
        let invitation = self.bound_to(binding).await?;
        self.check_usable(&invitation, now).await?;
        self.check_not_of_site(&invitation.names).await?;
        let account = self.open_account(&invitation, key, now).await?;
        Ok((account, true))
    }

    /// The invitation whose code made the binding. Only wrong ones are counted, of every name alike, as for EST.
    async fn bound_to(&self, binding: &Binding) -> Result<Stored, EnrolError> {
        let sealing = self.inner.acme.on()?.sealing();
        let readers = self.inner.sql.read();
        let found = invitations::sealed_of_server(readers, &binding.kid).await?;
        let (stored, code) = match found {
            Some((stored, sealed)) => {
                let code = sealing.unseal(&sealed, &stored.id, &stored.holder)?;
                (Some(stored), code)
            }
            None => (None, zeroize::Zeroizing::new(NOBODY.to_owned())),
        };
        let secret = binding_key(&code)?;
        let secret = pki::acme::from_base64url(&secret).map(zeroize::Zeroizing::new);
        let holds = secret.is_some_and(|secret| binding.verify(&secret));
        if let (true, Some(stored)) = (holds, stored.as_ref()) {
            return Ok(stored.clone());
        }
        let name: String = binding.kid.chars().take(MAX_KID).collect();
        self.count_wrong_code(&name)?;
        Err(match stored {
            Some(_) => EnrolError::WrongCode,
            None => EnrolError::Unauthorised,
        })
    }

    /// Makes the account, forgets the code, and ends the accounts that the server had: there is one at a time.
    async fn open_account(
        &self,
        invitation: &Stored,
        key: &Jwk,
        now: OffsetDateTime,
    ) -> Result<Account, EnrolError> {
        let mut bytes = [0; ID_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RegistryError::Random)?;
        let account = Account {
            id: hex::encode(bytes),
            invitation: invitation.id.clone(),
            holder: invitation.holder.clone(),
            key: key.clone(),
            state: "valid".to_owned(),
        };
        let mut tx = self.write(now).await?;
        let state = holders::state_in(&mut tx, invitation.authority, &invitation.holder).await?;
        holders::check_enrolled(invitation.authority, &invitation.holder, state)
            .map_err(EnrolError::Holder)?;
        // Somebody may have been quicker, or have voided it.
        let kept: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM invitations WHERE id = ? AND sealed IS NOT NULL)",
        )
        .bind(&invitation.id)
        .fetch_one(&mut **tx)
        .await?;
        if !kept {
            return Err(EnrolError::Unauthorised);
        }
        check_new_key(&mut tx, key).await?;
        // Of invitations that became void nothing was issued, and nothing can be.
        sqlx::query(
            "DELETE FROM acme_orders WHERE account IN (SELECT id FROM acme_accounts WHERE holder = ?1
                 AND invitation NOT IN (SELECT id FROM invitations))",
        )
        .bind(&account.holder)
        .execute(&mut **tx)
        .await?;
        sqlx::query(
            "DELETE FROM acme_accounts WHERE holder = ?1
             AND invitation NOT IN (SELECT id FROM invitations)",
        )
        .bind(&account.holder)
        .execute(&mut **tx)
        .await?;
        let former: Vec<String> = sqlx::query_scalar(
            "UPDATE acme_accounts SET state = 'revoked' WHERE holder = ? AND state = 'valid'
             RETURNING id",
        )
        .bind(&account.holder)
        .fetch_all(&mut **tx)
        .await?;
        sqlx::query(
            "INSERT INTO acme_accounts (id, invitation, holder, jwk, thumbprint, spki_sha256, state,
                 created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(&account.id)
        .bind(&account.invitation)
        .bind(&account.holder)
        .bind(key.canonical())
        .bind(key.thumbprint())
        .bind(key.spki_sha256())
        .bind(&account.state)
        .bind(now.unix_timestamp())
        .execute(&mut **tx)
        .await?;
        invitations::forget_sealed(&mut tx, Forget::Of(&invitation.id)).await?;
        let made = AccountMade {
            account: account.id.clone(),
            invitation: invitation.id.clone(),
            thumbprint: key.thumbprint(),
            ends: (!former.is_empty()).then(|| former.join(" ")),
        };
        tx.record(vec![account.event(made, now)]).await?;
        tx.commit().await?;
        Ok(account)
    }

    /// Ends an account by its owner's wish; its certificates stay.
    pub(super) async fn deactivate_account(
        &self,
        account: &Account,
        now: OffsetDateTime,
    ) -> Result<Account, EnrolError> {
        let mut tx = self.write(now).await?;
        let ended = sqlx::query(
            "UPDATE acme_accounts SET state = 'deactivated' WHERE id = ? AND state = 'valid'",
        )
        .bind(&account.id)
        .execute(&mut **tx)
        .await?;
        if ended.rows_affected() == 0 {
            return Err(AcmeRefusal::AccountEnded("ended".to_owned()).into());
        }
        let ended = AccountEnded {
            account: account.id.clone(),
        };
        let event = account.event(ended, now);
        tx.record(vec![event]).await?;
        tx.commit().await?;
        let state = "deactivated".to_owned();
        Ok(Account {
            state,
            ..account.clone()
        })
    }

    /// Gives an account another key, by both (RFC 8555, section 7.3.5).
    pub(super) async fn change_account_key(
        &self,
        account: &Account,
        change: &KeyChange,
        (url, address): (&str, &str),
        now: OffsetDateTime,
    ) -> Result<Account, EnrolError> {
        if change.url != url {
            return Err(AcmeRefusal::KeyChange("address").into());
        }
        if change.account != address {
            return Err(AcmeRefusal::KeyChange("account").into());
        }
        if change.old != account.key {
            return Err(AcmeRefusal::KeyChange("key").into());
        }
        let new = &change.new;
        if let Some(other) = find(self.inner.sql.read(), By::Key(new)).await? {
            return Err(AcmeRefusal::KeyOfOther { account: other.id }.into());
        }
        let mut tx = self.write(now).await?;
        check_new_key(&mut tx, new).await?;
        let changed = sqlx::query(
            "UPDATE acme_accounts SET jwk = ?, thumbprint = ?, spki_sha256 = ?
             WHERE id = ? AND thumbprint = ? AND state = 'valid'",
        )
        .bind(new.canonical())
        .bind(new.thumbprint())
        .bind(new.spki_sha256())
        .bind(&account.id)
        .bind(account.key.thumbprint())
        .execute(&mut **tx)
        .await?;
        if changed.rows_affected() == 0 {
            return Err(AcmeRefusal::KeyChange("key").into());
        }
        let changed = AccountKeyChanged {
            account: account.id.clone(),
            old: account.key.thumbprint(),
            new: new.thumbprint(),
        };
        tx.record(vec![account.event(changed, now)]).await?;
        tx.commit().await?;
        Ok(Account {
            key: new.clone(),
            ..account.clone()
        })
    }
}

/// Makes sure that no certificate and no account has this key.
async fn check_new_key(tx: &mut Transaction<'static, Sqlite>, key: &Jwk) -> Result<(), EnrolError> {
    let taken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM issued WHERE spki_sha256 = ?1)
             OR EXISTS (SELECT 1 FROM acme_accounts WHERE spki_sha256 = ?1)",
    )
    .bind(key.spki_sha256())
    .fetch_one(&mut **tx)
    .await?;
    match taken {
        true => Err(AcmeRefusal::KeyTaken.into()),
        false => Ok(()),
    }
}
