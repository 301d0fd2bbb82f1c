//! How both sides of a connection prove who they are, with the files that hold it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ikev2::config::{
    ClientMethod, Credential, KeyKind, LocalAuth, Ppk, Psk, RemoteAuth, ServerMethod,
};
use ikev2::wire::{IdType, Identification};
use pki::PrivateKey;
use rustls_pki_types::ServerName;
use x509_cert::Certificate;
use zeroize::Zeroizing;

use super::{PlanError, Reader, chain, wrong};
use crate::ike::config::{EapConfig, EapMethod, LoginConfig};
use crate::ike::eap_tls::{self, Way};
use crate::ike::identity;
use crate::ike::signer::SigningKey;
use crate::ike::trust::Trust;
use crate::ike::users::Users;

/// Bytes of a shared secret at least: shorter ones are guessed from one recorded handshake.
const SECRET_MIN: usize = 12;
/// Bytes of a post-quantum preshared key at least (RFC 8784 §5.1).
const PPK_MIN: usize = 32;
/// Bytes of a file with a secret at most.
const SECRET_MAX: u64 = 16 * 1024;
/// Bytes of a file with users at most.
const USERS_MAX: u64 = 4 * 1024 * 1024;

/// Both sides' proofs, and what is needed to give ours.
pub(super) struct Proofs {
    pub(super) local: LocalAuth,
    pub(super) remote: RemoteAuth,
    /// Our certificate.
    pub(super) own: Option<Certificate>,
    /// Its key.
    pub(super) key: Option<SigningKey>,
    /// Passwords: those of peers, or ours.
    pub(super) users: Users,
    /// Where TLS finds keys and trust.
    pub(super) way: Way,
}

/// Our certificate as it is sent, and its key.
struct Own {
    certificate: Certificate,
    chain: Vec<Vec<u8>>,
    key: SigningKey,
}

impl Own {
    fn kind(&self) -> KeyKind {
        self.key.kind()
    }
}

