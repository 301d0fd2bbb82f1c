//! How both sides of a connection prove who they are, with the files that hold it.

use std::path::Path;
use std::sync::Arc;

use ikev2::config::{
    ClientMethod, Credential, KeyKind, LocalAuth, PeerId, Ppk, Psk, RemoteAuth, ServerMethod,
};
use ikev2::wire::{IdType, Identification};
use keyhost::secret_file::{self, SECRET_MAX};
use keyhost::{self, Key};
use pki::cert::CertificateChain;
use pki::ocsp::OcspPolicy;
use rustls_pki_types::ServerName;
use x509_cert::Certificate;
use zeroize::Zeroizing;

use super::{Reader, ResolveError, chain};
use crate::config::{CredentialConfig, EapConfig, EapMethod, LoginConfig};
use crate::eap_tls::{self, KeyHandle};
use crate::identity;
use crate::requirement::{KeyPin, Requirement};
use crate::signature::key_kind;
use crate::trust::{Trust, key_hashes};
use crate::users::Users;

/// Bytes of a shared secret at least: shorter ones are guessed from one recorded handshake.
const SECRET_MIN: usize = 12;
/// Bytes of a post-quantum preshared key at least (RFC 8784 §5.1).
const PPK_MIN: usize = 32;
/// Bytes of a file with users at most.
const USERS_MAX: u64 = 4 * 1024 * 1024;

/// Both sides' proofs, and what is needed to give ours.
pub(super) struct Proofs {
    pub(super) local: LocalAuth,
    pub(super) remote: RemoteAuth,
    pub(super) own: Vec<Certificate>,
    pub(super) keys: Vec<Key>,
    /// Passwords: those of peers, or ours.
    pub(super) users: Users,
    /// KeyHandle by which TLS finds keys and trust.
    pub(super) key_handle: KeyHandle,
    /// Under whose authority peers prove who they are.
    pub(super) realm: String,
    /// Demands on their certificates.
    pub(super) requirement: Arc<Requirement>,
}

/// A certificate of ours as it is sent, and its key.
struct Own {
    certificate: Certificate,
    chain: Vec<Vec<u8>>,
    key: Key,
    authorities: Vec<[u8; 20]>,
    ocsp: Option<Vec<u8>>,
}

impl Own {
    fn kind(&self) -> KeyKind {
        key_kind(self.key.kind())
    }

    fn credential(&self) -> Credential {
        Credential {
            chain: self.chain.clone(),
            key: self.kind(),
            authorities: self.authorities.clone(),
            ocsp: self.ocsp.clone(),
        }
    }
}

