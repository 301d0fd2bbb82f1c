//! The SMTP relay that carries notices on: its settings, and the way to a session.
//!
//! What an answer means depends on what was asked, not on its number: until the sender is named it is about the relay or its
//! settings, afterwards about the recipient.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use commandline::{Failure, OrHint as _, Outcome};
use keyhost::secret_file;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::mail::{Mail, Security, is_mail_address};
use crate::smtp::{Fault, Login, Patience, Session};

const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(10),
    command: Duration::from_secs(30),
    message: Duration::from_secs(120),
    whole: Duration::from_secs(180),
    quit: Duration::from_secs(3),
};
/// Addresses of the relay that are tried.
const ADDRESSES: usize = 4;
/// Largest file of authorities.
const MAX_AUTHORITIES: u64 = 4 << 20;

/// Why a notice did not get to the relay.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The relay refuses the recipient, or the mail for it.
    Refused(String),
    /// The relay takes no mail for this recipient now.
    Deferred(String),
    /// The relay fell silent, or was gone, after it knew the recipient: one of the two is the cause.
    Broken(String),
    /// The relay takes nothing now, by its answer or by silence.
    Relay(String),
}

impl SendError {
    fn of_recipient(fault: Fault) -> Self {
        match fault.code {
            Some(400..500) => Self::Deferred(fault.text),
            Some(500..600) => Self::Refused(fault.text),
            _ => Self::Broken(fault.text),
        }
    }
}

/// A mail that the relay has taken, and the session in which it did.
#[must_use = "note that the mail was sent, then end the session"]
pub(crate) struct Taken(Session);

impl Taken {
    /// Ends the session. Note before that the mail was sent: the relay need not answer here.
    pub(crate) async fn end(self) {
        self.0.quit().await;
    }
}

enum Protection {
    None,
    Starttls(Tls),
    Wrapped(Tls),
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// The relay of `[mail]`.
pub struct Relay {
    host: String,
    port: u16,
    from: String,
    protection: Protection,
    login: Option<Login>,
    patience: Patience,
}

impl Relay {
    /// The relay that the settings name; none without one.
    pub fn open(mail: &Mail) -> Outcome<Option<Self>> {
        let Some((host, port)) = mail.host_and_port() else {
            return Ok(None);
        };
        let protection = match mail.security {
            Security::None => Protection::None,
            Security::Starttls => Protection::Starttls(tls(host, &mail.authorities)?),
            Security::Tls => Protection::Wrapped(tls(host, &mail.authorities)?),
        };
        let login = if mail.user.is_empty() {
            None
        } else {
            Some(Login {
                user: mail.user.clone(),
                password: password(&mail.password_file)?,
            })
        };
        Ok(Some(Self {
            host: host.to_owned(),
            port,
            from: mail.from.clone(),
            protection,
            login,
            patience: PATIENCE,
        }))
    }

    pub(crate) fn from(&self) -> &str {
        &self.from
    }

    /// Hands one message to the relay for one recipient. The relay answers for it from then on.
    pub(crate) async fn send(&self, to: &str, text: &str) -> Result<Taken, SendError> {
        if !is_mail_address(to) {
            let text = "it is not of the form name@example.org".to_owned();
            return Err(SendError::Refused(text));
        }
        let of_relay = |fault: Fault| SendError::Relay(fault.text);
        let mut session = self.session().await.map_err(of_relay)?;
        session.sender(&self.from).await.map_err(of_relay)?;
        match session.mail(to, text).await {
            Ok(()) => Ok(Taken(session)),
            Err(fault) => {
                if fault.code.is_some() {
                    session.quit().await;
                }
                Err(SendError::of_recipient(fault))
            }
        }
    }

    /// A session in which the relay knows who sends.
    async fn session(&self) -> Result<Session, Fault> {
        let deadline = Instant::now() + self.patience.whole;
        let socket = self.connect(deadline).await?;
        let hello = match socket.local_addr().map(|address| address.ip()) {
            Ok(std::net::IpAddr::V6(address)) => format!("[IPv6:{address}]"),
            Ok(std::net::IpAddr::V4(address)) => format!("[{address}]"),
            Err(error) => return Err(Fault::new(format!("the connection broke: {error}"))),
        };
        let mut session = Session::over(socket, self.patience, deadline);
        if let Protection::Wrapped(tls) = &self.protection {
            session = session.secure(&tls.connector, tls.name.clone()).await?;
        }
        session.greeting().await?;
        if let Protection::Starttls(tls) = &self.protection {
            session.ask_for_tls(&hello).await?;
            session = session.secure(&tls.connector, tls.name.clone()).await?;
        }
        session.begin(&hello, self.login.as_ref()).await?;
        Ok(session)
    }

    async fn connect(&self, deadline: Instant) -> Result<TcpStream, Fault> {
        let place = format!("{}:{}", self.host, self.port);
        let until = deadline.min(Instant::now() + self.patience.command);
        let found = timeout_at(
            until,
            tokio::net::lookup_host((self.host.as_str(), self.port)),
        );
        let addresses: Vec<SocketAddr> = match found.await {
            Ok(Ok(addresses)) => addresses.take(ADDRESSES).collect(),
            Ok(Err(error)) => return Err(Fault::new(format!("{place}: {error}"))),
            Err(_) => {
                return Err(Fault::new(format!(
                    "{place}: no answer to the name's lookup"
                )));
            }
        };
        let mut last = Fault::new(format!("{place}: the name has no addresses"));
        for address in addresses {
            let until = deadline.min(Instant::now() + self.patience.connect);
            match timeout_at(until, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = Fault::new(format!("{address}: {error}")),
                Err(_) => last = Fault::new(format!("{address}: no answer to the connection")),
            }
        }
        Err(last)
    }
}

fn tls(host: &str, authorities: &Path) -> Outcome<Tls> {
    let hint = "name a PEM file with the certificates of the relay's authority";
    let what = || format!("mail.authorities: {}", authorities.display());
    let pem = secret_file::read_public(authorities, MAX_AUTHORITIES)
        .map_err(|problem| anyhow::anyhow!("mail.authorities: {problem}"))
        .or_hint("cannot read the relay's authorities", hint)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.or_hint(what(), hint)?;
        roots.add(certificate).or_hint(what(), hint)?;
    }
    if roots.is_empty() {
        let error = anyhow::anyhow!("{}: it has no certificate", what());
        return Err(Failure::new(error, hint));
    }
    let name = ServerName::try_from(host.to_owned());
    let name = name.or_hint("mail.relay", "name a host or an address")?;
    let connector = connector(roots).or_hint("mail.relay", "see the message")?;
    Ok(Tls { connector, name })
}

fn connector(roots: RootCertStore) -> Result<TlsConnector, rustls::Error> {
    let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The password of the relay's login: one line in a file that only its owner may read.
fn password(path: &Path) -> Outcome<Zeroizing<String>> {
    let hint = "write the password alone, as one line, into a file of the site's user: chmod 600";
    let bytes = secret_file::read(path, secret_file::SECRET_MAX)
        .map_err(|problem| anyhow::anyhow!("mail.password_file: {problem}"))
        .or_hint("cannot read the relay's password", hint)?;
    let what = || format!("mail.password_file: {}", path.display());
    let text = std::str::from_utf8(&bytes).or_hint(what(), hint)?;
    if text.is_empty() || text.chars().any(char::is_control) {
        let error = anyhow::anyhow!("{}: it is empty or has several lines", what());
        return Err(Failure::new(error, hint));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests;
