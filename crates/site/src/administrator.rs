//! Who gives an administrative command: a Unix user, or a person who proves it with a certificate.
//!
//! Each command is an action of the access rules, like a page of the portal. They decide about the person,
//! or about the account of this machine, which has neither clearance nor roles: it keeps the site
//! as long as `[administration] require` does not demand a person, and never opens, exports or decides
//! about evidence. A person's command asks the site for a challenge, and signs it together with the hash
//! of the request's very bytes:
//!
//! ```text
//!  command                                site
//!  {"authenticate":{}}              ──►
//!                                   ◄──   {"challenge":"64 hexadecimal digits"}
//!  {"request":"…","signature":"…"}  ──►   checks, carries out
//!                                   ◄──   the answer
//! ```
//!
//! The challenge lives as long as the connection, at most [`PATIENCE`], and takes one signature. Without a
//! running site the command checks the same itself, and the actor's name says that it was offline. Only
//! the owner of the data folder can do that, and only the file system could stop them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::{Context, Principal, Resource};
use audit::{Actor, Event};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use event_catalogue::Recorded as _;
use event_catalogue::site::CommandRefused;
use evidence::cms;
use pki::cert::CertificateChain;
use pki::key::{Passphrase, PrivateKey};
use pki::tls::PeerCertificates;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

use crate::config::Require;
use crate::control::{Question, Request};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::giver::Giver;
use crate::parts::Site;
use crate::parts::centre_parts::CentreParts;
use crate::read::{MAX_SMALL_FILE, read_regular};
use commandline::SiteArgs;

/// How long a signature may take: a person may have to touch a token.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Begins what is signed, so that the signature is good for nothing else.
const CONTEXT: &str = "cordon.administration/1";

/// The request for a challenge.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    authenticate: Nothing,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What is to be signed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    challenge: String,
}

/// A request with the proof of who gives it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// The request's JSON, of which every byte is signed.
    pub request: Zeroizing<String>,
    signature: String,
}

impl Challenge {
    /// A new one, from the system's random source.
    pub fn new() -> Outcome<Self> {
        let mut bytes = [0; 32];
        let filled = aws_lc_rs::rand::fill(&mut bytes);
        filled.map_err(|_| {
            Failure::new(
                anyhow::anyhow!("the system gives no random bytes"),
                "check the kernel",
            )
        })?;
        Ok(Self {
            challenge: hex::encode(bytes),
        })
    }

    fn statement(&self, request: &str) -> String {
        let hash = evidence::digest::Sha256Digest::of(request.as_bytes());
        format!("{CONTEXT}\n{}\n{hash}\n", self.challenge)
    }

    /// Signs a request for this challenge.
    pub fn sign(&self, request: Zeroizing<String>, person: &Person) -> Outcome<Signed> {
        let signature = cms::sign(
            &person.key,
            &person.chain,
            self.statement(&request).as_bytes(),
            cms::Placement::Detached,
            OffsetDateTime::now_utc(),
        );
        let signature = signature.or_hint("cannot sign the command", "check the file of --as")?;
        Ok(Signed {
            request,
            signature: STANDARD.encode(signature),
        })
    }

    /// The signer's certificate and its issuers. The signature alone admits no person.
    fn signer(&self, signed: &Signed) -> Outcome<CertificateChain> {
        const HINT: &str = "use the same version of cordon";
        let der = STANDARD
            .decode(&signed.signature)
            .or_hint("signature", HINT)?;
        let statement = self.statement(&signed.request);
        let verified = cms::parse_signed_data(&der)
            .and_then(|message| message.verify_detached(statement.as_bytes()));
        Ok(verified
            .or_hint("the command's signature is not valid", HINT)?
            .signer_chain)
    }
}

/// A person's certificate and key.
pub struct Person {
    key: PrivateKey,
    chain: CertificateChain,
}

impl Person {
    /// The person of `--as`, if there is one.
    pub fn of(args: &SiteArgs) -> Outcome<Option<Self>> {
        let Some(file) = &args.as_person else {
            return Ok(None);
        };
        Self::load(file, args.as_password_file.as_deref()).map(Some)
    }

    /// Signs as [`PrivateKey::sign`] does.
    pub fn sign_raw(&self, message: &[u8]) -> Outcome<Vec<u8>> {
        self.key
            .sign(message)
            .or_hint("cannot sign", "check the file of --as")
    }