impl Reader<'_> {
    /// Both sides' proofs. `peer` is who the peer must be, if it must be somebody.
    pub(super) fn proofs(
        &mut self,
        trust: Option<&Trust>,
        peer: Option<&Identification>,
    ) -> Result<Proofs, ResolveError> {
        let requirement = Arc::new(self.requirement()?);
        let psk = self.psk()?;
        let own_psk = psk.clone().filter(|_| self.config.own_psk().is_some());
        let peer_psk = psk.filter(|_| self.config.peer_psk().is_some());
        if peer_psk.is_some() && !requirement.is_none() {
            return Err(self.wrong("peer: a shared secret shows no certificate"));
        }
        let key_handle = KeyHandle::default();
        let mut users = Users::default();
        let passwords = |eap: &EapConfig| eap.methods == [EapMethod::MsChapV2];
        let authorities = match trust {
            // Neither leads to an authority: such a peer shows no certificate, or one that it made itself.
            _ if peer_psk.is_some() || requirement.without_chain => Vec::new(),
            // Peers show what leads to one of these.
            Some(_) if !requirement.authorities.is_empty() => key_hashes(&requirement.authorities),
            Some(trust) => trust.key_hashes(),
            // Peers with passwords have no certificates.
            None if self.config.eap.as_ref().is_some_and(passwords) => Vec::new(),
            None => {
                let place = self.place.clone();
                return Err(ResolveError::NoTrust { place });
            }
        };
        // Whoever was let in by an authority that is gone must come again.
        for authority in &authorities {
            self.seen.update(authority);
        }
        // Users with passwords are those of one connection's file.
        let realm = match &self.config.eap {
            Some(_) => format!("logins of {}", self.config.name),
            // The file names the peer of each secret, and of each key that counts without authorities.
            None if peer_psk.is_some() => "shared secrets".to_owned(),
            None if requirement.without_chain => {
                format!("keys {}", hex::encode(requirement.pinned_keys.concat()))
            }
            None => format!("authorities {}", hex::encode(authorities.concat())),
        };
        let mut own = Vec::new();
        for credential in self.config.credentials() {
            own.push(self.own(&credential, trust)?);
        }
        let first = own.first();
        let local = match (&self.config.login, first) {
            _ if let Some(psk) = own_psk => LocalAuth::Psk(psk),
            (Some(login), first) => {
                let (local, ourselves) =
                    self.login(login, first, &key_handle, peer, &requirement)?;
                users = ourselves;
                local
            }
            (None, Some(_)) => LocalAuth::Certificates(own.iter().map(Own::credential).collect()),
            (None, None) => return Err(self.wrong("`certificate` and `key` go together")),
        };
        let policy = trust.map_or(OcspPolicy::Off, Trust::ocsp);
        let remote = match (&self.config.eap, first) {
            (Some(eap), Some(first)) => {
                let (remote, all) = self.eap(eap, first, &key_handle)?;
                users = all;
                remote
            }
            (Some(_), None) => return Err(self.wrong("`eap` needs `certificate` and `key`")),
            (None, _) if let Some(psk) = peer_psk => RemoteAuth::Psk(psk),
            (None, _) => RemoteAuth::Certificate {
                authorities,
                ocsp: policy != OcspPolicy::Off,
            },
        };
        if let RemoteAuth::Eap { methods } = &remote
            && methods
                .iter()
                .any(|method| matches!(method, ServerMethod::MsChapV2))
            && !requirement.is_none()
        {
            return Err(self.wrong("peer: a password shows no certificate"));
        }
        if policy == OcspPolicy::Required && self.has_tls() {
            return Err(self.wrong("ocsp = \"required\": EAP-TLS has no responses here"));
        }
        let (own, keys) = own
            .into_iter()
            .map(|own| (own.certificate, own.key))
            .unzip();
        Ok(Proofs {
            local,
            remote,
            own,
            keys,
            users,
            key_handle,
            realm,
            requirement,
        })
    }

    /// Reads the shared secret.
    fn psk(&mut self) -> Result<Option<Psk>, ResolveError> {
        let Some(file) = &self.config.psk_file else {
            return Ok(None);
        };
        let secret = self.secret(file)?;
        if secret.len() < SECRET_MIN {
            return Err(self.wrong(format!(
                "the secret in {} has less than {SECRET_MIN} bytes",
                file.display()
            )));
        }
        Ok(Some(Psk::new(&secret)))
    }

    /// Builds the demands on peers' certificates.
    fn requirement(&mut self) -> Result<Requirement, ResolveError> {
        let Some(peer) = self.config.peer.clone() else {
            return Ok(Requirement::default());
        };
        if peer
            .min_clearance
            .is_some_and(|level| !(1..=4).contains(&level))
        {
            return Err(self.wrong("peer: `min_clearance` is from 1 to 4"));
        }
        let plain =
            |domain: &String| !domain.is_empty() && !domain.starts_with('.') && domain.is_ascii();
        if peer.domain.as_ref().is_some_and(|domain| !plain(domain)) {
            return Err(self.wrong("peer: `domain` is a domain like cameras.example.org"));
        }
        let mut authorities = Vec::new();
        for file in &peer.authorities {
            let chain = chain(&self.folder.join(file), &self.place)?;
            chain.ders().iter().for_each(|der| self.seen.update(der));
            authorities.extend(chain.certificates().iter().cloned());
        }
        let mut pinned_keys = Vec::new();
        for text in &peer.pinned_keys {
            let mut pin = KeyPin::default();
            hex::decode_to_slice(text, &mut pin).map_err(|_| {
                self.wrong(format!(
                    "peer: {text:?} of `pinned_keys` is no SHA-256: 64 hexadecimal digits"
                ))
            })?;
            pinned_keys.push(pin);
        }
        let requirement = Requirement {
            authorities,
            kind: peer.kind,
            suffix: peer.domain,
            clearance: peer.min_clearance,
            unit: peer.unit,
            pinned_keys,
            without_chain: !peer.require_chain,
        };
        self.check_pinned(&requirement)?;
        Ok(requirement)
    }

    /// Refuses a key instead of a chain where nobody but an authority could say the rest.
    fn check_pinned(&self, requirement: &Requirement) -> Result<(), ResolveError> {
        let config = self.config;
        let what = match requirement {
            _ if !requirement.without_chain => return Ok(()),
            _ if requirement.pinned_keys.is_empty() => {
                "peer: `require_chain = false` needs `pinned_keys`: what else would prove the peer?"
            }
            _ if requirement.needs_chain() => {
                "peer: without a chain only `pinned_keys` says who the peer is"
            }
            _ if config.trust.is_some() => "`trust` and `require_chain = false` exclude each other",
            _ if config.login.is_some() || config.eap.is_some() => {
                "peer: `require_chain = false` does not go with EAP"
            }
            _ if !matches!(self.remote_id()?, PeerId::Exactly(_)) => {
                "peer: without a chain whoever has the key chooses their name: `remote_id` names one"
            }
            _ => return Ok(()),
        };
        Err(self.wrong(what))
    }

    /// Whether somebody shows a certificate inside EAP.
    fn has_tls(&self) -> bool {
        let login = self.config.login.iter().map(|login| &login.method);
        let served = self.config.eap.iter().flat_map(|eap| &eap.methods);
        login.chain(served).any(|method| *method == EapMethod::Tls)
    }

    fn own(
        &mut self,
        config: &CredentialConfig,
        trust: Option<&Trust>,
    ) -> Result<Own, ResolveError> {
        let on_token = keyhost::is_token(&config.certificate);
        let chain = match on_token {
            true => self.token_chain(&config.certificate)?,
            false => chain(&self.folder.join(&config.certificate), &self.place)?,
        };
        // Apart from the rest: a renewed certificate changes this digest and leaves the tunnels up.
        chain.ders().iter().for_each(|der| self.shown.update(der));
        let own = chain.leaf().clone();
        let public = der::Encode::to_der(&own.tbs_certificate.subject_public_key_info);
        let public = public.map_err(|error| self.wrong(error.to_string()))?;
        // The process of the keys compares it with the certificate, as only it reads the key.
        let key = self.key(config, &public)?;
        let above = trust.map(|trust| trust.above(chain.certificates()));
        let above = above.unwrap_or_default();
        // The peer has its own copy of self-signed authorities and believes no other.
        let sent = chain.certificates().iter().zip(chain.ders());
        let sent = sent.filter(|(c, _)| c.tbs_certificate.subject != c.tbs_certificate.issuer);
        let mut sent: Vec<Vec<u8>> = sent.map(|(_, der)| der.to_vec()).collect();
        // A token has the certificate alone; the issuers come from what is known here.
        if on_token {
            let rest = above.iter();
            let rest = rest.filter(|c| c.tbs_certificate.subject != c.tbs_certificate.issuer);
            sent.extend(rest.filter_map(|c| der::Encode::to_der(c).ok()));
        }
        Ok(Own {
            certificate: own,
            chain: sent,
            key,
            authorities: key_hashes(&above),
            ocsp: self.ocsp_response(config.ocsp_response.as_deref())?,
        })
    }

    /// A certificate that is on a token.
    fn token_chain(&self, uri: &Path) -> Result<CertificateChain, ResolveError> {
        let der = self.key_host.certificate(uri);
        let der = der.map_err(|error| self.wrong(error.to_string()))?;
        CertificateChain::from_ders([der]).map_err(|error| self.wrong(error.to_string()))
    }

    /// Reads a responder's answer about our certificate. Whether it is good is the peer's business.
    fn ocsp_response(&mut self, file: Option<&Path>) -> Result<Option<Vec<u8>>, ResolveError> {
        let Some(file) = file else { return Ok(None) };
        let response = secret_file::read_public(&self.folder.join(file), SECRET_MAX);
        let response = response.map_err(|what| self.wrong(what))?.to_vec();
        self.shown.update(&response);
        Ok(Some(response))
    }

    /// Builds our login at the peer.
    fn login(
        &mut self,
        login: &LoginConfig,
        own: Option<&Own>,
        key_handle: &KeyHandle,
        peer: Option<&Identification>,
        requirement: &Arc<Requirement>,
    ) -> Result<(LocalAuth, Users), ResolveError> {
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
                let made = eap_tls::client(
                    &self.config.name,
                    own.kind(),
                    &own.chain,
                    key_handle,
                    (peer.clone(), Arc::clone(requirement)),
                );
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

    /// Builds the login of peers at us.
    fn eap(
        &self,
        eap: &EapConfig,
        own: &Own,
        key_handle: &KeyHandle,
    ) -> Result<(RemoteAuth, Users), ResolveError> {
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
            EapMethod::Tls => {
                eap_tls::server(&self.config.name, own.kind(), &own.chain, key_handle)
                    .map(ServerMethod::Tls)
                    .map_err(|error| self.wrong(format!("eap: {error}")))
            }
        };
        let methods = eap.methods.iter().map(method).collect::<Result<_, _>>()?;
        Ok((RemoteAuth::Eap { methods }, users))
    }

    /// The secret on top of the key exchanges.
    pub(super) fn ppk(&mut self) -> Result<Option<Ppk>, ResolveError> {
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
            // If it were optional, whoever breaks the key exchange could leave it out (RFC 8784 §3).
            required: true,
        }))
    }

    /// The contents of a file that only its owner may read, without the line's end.
    fn secret(&mut self, file: &Path) -> Result<Zeroizing<Vec<u8>>, ResolveError> {
        let bytes = self.private(file, SECRET_MAX)?;
        self.seen.update(&bytes);
        Ok(bytes)
    }

    /// The same for a file that may change without changing the connection.
    fn private(&self, file: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, ResolveError> {
        secret_file::read(&self.folder.join(file), most).map_err(|what| self.wrong(what))
    }

    /// Puts the key of a certificate into service.
    fn key(&self, config: &CredentialConfig, public: &[u8]) -> Result<Key, ResolveError> {
        let place = |file: &Path| match keyhost::is_token(file) {
            true => file.to_owned(),
            false => self.folder.join(file),
        };
        let passphrase = config.passphrase_file.as_deref().map(place);
        let key = place(&config.key);
        let loaded = self.key_host.load(&key, passphrase.as_deref(), public);
        loaded.map_err(|error| self.wrong(error.to_string()))
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
