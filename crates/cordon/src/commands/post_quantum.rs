//! `cordon pki post-quantum`: an experimental authority, which signs with ML-DSA-65 and is kept offline.

use std::path::Path;

use pki::Certificate;
use pki::cert::{self, CertificateChain};
use pki::file::load_chain;
use pki::key::Passphrase;
use pki::post_quantum::{Authority, MlDsaKey, Whom};
use serde_json::json;
use time::OffsetDateTime;

use super::{MAX_SMALL_FILE, print, read_regular};
use crate::cli::{PostQuantum, PostQuantumFolder};
use crate::config::Config;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::site::private;

const HINT: &str =
    "name the folder of `cordon pki post-quantum authority`, and the file with its passphrase";
const WARNING: &str = "experimental: nothing of this system accepts certificates of ML-DSA, and what is made may have to be made anew";

const ROOT: &str = "root.pem";
const ROOT_LIST: &str = "root.crl";
const ISSUING: &str = "users-ca.pem";
const ISSUING_KEY: &str = "users-ca.key";
const LIST: &str = "users.crl";

pub(super) fn run(command: PostQuantum, json: bool) -> Outcome {
    let (PostQuantum::Authority(folder)
    | PostQuantum::Certify { folder, .. }
    | PostQuantum::List { folder, .. }) = &command;
    let config = Config::load(folder.config.as_deref())?;
    if !config.experimental.ml_dsa {
        let what = anyhow::anyhow!("ML-DSA is experimental, and off");
        let hint = "write `ml_dsa = true` below `[experimental]` into the file of --config";
        return Err(Failure::new(what, hint));
    }
    tracing::warn!("{WARNING}");
    let opened = Folder::of(folder, &config)?;
    let now = OffsetDateTime::now_utc();
    match &command {
        PostQuantum::Authority(_) => opened.create(now, json),
        PostQuantum::Certify {
            csr,
            uid,
            name,
            email,
            days,
            out,
            ..
        } => {
            let whom = Whom {
                name: name.clone(),
                uid: uid.clone(),
                email: email.clone(),
                organisation: config.site.organisation.clone(),
                country: config.site.country.clone(),
            };
            opened.certify(csr, &whom, (*days, out), now, json)
        }
        PostQuantum::List { revoke, reason, .. } => opened.list(
            revoke.as_deref().map(|file| (file, reason.as_str())),
            now,
            json,
        ),
    }
}

struct Folder<'a> {
    path: &'a Path,
    config: &'a Config,
    passphrase: Passphrase,
}

impl<'a> Folder<'a> {
    fn of(args: &'a PostQuantumFolder, config: &'a Config) -> Outcome<Self> {
        let passphrase = commandline::passphrase(&args.folder, Some(&args.passphrase_file))?;
        Ok(Self {
            path: &args.folder,
            config,
            passphrase: Passphrase::new(passphrase),
        })
    }

    fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Outcome {
        let file = self.path.join(name);
        let failed = || format!("cannot write {}", file.display());
        let written = durable::write_atomic(&file, bytes, mode);
        written.or_hint(failed(), "check the folder's rights and its disk")
    }

    fn create(&self, now: OffsetDateTime, json: bool) -> Outcome {
        const HINT: &str = "name a folder that does not exist";
        if super::is_there(self.path)? {
            let what = anyhow::anyhow!("{} is there already", self.path.display());
            return Err(Failure::new(what, HINT));
        }
        let failed = "cannot make the authority";
        let generate = || MlDsaKey::generate().or_hint(failed, "try again");
        let (root_key, issuing_key) = (generate()?, generate()?);
        let sealed = |key: &MlDsaKey| key.to_encrypted_pem(&self.passphrase).or_hint(failed, HINT);
        let (root_pem, issuing_pem) = (sealed(&root_key)?, sealed(&issuing_key)?);
        let site = &self.config.site;
        let of_site = (site.organisation.as_str(), site.country.as_str());
        let made = Authority::create(of_site, root_key, issuing_key, now);
        let (root, root_list, authority) = made.or_hint(failed, HINT)?;
        let list = authority.list(None, None, now).or_hint(failed, HINT)?;
        durable::create_dir_all(self.path).or_hint(failed, HINT)?;
        private(self.path)?;
        self.write("root.key", root_pem.as_bytes(), 0o600)?;
        self.write(ISSUING_KEY, issuing_pem.as_bytes(), 0o600)?;
        self.write(ROOT_LIST, &root_list, 0o644)?;
        self.write(LIST, &list, 0o644)?;
        self.write(ISSUING, pem(authority.certificate())?.as_bytes(), 0o644)?;
        // Last: without it there is no authority.
        self.write(ROOT, pem(&root)?.as_bytes(), 0o644)?;
        let value = json!({ "experimental": true, "folder": self.path });
        let text = format!(
            "{} has a root and an issuing authority; keep root.key elsewhere",
            self.path.display()
        );
        print(json, &value, &text)
    }

