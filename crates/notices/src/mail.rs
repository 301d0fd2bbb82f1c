//! `[mail]` of `cordon.toml`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Relay for notices by mail.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mail {
    /// `host:port` of the SMTP relay; empty: no notices.
    pub relay: String,
    /// Address in the field From.
    pub from: String,
    pub security: Security,
    /// PEM file of the authorities that the relay's certificate may come from.
    pub authorities: PathBuf,
    /// Name to log in with; empty: no login.
    pub user: String,
    /// File with the password alone.
    pub password_file: PathBuf,
}

/// Protection of the connection to the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
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
        let (host, port) = match self.relay.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once("]:")?;
                host.parse::<Ipv6Addr>().ok()?;
                (host, port)
            }
            None => self
                .relay
                .split_once(':')
                .filter(|(host, _)| is_host(host))?,
        };
        // `parse` alone would take a sign.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0)?;
        Some((host, port))
    }

    /// The first setting that makes no sense: its dotted name and what is wrong with it.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        if self.relay.is_empty() {
            return None;
        }
        let Some((host, _)) = self.host_and_port() else {
            let problem = "must be like relay.example.org:587 or [2001:db8::1]:587";
            return Some(("mail.relay", problem.to_owned()));
        };
        if !is_mail_address(&self.from) {
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
        // A NUL would end the name in the middle of AUTH PLAIN.
        if self.user.chars().any(char::is_control) {
            let problem = "must have no control characters";
            return Some(("mail.user", problem.to_owned()));
        }
        if !self.user.is_empty() && self.security == Security::None {
            let problem = "needs security = \"starttls\" or \"tls\"";
            return Some(("mail.user", problem.to_owned()));
        }
        None
    }
}

/// Whether this is a host's name (RFC 1123, with the underscore of other names) or its IPv4 address.
fn is_host(host: &str) -> bool {
    let labels = |host: &str| {
        host.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        })
    };
    // A name whose last label is a number would be looked up as an address by some.
    let number = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    host.len() <= 253 && labels(host) && (!number || host.parse::<Ipv4Addr>().is_ok())
}

/// Whether mail can go to this address or come from it: `dot-atom@host`, or an address in brackets behind the `@` (RFC 5321,
/// 4.1.2). Quoted local parts and other alphabets are refused: nothing of a command of SMTP can be in what is left.
pub(crate) fn is_mail_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let atom = |atom: &str| {
        let other = b"!#$%&'*+-/=?^_`{|}~";
        !atom.is_empty()
            && atom
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || other.contains(&byte))
    };
    let literal = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']'));
    let domain = match literal {
        Some(address) => match address.strip_prefix("IPv6:") {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => address.parse::<Ipv4Addr>().is_ok(),
        },
        None => is_host(domain) && domain.parse::<IpAddr>().is_err(),
    };
    local.len() <= 64 && local.split('.').all(atom) && domain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_that_is_no_host_with_a_port_is_refused() {
        let parsed = |relay: &str| {
            let relay = relay.to_owned();
            let mail = Mail {
                relay,
                ..Mail::default()
            };
            mail.host_and_port()
                .map(|(host, port)| (host.to_owned(), port))
        };
        for wrong in [
            "[::1:25",
            "::1:25",
            "::1]:25",
            "[::1]25",
            "[]:25",
            "[127.0.0.1]:25",
            "[relay]:25",
            "localhost:25:30",
            "a b:25",
            " 127.0.0.1:25",
            "127.0.0.1 :25",
            "127.0.0.1:25 ",
            "127.0.0.1:+25",
            "127.0.0.1:-1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "127.0.0.1.5:25",
            "relay:smtp",
            "re\tlay:25",
            "relay..org:25",
            ".relay:25",
            "-relay:25",
            "relay/x:25",
            "user@relay:25",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
        for (right, host, port) in [
            ("localhost:25", "localhost", 25),
            ("127.0.0.1:65535", "127.0.0.1", 65535),
            ("[2001:db8::1]:587", "2001:db8::1", 587),
            (
                "mail_out.relay-1.example.org:465",
                "mail_out.relay-1.example.org",
                465,
            ),
        ] {
            assert_eq!(parsed(right), Some((host.to_owned(), port)), "{right:?}");
        }
    }

    #[test]
    fn address_that_could_be_more_than_an_address_is_refused() {
        for wrong in [
            "",
            "a",
            "@b.org",
            "a@",
            "a@b.org>",
            "a b@c.org",
            "a@b.c>,<evil@x.y",
            "\"a\\\"<x@y>\"@example.org",
            "a..b@example.org",
            ".a@example.org",
            "a@b.org\r\nRCPT TO:<c@d.org>",
            "a@x@y.org",
            "ä@example.org",
            "x@[127.0.0.1].y",
            "x@127.0.0.1",
            "a\0@b.org",
        ] {
            assert!(!is_mail_address(wrong), "{wrong:?}");
        }
        for right in [
            "ana@example.org",
            "a.b+c@relay",
            "x!y%z@example.org",
            "-o@example.org",
            "x@[127.0.0.1]",
            "x@[IPv6:::1]",
        ] {
            assert!(is_mail_address(right), "{right:?}");
        }
    }

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
        let cases: [(&str, Change); 11] = [
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
                (mail.user, mail.password_file) = ("a\0b".into(), "/etc/p".into());
            }),
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
