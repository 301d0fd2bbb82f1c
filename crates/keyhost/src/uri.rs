//! Names of objects on tokens (RFC 7512).

use std::path::PathBuf;

/// Object on a token, and the module to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uri {
    /// The library (`module-path`), an absolute name.
    pub(crate) module: PathBuf,
    /// Label of the token.
    pub(crate) token: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) manufacturer: Option<String>,
    pub(crate) model: Option<String>,
    /// Number of the slot.
    pub(crate) slot: Option<u64>,
    /// Label of the object.
    pub(crate) object: Option<Vec<u8>>,
    pub(crate) id: Option<Vec<u8>>,
}

/// Scheme of all of them.
const SCHEME: &str = "pkcs11:";

impl Uri {
    /// Whether a text is meant to be one.
    pub(crate) fn is_one(text: &[u8]) -> bool {
        text.starts_with(SCHEME.as_bytes())
    }

    /// Reads one.
    ///
    /// # Errors
    /// A text for the operator.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or("it is no pkcs11: URI")?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let attributes = path.split(';').chain(query.split('&'));
        for attribute in attributes.filter(|attribute| !attribute.is_empty()) {
            let (name, value) = attribute
                .split_once('=')
                .ok_or_else(|| format!("{attribute:?} is no attribute"))?;
            uri.take(name, value)?;
        }
        match &uri {
            _ if !uri.module.is_absolute() => {
                Err("it needs `module-path`, the absolute name of the token's library".into())
            }
            _ if uri.object.is_none() && uri.id.is_none() => {
                Err("it needs `object` or `id`: which object on the token?".into())
            }
            _ => Ok(uri),
        }
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let octets = decoded(value).ok_or_else(|| format!("`{name}` has a wrong % in it"))?;
        let text = || {
            let text = String::from_utf8(octets.clone());
            text.map_err(|_| format!("`{name}` is no UTF-8"))
        };
        match name {
            "token" => self.token = Some(text()?),
            "serial" => self.serial = Some(text()?),
            "manufacturer" => self.manufacturer = Some(text()?),
            "model" => self.model = Some(text()?),
            "slot-id" => {
                let number = text()?.parse();
                self.slot = Some(number.map_err(|_| "`slot-id` is no number".to_owned())?);
            }
            "object" => self.object = Some(octets),
            "id" => self.id = Some(octets),
            "module-path" => self.module = text()?.into(),
            // The setting says what it is.
            "type" => {}
            "pin-value" | "pin-source" => {
                return Err(
                    "a PIN does not belong here: name its file in `passphrase_file`".into(),
                );
            }
            _ => return Err(format!("`{name}` is not known here")),
        }
        Ok(())
    }
}

/// Takes the percent signs away.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut octets = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        octets.extend(hex::decode(digits).ok()?);
        octets.extend(rest.as_bytes());
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkcs11_uri_names_token_and_object() {
        let uri = Uri::parse(
            "pkcs11:token=The%20card;serial=07;slot-id=3;object=officer;id=%01%ffA;type=private\
             ?module-path=/usr/lib/softhsm/libsofthsm2.so",
        );
        let expected = Uri {
            module: "/usr/lib/softhsm/libsofthsm2.so".into(),
            token: Some("The card".into()),
            serial: Some("07".into()),
            slot: Some(3),
            object: Some(b"officer".to_vec()),
            id: Some(vec![1, 0xff, b'A']),
            ..Uri::default()
        };
        assert_eq!(uri, Ok(expected));
        assert!(Uri::is_one(b"pkcs11:") && !Uri::is_one(b"gateway.key"));
    }

    #[test]
    fn malformed_pkcs11_uri_is_refused_with_a_reason() {
        for (text, why) in [
            ("file.key", "no pkcs11: URI"),
            ("pkcs11:object=a", "`module-path`"),
            ("pkcs11:object=a?module-path=lib.so", "`module-path`"),
            ("pkcs11:?module-path=/lib.so", "`object` or `id`"),
            ("pkcs11:object?module-path=/lib.so", "\"object\" is no"),
            ("pkcs11:object=%4?module-path=/lib.so", "wrong %"),
            ("pkcs11:object=%4g?module-path=/lib.so", "wrong %"),
            ("pkcs11:token=%ff;id=1?module-path=/lib.so", "no UTF-8"),
            ("pkcs11:slot-id=x;id=1?module-path=/lib.so", "no number"),
            ("pkcs11:id=1?module-path=/lib.so&pin-value=1", "PIN"),
            ("pkcs11:id=1?module-path=/lib.so&pin-source=f", "PIN"),
            ("pkcs11:id=1;x-other=1?module-path=/lib.so", "`x-other`"),
        ] {
            let error = Uri::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
