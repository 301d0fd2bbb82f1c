//! A certificate with its key, and the validation of the peer's.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use ikev2::Response;
use ikev2::auth::Scheme;
use ikev2::config::KeyKind;
use ikev2::wire::{IdType, Identification};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::Failure;
use crate::options::Options;

/// A private key, parsed once: an RSA key is checked then, and makes what blinds its signatures with its first one.
enum Signer {
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
    /// The same key for signatures of fixed length and in ASN.1.
    EcdsaP256(EcdsaKeyPair, EcdsaKeyPair),
}

pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    signer: Signer,
    ca: CertificateDer<'static>,
}

impl Identity {
    pub(crate) fn load(options: &Options) -> Result<Option<Self>, Failure> {
        let Some(certificate) = options.get("cert") else {
            return Ok(None);
        };
        let key = PrivateKeyDer::from_pem_file(options.get("key").ok_or("--key is missing")?)?;
        let der = key.secret_der();
        let signer = if let Ok(key) = Ed25519KeyPair::from_pkcs8(der) {
            Signer::Ed25519(key)
        } else if let Ok(key) = RsaKeyPair::from_pkcs8(der) {
            Signer::Rsa(key)
        } else {
            let key = |encoding| EcdsaKeyPair::from_pkcs8(encoding, der);
            Signer::EcdsaP256(
                key(&signature::ECDSA_P256_SHA256_FIXED_SIGNING)?,
                key(&signature::ECDSA_P256_SHA256_ASN1_SIGNING)?,
            )
        };
        Ok(Some(Self {
            chain: CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?,
            signer,
            key,
            ca: CertificateDer::from_pem_file(options.get("ca").ok_or("--ca is missing")?)?,
        }))
    }

    pub(crate) fn chain(&self) -> Vec<Vec<u8>> {
        self.chain.iter().map(|der| der.to_vec()).collect()
    }

    pub(crate) const fn kind(&self) -> KeyKind {
        match self.signer {
            Signer::Ed25519(_) => KeyKind::Ed25519,
            Signer::Rsa(_) => KeyKind::Rsa,
            Signer::EcdsaP256(..) => KeyKind::EcdsaP256,
        }
    }

    pub(crate) fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Response, String> {
        let random = SystemRandom::new();
        let signature = match &self.signer {
            Signer::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Signer::Rsa(key) => {
                let padding: &dyn signature::RsaEncoding = match scheme {
                    Scheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
                    Scheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
                    other => return Err(format!("{other:?}")),
                };
                let mut out = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut out)
                    .map_err(|e| e.to_string())?;
                out
            }
            Signer::EcdsaP256(fixed, asn1) => {
                let key = match scheme {
                    Scheme::EcdsaP256Fixed => fixed,
                    _ => asn1,
                };
                let signature = key.sign(&random, message).map_err(|e| e.to_string())?;
                signature.as_ref().to_vec()
            }
        };
        Ok(Response::Signature(signature))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, Failure> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone())?;
        Ok(Arc::new(roots))
    }

    pub(crate) fn tls_client(&self) -> Result<Arc<ClientConfig>, Failure> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(Arc::new(config))
    }

    pub(crate) fn tls_server(&self) -> Result<Arc<ServerConfig>, Failure> {
        let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, provider()).build()?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(Arc::new(config))
    }

    /// The chain leads to our authority and the certificate is for that name.
    pub(crate) fn verify(
        &self,
        chain: &[Vec<u8>],
        id: &Identification,
    ) -> Result<Response, String> {
        let text = |error: webpki::Error| error.to_string();
        let certificates: Vec<_> = chain
            .iter()
            .map(|der| CertificateDer::from(der.as_slice()))
            .collect();
        let (leaf, rest) = certificates.split_first().ok_or("no certificate")?;
        let leaf = EndEntityCert::try_from(leaf).map_err(text)?;
        let anchor = anchor_from_trusted_cert(&self.ca).map_err(text)?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO));
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        let usage = KeyUsage::client_auth();
        leaf.verify_for_usage(algorithms, &[anchor], rest, now, usage, None, None)
            .map_err(text)?;
        if id.kind == IdType::DER_ASN1_DN {
            // The subject without the header of its sequence.
            let header = id.data.len().saturating_sub(leaf.subject().len());
            if !id.data.ends_with(leaf.subject()) || header > 4 {
                return Err("the certificate is somebody else's".into());
            }
            return Ok(Response::PeerKey(leaf.subject_public_key_info().to_vec()));
        }
        let name = String::from_utf8(id.data.clone()).map_err(|_| "no name")?;
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        leaf.verify_is_valid_for_subject_name(&name).map_err(text)?;
        Ok(Response::PeerKey(leaf.subject_public_key_info().to_vec()))
    }
}
