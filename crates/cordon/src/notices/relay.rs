//! The SMTP relay that carries notices on.

use std::path::Path;
use std::time::Duration;

use lettre::address::Envelope;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};

use crate::config::{Mail, Security};
use crate::failure::{Failure, OrHint as _, Outcome};

/// Longest time for each command of a session, and for the connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest file of authorities or of a password.
const MAX_FILE: usize = 4 << 20;

/// Why a notice did not get to the relay.
pub(super) enum SendError {
    /// The relay does not take mail for this recipient.
    Recipient(String),
    /// The relay takes no mail for this recipient now.
    Deferred(String),
    /// The relay takes nothing now, by its answer or by silence.
    Relay(String),
}

/// The relay of `[mail]`.
pub(crate) struct Relay {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Address,
}

impl Relay {
    /// The relay that the settings name; none without one.
    pub(crate) fn open(mail: &Mail) -> Outcome<Option<Self>> {
        let Some((host, port)) = mail.host_and_port() else {
            return Ok(None);
        };
        let from = mail.from.parse::<Address>();
        let from = from.or_hint("mail.from", "set an address like cordon@example.org")?;
        let tls = match mail.security {
            Security::None => Tls::None,
            Security::Starttls => Tls::Required(parameters(host, &mail.authorities)?),
            Security::Tls => Tls::Wrapper(parameters(host, &mail.authorities)?),
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)
            .port(port)
            .tls(tls)
            .timeout(Some(PATIENCE));
        if !mail.user.is_empty() {
            let password = read("mail.password_file", &mail.password_file)?;
            let password = String::from_utf8(password)
                .or_hint("mail.password_file", "write the password alone, as text")?;
            let password = password.trim_end_matches(['\r', '\n']).to_owned();
            builder = builder.credentials(Credentials::new(mail.user.clone(), password));
        }
        let transport = builder.build();
        Ok(Some(Self { transport, from }))
    }

    pub(super) fn from(&self) -> &str {
        self.from.as_ref()
    }

    /// Hands one message to the relay for one recipient.
    pub(super) async fn send(&self, to: &str, text: &str) -> Result<(), SendError> {
        let refused = |error: &dyn std::fmt::Display| SendError::Recipient(error.to_string());
        let recipient = to.parse::<Address>().map_err(|error| refused(&error))?;
        let envelope = Envelope::new(Some(self.from.clone()), vec![recipient])
            .map_err(|error| refused(&error))?;
        let sent = self.transport.send_raw(&envelope, text.as_bytes()).await;
        sent.map(|_| ()).map_err(|error| {
            let text = error_report::Report(&error).to_string();
            // Codes of RFC 5321, 4.2.3, about a mailbox; others are about the session or the relay.
            match error.status().map(u16::from) {
                Some(550..=553) => SendError::Recipient(text),
                Some(450..=452) => SendError::Deferred(text),
                _ => SendError::Relay(text),
            }
        })
    }
}

fn parameters(host: &str, authorities: &Path) -> Outcome<TlsParameters> {
    let hint = "name a PEM file with the certificates of the relay's authority";
    let pem = read("mail.authorities", authorities)?;
    let what = || format!("mail.authorities: {}", authorities.display());
    let certificates = Certificate::from_pem(&pem).or_hint(what(), hint)?;
    if !pem.windows(11).any(|part| part == b"-----BEGIN ") {
        let error = anyhow::anyhow!("{}: there is no certificate in it", what());
        return Err(Failure::new(error, hint));
    }
    TlsParameters::builder(host.to_owned())
        .certificate_store(CertificateStore::None)
        .add_root_certificate(certificates)
        .build_rustls()
        .or_hint(what(), hint)
}

fn read(setting: &str, path: &Path) -> Outcome<Vec<u8>> {
    let what = || format!("{setting}: cannot read {}", path.display());
    let bytes = std::fs::read(path).or_hint(what(), "name a file that the site's user may read")?;
    if bytes.len() > MAX_FILE {
        let error = anyhow::anyhow!("{}: it has more than {MAX_FILE} bytes", what());
        return Err(Failure::new(error, "name the right file"));
    }
    Ok(bytes)
}