impl Reader<'_> {
    /// Both sides' proofs. `peer` is who the peer must be, if it must be somebody.
    pub(super) fn proofs(
        &mut self,
        trust: Option<&Trust>,
        peer: Option<&Identification>,
    ) -> Result<Proofs, PlanError> {
        if let Some(file) = &self.config.psk_file {
            let secret = self.secret(file)?;
            if secret.len() < SECRET_MIN {
                return Err(self.wrong(format!(
                    "the secret in {} has less than {SECRET_MIN} bytes",
                    file.display()
                )));
            }
            let psk = Psk::new(&secret);
            return Ok(Proofs {
                local: LocalAuth::Psk(psk.clone()),
                remote: RemoteAuth::Psk(psk),
                own: None,
                key: None,
                users: Users::default(),
                way: Way::default(),
            });
        }
        let way = Way::default();
        let mut users = Users::default();
        let passwords = |eap: &EapConfig| eap.methods == [EapMethod::MsChapV2];
        let authorities = match trust {
            Some(trust) => trust.key_hashes(),
            // Peers with passwords have no certificates.
            None if self.config.eap.as_ref().is_some_and(passwords) => Vec::new(),
            None => return Err(self.wrong("certificates need [trust]: whose are believed?")),
        };
        // Whoever was let in by an authority that is gone must come again.
        for authority in &authorities {
            self.seen.update(authority);
        }
        let own = match (&self.config.certificate, &self.config.key) {
            (Some(certificate), Some(key)) => Some(self.own(certificate, key)?),
            _ => None,
        };
        let local = match (&self.config.login, &own) {
            (Some(login), own) => {
                let (local, ourselves) = self.login(login, own.as_ref(), &way, peer)?;
                users = ourselves;
                local
            }
            (None, Some(own)) => LocalAuth::Certificates(vec![Credential {
                chain: own.chain.clone(),
                key: own.kind(),
                authorities: vec![],
                ocsp: None,
            }]),
            (None, None) => return Err(self.wrong("`certificate` and `key` go together")),
        };
        let remote = match (&self.config.eap, &own) {
            (Some(eap), Some(own)) => {
                let (remote, all) = self.eap(eap, own, &way)?;
                users = all;
                remote
            }
            (Some(_), None) => return Err(self.wrong("`eap` needs `certificate` and `key`")),
            (None, _) => RemoteAuth::Certificate {
                authorities,
                ocsp: false,
            },
        };
        let (certificate, key) = own.map(|own| (own.certificate, own.key)).unzip();
        Ok(Proofs {
            local,
            remote,
            own: certificate,
            key,
            users,
            way,
        })
    }

    fn own(&mut self, certificate: &Path, key: &Path) -> Result<Own, PlanError> {
        let chain = chain(&self.folder.join(certificate), &self.place)?;
        chain.ders().iter().for_each(|der| self.seen.update(der));
        let key = SigningKey::new(self.key(key)?);
        let own = chain.leaf().clone();
        let public = der::Encode::to_der(&own.tbs_certificate.subject_public_key_info);
        if public.ok().as_deref() != Some(key.public()) {
            return Err(self.wrong("`key` is not the key of `certificate`"));
        }
        // The peer has its own copy of self-signed authorities and believes no other.
        let sent = chain.certificates().iter().zip(chain.ders());
        let sent = sent.filter(|(c, _)| c.tbs_certificate.subject != c.tbs_certificate.issuer);
        Ok(Own {
            certificate: own,
            chain: sent.map(|(_, der)| der.to_vec()).collect(),
            key,
        })
    }

    /// How we log in at the peer.
    fn login(
        &mut self,
        login: &LoginConfig,
        own: Option<&Own>,
        way: &Way,
        peer: Option<&Identification>,
    ) -> Result<(LocalAuth, Users), PlanError> {
        let Some(peer) = peer else {
            return Err(self.wrong("`login` needs `remote_id`: who may see our password?"));
        };
        let (method, users) = match (login.method, own, &login.password_file) {
            (EapMethod::MsChapV2, None, Some(file)) => {
                let password = self.secret(file)?;
                let users = Users::one(&login.name, &password);
                let users = users.ok_or_else(|| self.wrong("login: bad name or password"))?;
                (ClientMethod::MsChapV2, users)
            }
            (EapMethod::Tls, Some(own), None) => {
                let made =
                    eap_tls::client(&self.config.name, own.kind(), &own.chain, way, peer.clone());
                let config = made.map_err(|error| self.wrong(format!("login: {error}")))?;
                let server = server_name(peer).ok_or_else(|| {
                    self.wrong("login by TLS needs a host name or an IP address as `remote_id`")
                })?;
                (ClientMethod::Tls { config, server }, Users::default())
            }
            (EapMethod::MsChapV2, ..) => {
                return Err(self.wrong("login by mschapv2 takes `password_file`, no certificate"));
            }
            (EapMethod::Tls, ..) => {
                return Err(self.wrong("login by tls takes `certificate` and `key`, no password"));
            }
        };
        let identity = login.name.clone();
        Ok((LocalAuth::Eap { identity, method }, users))
    }

    /// How peers log in at us.
    fn eap(&self, eap: &EapConfig, own: &Own, way: &Way) -> Result<(RemoteAuth, Users), PlanError> {
        if eap.methods.is_empty() {
            return Err(self.wrong("eap: `methods` is empty"));
        }
        let passwords = eap.methods.contains(&EapMethod::MsChapV2);
        let users = match &eap.users_file {
            Some(file) if passwords => {
                let text = self.private(file, USERS_MAX)?;
                let users = Users::parse(&text);
                users.map_err(|error| self.wrong(format!("{}: {error}", file.display())))?
            }
            None if !passwords => Users::default(),
            _ => return Err(self.wrong("eap: `users_file` goes with the method mschapv2")),
        };
        let method = |method: &EapMethod| match method {
            EapMethod::MsChapV2 => Ok(ServerMethod::MsChapV2),
            EapMethod::Tls => eap_tls::server(&self.config.name, own.kind(), &own.chain, way)
                .map(ServerMethod::Tls)
                .map_err(|error| self.wrong(format!("eap: {error}"))),
        };
        let methods = eap.methods.iter().map(method).collect::<Result<_, _>>()?;
        Ok((RemoteAuth::Eap { methods }, users))
    }

    /// The secret on top of the key exchanges.
    pub(super) fn ppk(&mut self) -> Result<Option<Ppk>, PlanError> {
        let Some(ppk) = &self.config.ppk else {
            return Ok(None);
        };
        if self.config.login.is_some() || self.config.eap.is_some() {
            return Err(self.wrong("`ppk` does not go with EAP"));
        }
        let secret = self.secret(&ppk.secret_file)?;
        if secret.len() < PPK_MIN || ppk.id.is_empty() {
            return Err(self.wrong(format!(
                "ppk: it needs an `id`, and a secret of {PPK_MIN} bytes or more"
            )));
        }
        Ok(Some(Ppk {
            id: ppk.id.clone().into_bytes(),
            secret: Psk::new(&secret),
            required: true,
        }))
    }

    /// The contents of a file that only its owner may read, without the line's end.
    fn secret(&mut self, file: &Path) -> Result<Zeroizing<Vec<u8>>, PlanError> {
        let bytes = self.private(file, SECRET_MAX)?;
        self.seen.update(&bytes);
        Ok(bytes)
    }

    /// The same for a file that may change without changing the connection.
    fn private(&self, file: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, PlanError> {
        let path = self.folder.join(file);
        let failed = |error: std::io::Error| self.wrong(format!("{}: {error}", path.display()));
        let metadata = std::fs::metadata(&path).map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(self.wrong(format!(
                "{} is a secret and others may read it (mode {mode:03o}): chmod 600",
                path.display()
            )));
        }
        if metadata.len() > most {
            return Err(self.wrong(format!("{} is too long", path.display())));
        }
        let mut bytes = std::fs::read(&path).map(Zeroizing::new).map_err(failed)?;
        while bytes
            .last()
            .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
        {
            bytes.pop();
        }
        Ok(bytes)
    }

    fn key(&mut self, file: &Path) -> Result<PrivateKey, PlanError> {
        let text = self.secret(file)?;
        let shown = file.display().to_string();
        let place = self.place.clone();
        let unusable =
            move |what: &dyn std::fmt::Display| wrong(place.clone(), format!("{shown}: {what}"));
        let text = std::str::from_utf8(&text).map_err(|error| unusable(&error))?;
        // A camera's identity has certificates in the same file.
        let text = pem_key(text).ok_or_else(|| unusable(&"there is no PKCS#8 key in it"))?;
        if text.contains("BEGIN ENCRYPTED PRIVATE KEY") {
            let Some(passphrase) = &self.config.passphrase_file else {
                return Err(unusable(
                    &"the key is encrypted: `passphrase_file` is missing",
                ));
            };
            let passphrase = self.secret(passphrase)?;
            return PrivateKey::from_encrypted_pem(text, &passphrase).map_err(|e| unusable(&e));
        }
        let (label, der) = der::pem::decode_vec(text.as_bytes()).map_err(|e| unusable(&e))?;
        let der = Zeroizing::new(der);
        if label != "PRIVATE KEY" {
            return Err(unusable(&"there is no PKCS#8 key in it"));
        }
        PrivateKey::from_pkcs8_der(&der).map_err(|error| unusable(&error))
    }
}

/// The name for which TLS asks.
fn server_name(id: &Identification) -> Option<ServerName<'static>> {
    match id.kind {
        IdType::FQDN => ServerName::try_from(std::str::from_utf8(&id.data).ok()?.to_owned()).ok(),
        IdType::IPV4_ADDR | IdType::IPV6_ADDR => ServerName::try_from(identity::show(id)).ok(),
        _ => None,
    }
}

/// The PKCS#8 key among the parts of a PEM file.
pub(super) fn pem_key(text: &str) -> Option<&str> {
    ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]
        .iter()
        .find_map(|label| {
            let (begin, end) = (
                format!("-----BEGIN {label}-----"),
                format!("-----END {label}-----"),
            );
            let rest = text.get(text.find(&begin)?..)?;
            rest.get(..rest.find(&end)?.checked_add(end.len())?)
        })
}
