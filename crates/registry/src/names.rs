//! Names of servers of the network: no two have one in common, nor with the site's own servers or its gateways, in whose
//! place they could answer otherwise.

use std::collections::{BTreeMap, BTreeSet};

use pki::cert;
use pki::clearance::Clearance;
use pki::name::{AltName, is_host_name};
use pki::profile::{CaKind, Profile};
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::{Registry, RegistryError};

/// Names of one server at most. Our choice: one that goes by more is several.
pub const MAX_SERVER_NAMES: usize = 16;
/// Longest first name of a server, which its certificate has as CN: the bound of that (RFC 5280, `ub-common-name`).
const MAX_FIRST_NAME: usize = 64;

/// Refuses names that no certificate of this profile is to have.
pub(crate) fn check_names(
    profile: Profile,
    holder: &str,
    names: &[String],
    clearance: Clearance,
) -> Result<(), RegistryError> {
    let refused = |why: String| Err(RegistryError::ServerNames(why));
    if profile != Profile::NetworkServer {
        return match names {
            [] => Ok(()),
            _ => refused(format!("a {profile} has none")),
        };
    }
    if clearance > Clearance::Unclassified {
        return Err(RegistryError::ServerClearance(clearance));
    }
    let different: BTreeSet<&String> = names.iter().collect();
    if names.is_empty() || names.len() > MAX_SERVER_NAMES || different.len() != names.len() {
        return refused(format!("there are 1 to {MAX_SERVER_NAMES} different ones"));
    }
    if let Some(bad) = names.iter().find(|name| !is_host_name(name)) {
        return refused(format!("{bad:?} is no name of one host in lower case"));
    }
    if names.first().is_none_or(|first| first != holder) || holder.len() > MAX_FIRST_NAME {
        return refused(format!(
            "the first is the server's own, of at most {MAX_FIRST_NAME} letters"
        ));
    }
    Ok(())
}

/// The names in a row of the database.
pub(crate) fn from_row(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The same for a row; nothing where there are none. No name of a host has a space.
pub(crate) fn to_row(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(" "))
}

/// Refuses names that another server of the network was invited by, or has.
pub(crate) async fn check_free(
    tx: &mut Transaction<'static, Sqlite>,
    holder: &str,
    names: &[String],
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    // A server that is gone, or whose keys are somebody else's, keeps nobody from its names.
    let taken: Vec<(String, String)> = sqlx::query_as(
        "SELECT i.holder_id, i.names FROM invitations i
         LEFT JOIN holders h ON h.authority = i.authority AND h.holder_id = i.holder_id
         WHERE i.names IS NOT NULL AND i.holder_id <> ?1
         AND (h.state IS NULL OR h.state IN ('enrolled', 'suspended'))
         AND (i.used_serial IS NOT NULL OR i.expires_at > ?2)",
    )
    .bind(holder)
    .bind(now.unix_timestamp())
    .fetch_all(&mut **tx)
    .await?;
    for (other, of_other) in taken {
        let mut of_other = of_other.split_ascii_whitespace();
        if let Some(name) = of_other.find(|name| names.iter().any(|mine| mine == name)) {
            let why = format!("{name} is a name of the server {other}");
            return Err(RegistryError::ServerNames(why));
        }
    }
    Ok(())
}

/// Names in certificates that were looked at, by profile. Certificates are never deleted, so each is read once in the life of
/// the process: what an order costs does not grow with what was ever issued.
#[derive(Default)]
pub(crate) struct KnownNames {
    /// The last row that was looked at.
    upto: i64,
    of: BTreeMap<String, BTreeSet<String>>,
}

/// Profiles whose names are kept apart.
const APART: [Profile; 2] = [Profile::Server, Profile::Gateway];

impl Registry {
    /// Refuses names of the site's own servers and of gateways.
    pub(crate) async fn check_not_of_site(&self, names: &[String]) -> Result<(), RegistryError> {
        self.learn_names().await?;
        match self.first_known(&APART, names.iter().cloned()) {
            Some(name) => {
                let why = format!("{name} is a name of the site's own servers or gateways");
                Err(RegistryError::ServerNames(why))
            }
            None => Ok(()),
        }
    }

