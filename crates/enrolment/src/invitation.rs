//! The file by which a person enrols: the one-time code, and where and whom it is for.

use commandline::{Failure, OrHint as _, Outcome};
use pki::cert::fingerprint_sha256;
use pki::name::is_user_id;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Version of the format.
const VERSION: u32 = 1;
/// Hexadecimal digits of a SHA-256.
const FINGERPRINT: usize = 64;
const HINT: &str = "ask the registrar for the file of `cordon registry invite --complete`";

/// An invitation with everything that `cordon id enrol` needs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    version: u32,
    /// User id of the person.
    pub uid: String,
    /// The site's enrolment listener, as `HOST:PORT`.
    pub site: String,
    /// SHA-256 of the site's root certificate in DER, hexadecimal.
    pub root_sha256: String,
    /// The one-time code.
    pub code: Zeroizing<String>,
}

impl Invitation {
    /// Puts an invitation together.
    ///
    /// # Errors
    /// A user id, fingerprint or code that cannot be one.
    pub fn new(uid: &str, site: &str, root_sha256: &str, code: Zeroizing<String>) -> Outcome<Self> {
        let invitation = Self {
            version: VERSION,
            uid: uid.to_owned(),
            site: site.to_owned(),
            root_sha256: normalised(root_sha256),
            code,
        };
        invitation.check()?;
        Ok(invitation)
    }

    /// Reads the file of a registrar. `None`: the text is a code without anything beside it.
    ///
    /// # Errors
    /// Another version, an unknown field, or a value that cannot be right.
    pub(crate) fn read(text: &str) -> Outcome<Option<Self>> {
        if is_code(text.trim()) {
            return Ok(None);
        }
        let read: Result<Self, _> = toml::from_str(text);
        let mut invitation = read.map_err(|error| {
            let place = commandline::place(text, &error);
            let what = anyhow::anyhow!("{place}: {}", error.message());
            Failure::new(what.context("not an invitation"), HINT)
        })?;
        if invitation.version != VERSION {
            let what = anyhow::anyhow!("invitation of version {}", invitation.version);
            return Err(Failure::new(what, "use the same version of cordon"));
        }
        invitation.root_sha256 = normalised(&invitation.root_sha256);
        invitation.check()?;
        Ok(Some(invitation))
    }

    /// The file, for the person alone.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn to_text(&self) -> Outcome<Zeroizing<String>> {
        let fields = Zeroizing::new(toml::to_string(self).or_hint("invitation", "report this")?);
        Ok(Zeroizing::new(format!(
            "# Invitation of {uid}: until it is used, its owner can enrol as {uid}.\n\
             # On the person's computer: cordon id enrol FILE\n{fields}",
            uid = self.uid,
            fields = fields.as_str(),
        )))
    }

    /// Names the invitation without its code: a hash of site, person and code. The root's fingerprint stands for the site,
    /// because a site keeps it when its address changes.
    pub(crate) fn origin(&self) -> String {
        let fields = [self.root_sha256.as_str(), &self.uid, self.code.as_str()];
        let text = Zeroizing::new(fields.join("\n"));
        format!("invitation {}", fingerprint_sha256(text.as_bytes()))
    }

    fn check(&self) -> Outcome {
        if !is_user_id(&self.uid) {
            let what = anyhow::anyhow!("{:?} is not a user id", self.uid);
            return Err(Failure::new(what, HINT));
        }
        let is_hex = self.root_sha256.chars().all(|c| c.is_ascii_hexdigit());
        if self.root_sha256.len() != FINGERPRINT || !is_hex {
            let what = anyhow::anyhow!("{:?} is not a SHA-256 fingerprint", self.root_sha256);
            let hint = "it has 64 hexadecimal digits, with or without colons";
            return Err(Failure::new(what, hint));
        }
        if !is_code(&self.code) {
            let what = anyhow::anyhow!("the one-time code is empty, or has blanks inside");
            return Err(Failure::new(what, HINT));
        }
        Ok(())
    }
}

/// Whether a text can be a one-time code: one word of letters, digits and hyphens.
pub(crate) fn is_code(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// A fingerprint as people write it, with colons and capitals.
pub(crate) fn normalised(fingerprint: &str) -> String {
    let digits = fingerprint.chars().filter(|c| *c != ':' && *c != ' ');
    digits.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "AB:cd";

    fn invitation() -> Invitation {
        let code = Zeroizing::new("ABCD-2345".to_owned());
        Invitation::new("officer-9", "pki.example.org:8445", &ROOT.repeat(16), code).unwrap()
    }

    #[test]
    fn written_invitation_is_read_again() {
        let text = invitation().to_text().unwrap();
        let read = Invitation::read(&text).unwrap().unwrap();
        assert_eq!(
            (read.uid.as_str(), read.code.as_str()),
            ("officer-9", "ABCD-2345")
        );
        assert_eq!(read.root_sha256, "abcd".repeat(16));
        assert!(Invitation::read("ABCD-2345\n").unwrap().is_none());
    }

    #[test]
    fn changed_invitation_is_refused() {
        let text = invitation().to_text().unwrap();
        for (from, to) in [
            ("version = 1", "version = 2"),
            ("officer-9\"", "officer 9\\n\""),
            ("abcd\"", "abc\""),
            ("abcd\"", "abcx\""),
            ("ABCD-2345", ""),
            ("ABCD-2345", "ABCD 2345"),
            ("code =", "kode ="),
            ("code =", "more = 1\ncode ="),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, *text);
            assert!(Invitation::read(&changed).is_err(), "{changed}");
        }
        assert!(Invitation::read("").is_err());
    }
}
