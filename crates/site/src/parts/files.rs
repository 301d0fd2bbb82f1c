//! Files that a site's configuration names.

use std::sync::Arc;

use pki::key::KeyList;
use time::OffsetDateTime;

use crate::config::Config;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Refuses settings that name files which cannot be used.
pub fn check(config: &Config, now: OffsetDateTime) -> Outcome {
    weak_keys(config)?;
    recovery(config, now)?;
    Ok(())
}

/// The keys of the lists in [`Registration::weak_keys`](crate::config::Registration).
pub(super) fn weak_keys(config: &Config) -> Outcome<Arc<KeyList>> {
    let list = KeyList::read(&config.registration.weak_keys);
    list.map(Arc::new).or_hint(
        "registration.weak_keys",
        "name lists in the format of Debian's openssl-blacklist",
    )
}

/// Longest file of recovery certificates in bytes.
const MAX_RECOVERY: u64 = 64 * 1024;

/// Time before the end of a recovery certificate from which a start warns of it. Our choice: another one is made in a ceremony.
const RECOVERY_ENDS: time::Duration = time::Duration::days(30);

/// The certificates of [`Registration::recovery`](crate::config::Registration).
pub(super) fn recovery(
    config: &Config,
    now: OffsetDateTime,
) -> Outcome<Option<Arc<[pki::Certificate]>>> {
    const HINT: &str = "name certificates (PEM) with RSA or elliptic-curve keys";
    let file = &config.registration.recovery;
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    let what = || format!("registration.recovery: {}", file.display());
    let text = crate::read::read_regular(file, MAX_RECOVERY, HINT)?;
    if String::from_utf8_lossy(&text).contains("PRIVATE KEY") {
        // The site would have what opens its own archive.
        let found = anyhow::anyhow!("there is a private key in it").context(what());
        return Err(Failure::new(
            found,
            "keep that elsewhere, and name a file with certificates only",
        ));
    }
    let chain = pki::file::load_chain(file).or_hint(what(), HINT)?;
    let certificates: Arc<[pki::Certificate]> = chain.certificates().into();
    // A certificate that cannot be encrypted to is found at the start, not with the first key.
    evidence::cms::encrypt(b"", &certificates).or_hint(what(), HINT)?;
    for certificate in certificates.iter() {
        let validity = &certificate.tbs_certificate.validity;
        let end = OffsetDateTime::from(validity.not_after.to_system_time());
        // Its key still opens what is there, but its keeper may be gone.
        if end < now.saturating_add(RECOVERY_ENDS) {
            let subject = pki::name::shown(&certificate.tbs_certificate.subject);
            tracing::warn!(%subject, %end, "a recovery certificate ends: see who has its key, and name another one");
        }
    }
    Ok(Some(certificates))
}