    fn certificate(&self, name: &str) -> Outcome<Certificate> {
        let file = self.path.join(name);
        let chain = load_chain(&file).or_hint(format!("cannot read {}", file.display()), HINT)?;
        Ok(chain.leaf().clone())
    }

    fn authority(&self) -> Outcome<Authority> {
        let file = self.path.join(ISSUING_KEY);
        let failed = || format!("cannot use {}", file.display());
        let text = read_regular(&file, MAX_SMALL_FILE, HINT)?;
        let text = std::str::from_utf8(&text).or_hint(failed(), HINT)?;
        let key = MlDsaKey::from_encrypted_pem(text, &self.passphrase).or_hint(failed(), HINT)?;
        Authority::open(self.certificate(ISSUING)?, key).or_hint(failed(), HINT)
    }

    fn certify(
        &self,
        csr: &Path,
        whom: &Whom,
        (days, out): (u32, &Path),
        now: OffsetDateTime,
        json: bool,
    ) -> Outcome {
        const HINT: &str =
            "make a certification request with a key of ML-DSA-65, for instance with OpenSSL 3.5";
        let der = super::request::read_csr(csr)?;
        let der = hex::decode(der).or_hint("certification request", HINT)?;
        let authority = self.authority()?;
        let issued = authority.certify(&der, whom, days, now);
        let issued = issued.or_hint("nothing was issued", HINT)?;
        let chain = [
            pem(&issued)?,
            pem(authority.certificate())?,
            pem(&self.certificate(ROOT)?)?,
        ];
        let reserved = crate::control::reserve(out)?;
        crate::control::write_reserved(reserved, chain.concat().as_bytes())?;
        let serial = cert::serial_hex(&issued);
        let value = json!({ "experimental": true, "serial": serial, "out": out });
        print(
            json,
            &value,
            &format!("certificate {serial} is in {}", out.display()),
        )
    }

    fn list(&self, revoke: Option<(&Path, &str)>, now: OffsetDateTime, json: bool) -> Outcome {
        let revoked = match revoke {
            None => None,
            Some((file, reason)) => {
                let hint = "name a certificate of this authority, in PEM";
                let chain: CertificateChain =
                    load_chain(file).or_hint(format!("cannot read {}", file.display()), hint)?;
                let reason = reason
                    .parse()
                    .or_hint("reason", "see `cordon pki revoke --help`")?;
                Some((chain.leaf().clone(), reason))
            }
        };
        let present = read_regular(&self.path.join(LIST), super::MAX_LISTS, HINT)?;
        let authority = self.authority()?;
        let revoked = revoked
            .as_ref()
            .map(|(certificate, reason)| (certificate, *reason));
        let list = authority.list(Some(&present), revoked, now);
        let list = list.or_hint("no list was signed", HINT)?;
        self.write(LIST, &list, 0o644)?;
        let file = self.path.join(LIST);
        let value = json!({ "experimental": true, "list": file });
        print(json, &value, &format!("the list is in {}", file.display()))
    }
}

fn pem(certificate: &Certificate) -> Outcome<String> {
    cert::to_pem(certificate).or_hint("cannot write a certificate", "report this")
}