    /// Reads PKCS#12, or PEM with certificates and an encrypted key.
    fn load(file: &Path, password_file: Option<&Path>) -> Outcome<Self> {
        const HINT: &str =
            "name a PKCS#12 or PEM file, and the file with its password by --as-password-file";
        let what = || format!("cannot use {} as a person", file.display());
        let bytes = read_regular(file, MAX_SMALL_FILE, HINT)?;
        let password = match password_file {
            Some(file) => commandline::read_text(file)?,
            None => Zeroizing::new(String::new()),
        };
        let password = password.trim_end_matches(['\r', '\n']);
        let Ok(text) = std::str::from_utf8(&bytes) else {
            let (key, chain) = pki::pkcs12::import(&bytes, password).or_hint(what(), HINT)?;
            return Ok(Self { key, chain });
        };
        const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
        const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
        let key = text.find(BEGIN).and_then(|begin| {
            let rest = text.get(begin..)?;
            rest.get(..rest.find(END)? + END.len())
        });
        let key = key.ok_or_else(|| {
            Failure::new(
                anyhow::anyhow!("{} has no encrypted key", file.display()),
                HINT,
            )
        })?;
        let key = PrivateKey::from_encrypted_pem(&format!("{key}\n"), &Passphrase::from(password));
        Ok(Self {
            key: key.or_hint(what(), HINT)?,
            chain: CertificateChain::from_pem(text).or_hint(what(), HINT)?,
        })
    }
}

/// How a command came.
pub struct Caller<'a> {
    pub unix: Actor,
    /// The challenge and what was signed for it.
    pub proof: Option<(&'a Challenge, &'a Signed)>,
    /// Whether the site does not run, and this process is the one that decides.
    pub offline: bool,
}

/// Finds the giver of a request to a whole site, as [`admit_to`] does.
///
/// # Errors
/// A refusal, or a person who cannot be found.
pub async fn admit(site: &Site, request: &Request, caller: Caller<'_>) -> Outcome<Giver> {
    admit_to(&site.centre_parts(), request, caller).await
}

/// Finds the giver of a request and asks the access rules; a refusal is an event.
///
/// # Errors
/// A refusal, or a person who cannot be found.
pub(crate) async fn admit_to(
    parts: &CentreParts,
    request: &Request,
    caller: Caller<'_>,
) -> Outcome<Giver> {
    let now = OffsetDateTime::now_utc();
    let giver = match caller.proof {
        None => at_console(&caller),
        Some((challenge, signed)) => match person(parts, challenge, signed).await {
            Ok((principal, certificate)) => Giver {
                actor: actor(&principal, &caller),
                principal: principal.at_console(unix_user(&caller)),
                certificate: Some(certificate),
            },
            Err(failure) => {
                let event = refusal(now, caller.unix.clone(), request, None);
                record(parts, event.with_reason(failure.message())).await;
                return Err(Failure::new(
                    anyhow::anyhow!(failure.message()),
                    "use a certificate of this site that is valid, of a person in the directory",
                ));
            }
        },
    };
    let Question::OfSystem(action) = request.question() else {
        return Ok(giver);
    };
    let context = Context {
        persons_only: parts.config.administration.require == Require::Certificate,
    };
    let decide = |who: &Principal| {
        let decision = parts
            .access
            .decide(who, action, &Resource::system(), &context);
        Some(decision).filter(|decision| !decision.allowed)
    };
    // The account may read without a signature, so a signature takes nothing away.
    let console = at_console(&caller).principal;
    let refused =
        decide(&giver.principal).filter(|_| !action.reads() || decide(&console).is_some());
    let Some(decision) = refused else {
        return Ok(giver);
    };
    let reasons = decision.reasons.join("; ");
    let asked = Some(action.name().to_owned());
    let event = refusal(now, giver.actor.clone(), request, asked)
        .with_reason(&reasons)
        .with_policies(decision.determining);
    record(parts, event).await;
    let who = giver.person().map(|(person, _)| person.uid().to_owned());
    let who = who.unwrap_or_else(|| "a command without a person".to_owned());
    Err(Failure::new(
        anyhow::anyhow!("{who} may not {action}: {reasons}"),
        "ask a person with the role to give the command, by --as FILE and --as-password-file FILE",
    ))
}

fn refusal(now: OffsetDateTime, who: Actor, request: &Request, asked: Option<String>) -> Event {
    let command = request.name().to_owned();
    CommandRefused { command, asked }.into_event(now, who, "site/control")
}

async fn record(parts: &CentreParts, event: Event) {
    let log = parts.portal_audit.clone();
    let recorded = parts.audit_pool.run(move || log.record(event)).await;
    if !matches!(recorded, Ok(Ok(_))) {
        tracing::error!("a refused command could not be recorded");
    }
}

/// The account that gives a command without a person's certificate.
fn at_console(caller: &Caller<'_>) -> Giver {
    let actor = match caller.offline {
        true => offline(caller.unix.clone()),
        false => caller.unix.clone(),
    };
    let name = actor.name.as_deref().unwrap_or_default();
    Giver {
        principal: Principal::console(&actor.id, name),
        actor,
        certificate: None,
    }
}

