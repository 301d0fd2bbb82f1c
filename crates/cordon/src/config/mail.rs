//! `[mail]` of `cordon.toml`.

use std::path::PathBuf;

use lettre::Address;
use serde::{Deserialize, Serialize};

/// Relay for notices by mail.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mail {
    /// `host:port` of the SMTP relay; empty: no notices.
    pub(crate) relay: String,
    /// Address in the field From.
    pub(crate) from: String,
    pub(crate) security: Security,
    /// PEM file of the authorities that the relay's certificate may come from.
    pub(crate) authorities: PathBuf,
    /// Name to log in with; empty: no login.
    pub(crate) user: String,
    /// File with the password alone.
    pub(crate) password_file: PathBuf,
}

/// Protection of the connection to the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Security {
    /// TLS after STARTTLS, and nothing before it (RFC 3207).
    #[default]
    Starttls,
    /// TLS from the first byte (RFC 8314).
    Tls,
    /// No protection; to a relay on this host only.
    None,
}

impl Mail {
    /// Host and port of the relay, if one is set and has both.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        let (host, port) = self.relay.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .map_or(host, |host| host.trim_end_matches(']'));
        let port = port.parse().ok().filter(|port| *port != 0)?;
        (!host.is_empty()).then_some((host, port))
    }

    /// The first setting that makes no sense: its dotted name and what is wrong with it.
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        if self.relay.is_empty() {
            return None;
        }
        let Some((host, _)) = self.host_and_port() else {
            let problem = "must be like relay.example.org:587";
            return Some(("mail.relay", problem.to_owned()));
        };
        if self.from.parse::<Address>().is_err() || !self.from.is_ascii() {
            let problem = "must be an address like cordon@example.org";
            return Some(("mail.from", problem.to_owned()));
        }
        let here = matches!(host, "localhost" | "127.0.0.1" | "::1");
        if self.security == Security::None && !here {
            let problem = "may be \"none\" for a relay on this host only";
            return Some(("mail.security", problem.to_owned()));
        }
        if self.security != Security::None && self.authorities.as_os_str().is_empty() {
            let problem = "must name the PEM file of the relay's authority \
                 (/etc/ssl/certs/ca-certificates.crt for a public one)";
            return Some(("mail.authorities", problem.to_owned()));
        }
        if self.user.is_empty() != self.password_file.as_os_str().is_empty() {
            let problem = "and password_file go together";
            return Some(("mail.user", problem.to_owned()));
        }
        if !self.user.is_empty() && self.security == Security::None {
            let problem = "needs security = \"starttls\" or \"tls\"";
            return Some(("mail.user", problem.to_owned()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_settings_that_make_no_sense_are_named() {
        let good = Mail {
            relay: "relay.example.org:587".to_owned(),
            from: "cordon@example.org".to_owned(),
            authorities: "/etc/relay.pem".into(),
            ..Mail::default()
        };
        assert_eq!(good.problem(), None);
        assert_eq!(good.host_and_port(), Some(("relay.example.org", 587)));
        assert_eq!(Mail::default().problem(), None);
        type Change = fn(&mut Mail);
        let cases: [(&str, Change); 10] = [
            ("mail.relay", |mail| mail.relay = "relay.example.org".into()),
            ("mail.relay", |mail| {
                mail.relay = "relay.example.org:0".into()
            }),
            ("mail.relay", |mail| mail.relay = ":587".into()),
            ("mail.from", |mail| mail.from = "cordon".into()),
            ("mail.from", |mail| mail.from = "a@b\r\nBcc: c@d".into()),
            ("mail.security", |mail| mail.security = Security::None),
            ("mail.authorities", |mail| mail.authorities = PathBuf::new()),
            ("mail.user", |mail| mail.user = "cordon".into()),
            ("mail.user", |mail| mail.password_file = "/etc/p".into()),
            ("mail.user", |mail| {
                mail.relay = "[::1]:25".into();
                mail.security = Security::None;
                (mail.user, mail.password_file) = ("cordon".into(), "/etc/p".into());
            }),
        ];
        for (setting, change) in cases {
            let mut mail = good.clone();
            change(&mut mail);
            assert_eq!(
                mail.problem().map(|(name, _)| name),
                Some(setting),
                "{mail:?}"
            );
        }
        let local = Mail {
            relay: "[::1]:25".into(),
            security: Security::None,
            authorities: PathBuf::new(),
            ..good
        };
        assert_eq!(
            (local.problem(), local.host_and_port()),
            (None, Some(("::1", 25)))
        );
    }
}