    /// The first of the names that a gateway must not have: with a pattern, or a name of a server, it could answer in
    /// its place.
    pub(crate) async fn not_for_gateways(
        &self,
        names: &[AltName],
    ) -> Result<Option<String>, RegistryError> {
        self.learn_names().await?;
        let names: Vec<String> = names.iter().map(spelled).collect();
        if let Some(name) = self.first_known(&[Profile::Server], names.iter().cloned()) {
            return Ok(Some(name));
        }
        let invited: Vec<String> =
            sqlx::query_scalar("SELECT names FROM invitations WHERE names IS NOT NULL")
                .fetch_all(self.inner.sql.read())
                .await?;
        let invited: BTreeSet<&str> = invited
            .iter()
            .flat_map(|names| names.split_ascii_whitespace())
            .collect();
        let mut names = names.into_iter();
        Ok(names.find(|name| name.contains('*') || invited.contains(name.as_str())))
    }

    /// Reads the names in certificates that were issued since the last time.
    async fn learn_names(&self) -> Result<(), RegistryError> {
        let corrupt = || RegistryError::Corrupt("certificate");
        let upto = self.known_names().upto;
        let readers = self.inner.sql.read();
        // Rows of other kinds count as well, so that they are not looked at again.
        let last: Option<i64> = sqlx::query_scalar("SELECT max(rowid) FROM issued")
            .fetch_one(readers)
            .await?;
        let last = last.unwrap_or_default();
        let [server, gateway] = APART.map(|profile| profile.to_string());
        // By rows, and not by the index of the authority, which has all that were looked at before.
        let rows: Vec<(String, Vec<u8>)> = sqlx::query_as(
            "SELECT profile, certificate FROM issued
             WHERE rowid > ? AND rowid <= ? AND +authority = ? AND profile IN (?, ?)",
        )
        .bind(upto)
        .bind(last)
        .bind(CaKind::Services.name())
        .bind(server)
        .bind(gateway)
        .fetch_all(readers)
        .await?;
        let mut found = Vec::new();
        for (profile, der) in rows {
            let server = cert::from_der(&der).map_err(|_| corrupt())?;
            let names = cert::alt_names(&server).map_err(|_| corrupt())?;
            found.push((profile, names));
        }
        let mut known = self.known_names();
        for (profile, names) in found {
            let of = known.of.entry(profile).or_default();
            of.extend(names.iter().map(spelled));
        }
        known.upto = known.upto.max(last);
        Ok(())
    }

    /// The first of the names that a certificate of one of these profiles has.
    fn first_known(
        &self,
        profiles: &[Profile],
        mut names: impl Iterator<Item = String>,
    ) -> Option<String> {
        let known = self.known_names();
        let of = |profile: &Profile| known.of.get(&profile.to_string());
        let of: Vec<&BTreeSet<String>> = profiles.iter().filter_map(of).collect();
        names.find(|name| of.iter().any(|known| known.contains(name)))
    }

    fn known_names(&self) -> std::sync::MutexGuard<'_, KnownNames> {
        let known = &self.inner.known_names;
        known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn spelled(name: &AltName) -> String {
    match name {
        AltName::Dns(text) | AltName::Email(text) | AltName::Upn(text) => text.to_ascii_lowercase(),
        AltName::Ip(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: &[&str]) -> Result<(), RegistryError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let first = names.first().cloned().unwrap_or_default();
        check_names(
            Profile::NetworkServer,
            &first,
            &names,
            Clearance::Unclassified,
        )
    }

    #[test]
    fn servers_have_names_of_hosts_and_nobody_else_has_any() {
        checked(&["web.example"]).unwrap();
        let many: Vec<String> = (0..=MAX_SERVER_NAMES)
            .map(|n| format!("w{n}.example"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        checked(&many[..MAX_SERVER_NAMES]).unwrap();
        let long = format!("{}.example", "x".repeat(63));
        for bad in [
            &[][..],
            &many,
            &["web.example", "web.example"],
            &["*.example"],
            &["Web.example"],
            &["192.0.2.1"],
            &[&long],
        ] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
        let names = ["web.example".to_owned()];
        let other = check_names(
            Profile::NetworkServer,
            "db",
            &names,
            Clearance::Unclassified,
        );
        assert!(other.is_err());
        let level = check_names(
            Profile::NetworkServer,
            "web.example",
            &names,
            Clearance::Secret,
        );
        assert!(matches!(level, Err(RegistryError::ServerClearance(_))));
        let device = check_names(
            Profile::VpnDevice,
            "web.example",
            &names,
            Clearance::Unclassified,
        );
        assert!(device.is_err());
    }
}