/// The person who signed, by the same path, database and directory as at the portal.
async fn person(
    parts: &CentreParts,
    challenge: &Challenge,
    signed: &Signed,
) -> Outcome<(Principal, Vec<u8>)> {
    let chain = challenge.signer(signed)?;
    let peer = PeerCertificates(Arc::new(chain.ders().to_vec()));
    let principal = parts.admission.person(&peer, None).await;
    let principal = principal.map_err(|refused| {
        let error = anyhow::anyhow!("the person is refused: {}", refused.message);
        Failure::new(error, "use another certificate")
    })?;
    let leaf = chain.ders().first().map(|der| der.to_vec());
    Ok((principal, leaf.unwrap_or_default()))
}

/// The person, with the Unix user beside.
fn actor(principal: &Principal, caller: &Caller<'_>) -> Actor {
    let name = format!("{}, as {}", principal.name(), unix_user(caller));
    let actor = Actor::user(principal.uid(), name);
    if caller.offline {
        offline(actor)
    } else {
        actor
    }
}

/// The Unix user as events name it beside a person.
fn unix_user(caller: &Caller<'_>) -> String {
    let unix = &caller.unix;
    format!("{} ({})", unix.id, unix.shown())
}

fn offline(actor: Actor) -> Actor {
    let name = Some(format!("{}, site not running", actor.shown()));
    Actor { name, ..actor }
}

/// Asks for a challenge over the control socket and gives the line to send.
pub async fn authenticate<R, W>(
    read: &mut R,
    write: &mut W,
    request: Zeroizing<String>,
    person: &Person,
) -> Outcome<Zeroizing<Vec<u8>>>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    const HINT: &str = "see the log of the running site";
    let hello = Hello {
        authenticate: Nothing {},
    };
    let mut line = serde_json::to_vec(&hello).or_hint("request", HINT)?;
    line.push(b'\n');
    let sent = write.write_all(&line).await;
    sent.or_hint("cannot reach the running site", HINT)?;
    let mut answer = Vec::new();
    let heard = read.read_until(b'\n', &mut answer).await;
    heard.or_hint("cannot reach the running site", HINT)?;
    let challenge: Challenge =
        serde_json::from_slice(&answer).or_hint("the running site gives no challenge", HINT)?;
    let signed = challenge.sign(request, person)?;
    Ok(Zeroizing::new(
        serde_json::to_vec(&signed).or_hint("request", HINT)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
    use pki::key::KeyAlgorithm;
    use pki::name::Subject;
    use pki::oid::ExtensionArc;
    use pki::profile::Profile;

    fn somebody() -> Person {
        let now = OffsetDateTime::now_utc();
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let validity = Validity::starting(now, time::Duration::days(1));
        let request =
            CertificateRequest::new(Profile::Root, Subject::new("R"), key.spki(), validity);
        let (arc, seed) = (ExtensionArc::default(), key.to_pkcs8_der());
        let root = CertificateAuthority::create_root(&request, key, arc).unwrap();
        Person {
            key: PrivateKey::from_pkcs8_der(&seed).unwrap(),
            chain: CertificateChain::new(vec![root.certificate().clone()]).unwrap(),
        }
    }

    #[test]
    fn signature_is_for_one_challenge_and_for_every_byte_of_one_request() {
        let person = somebody();
        let (one, other) = (Challenge::new().unwrap(), Challenge::new().unwrap());
        let request = || Zeroizing::new(r#"{"do":"disable","uid":"a"}"#.to_owned());
        let mut signed = one.sign(request(), &person).unwrap();
        let signer = one.signer(&signed).unwrap();
        assert_eq!(signer.leaf(), person.chain.leaf());
        assert!(other.signer(&signed).is_err());
        signed.request = Zeroizing::new(signed.request.replace("\"a\"", "\"b\""));
        assert!(one.signer(&signed).is_err());
    }

    #[test]
    fn person_is_read_from_pkcs12_and_from_pem() {
        let folder = tempfile::tempdir().unwrap();
        let (file, secret) = (folder.path().join("person"), folder.path().join("password"));
        let person = somebody();
        std::fs::write(&secret, "password of the person\n").unwrap();
        let password = "password of the person";
        let p12 = pki::pkcs12::export(&person.key, &person.chain, "R", password).unwrap();
        let key = person.key.to_encrypted_pem(&password.into()).unwrap();
        let pem = format!("{}{}", person.chain.to_pem().unwrap(), key.as_str());
        for content in [p12, pem.into_bytes()] {
            std::fs::write(&file, content).unwrap();
            let read = Person::load(&file, Some(&secret)).unwrap();
            assert_eq!(read.chain.leaf(), person.chain.leaf());
            assert_eq!(read.key.public_spki_der(), person.key.public_spki_der());
            assert!(Person::load(&file, None).is_err());
        }
    }
}
