//! The founding of a site, step by step on disk.
//!
//! ```text
//! cordon.toml          written, or compared if it is there
//! DIR/founding         empty folder, the mark of a founding that is not complete: nothing but a founding opens such a folder
//! DIR/pki              the authorities appear at once
//! DIR/audit/log        the first event is the transcript
//! DIR/directory…       the people, then their certificates
//! ```
//!
//! A run that is cut off anywhere is completed by the next one with the same content. After the first event only that content
//! is accepted; before it there is nothing that anyone relies on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use access::Role;
use audit::SharedLog;
use directory::Person;
use pki::cert::CertificateChain;
use pki::clearance::Clearance;
use pki::key::Passphrase;
use registry::{Founder, FounderRole, Registry, Transcript};
use serde::Deserialize;
use time::OffsetDateTime;

use crate::config::{Approvals, Config};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::parts::opening::make_authorities;
use crate::parts::{Site, private, registry_settings, role};
use crate::registration::subject_of;
use commandline::SiteArgs;

/// What a site is founded with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundingOrder {
    pub organisation: String,
    /// Two capital letters.
    pub country: String,
    /// Host names and addresses of the servers, the main one first.
    pub names: Vec<String>,
    pub people: Vec<FounderOrder>,
}

/// A person of the founding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FounderOrder {
    pub uid: String,
    pub name: String,
    pub email: String,
    pub role: FounderRole,
    #[serde(default = "highest")]
    pub clearance: Clearance,
    #[serde(default)]
    pub units: BTreeSet<String>,
    /// File with the certification request (PEM or DER).
    pub request: PathBuf,
}

/// Founders approve for others up to their own clearance.
const fn highest() -> Clearance {
    Clearance::TopSecret
}

/// A person of the founding with the certificate.
pub struct Founded {
    pub uid: String,
    pub role: FounderRole,
    pub serial: String,
    pub chain: CertificateChain,
}

/// A founding that a log begins with.
pub(crate) struct Founding {
    transcript: Transcript,
}

/// An empty folder in the data folder while the founding is not complete.
const MARK: &str = "founding";

/// Refuses to open a site whose founding is not complete.
pub(crate) fn check_complete(data: &Path) -> Outcome {
    if !commandline::is_there(&data.join(MARK))? {
        return Ok(());
    }
    let what = anyhow::anyhow!("the founding of {} is not complete", data.display());
    let hint =
        "run the same `cordon site found` again; or remove the folder, which nothing relies on yet";
    Err(Failure::new(what, hint))
}

/// Founds a site, or completes a founding that was cut off. `requests` are the certification requests (DER) in the order of
/// the people.
///
/// # Errors
/// Why nothing was founded, or what is not complete.
pub async fn found(
    args: &SiteArgs,
    order: &FoundingOrder,
    requests: &[Vec<u8>],
) -> Outcome<(Vec<Founded>, String)> {
    let people: Vec<Person> = order.people.iter().map(|one| person(order, one)).collect();
    for person in &people {
        let what = format!("{} cannot be founded", person.uid);
        person.check().or_hint(what, "correct this field")?;
    }
    let founders = order.people.iter().zip(requests).map(|(one, csr)| {
        let names = (one.uid.clone(), one.name.clone(), one.email.clone());
        Founder::new(names, one.role, one.clearance, one.units.clone(), csr)
    });
    let founders: Vec<Founder> = founders.collect();
    let transcript = |root: &[u8]| {
        let site = (order.organisation.clone(), order.country.clone());
        Transcript::new(site, order.names.clone(), root, founders.clone()).or_hint(
            "nothing is founded",
            "correct the founding, then found again",
        )
    };
    // Before anything is written.
    transcript(&[])?;
    prepare_config(args, order)?;
    let root = prepare_folder(args).await?;
    let founding = Founding {
        transcript: transcript(&root)?,
    };
    let site = Site::open_founding(args, &founding).await?;
    let outcome = founding.certify(&site, &people).await;
    let root_pem = site.trust.root_pem();
    site.close().await;
    let (founded, root_pem) = (outcome?, root_pem?);
    Ok((founded, root_pem))
}

/// Ends a founding, after what it gave was written.
///
/// # Errors
/// Those of the disk.
pub fn complete(data: &Path) -> Outcome {
    let mark = data.join(MARK);
    let removed = match std::fs::remove_dir(&mark) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| durable::sync_parent(&mark)),
    };
    let what = || format!("cannot remove {}", mark.display());
    removed.or_hint(what(), "check the folder's rights, then found again")
}

fn person(order: &FoundingOrder, one: &FounderOrder) -> Person {
    let role = match one.role {
        FounderRole::Administrator => Role::Administrator,
        FounderRole::Registrar => Role::Registrar,
    };
    Person {
        uid: one.uid.clone(),
        name: one.name.clone(),
        given_name: String::new(),
        surname: String::new(),
        email: one.email.clone(),
        organisation: order.organisation.clone(),
        country: order.country.clone(),
        clearance: one.clearance,
        roles: BTreeSet::from([role]),
        units: one.units.clone(),
        active: true,
    }
}

/// Writes the site's configuration, or compares one that is there.
fn prepare_config(args: &SiteArgs, order: &FoundingOrder) -> Outcome {
    let Some(path) = &args.config else {
        let hint = "name a file with --config; it is made if it does not exist";
        return Err(Failure::usage("a founded site has a configuration", hint));
    };
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let names: Vec<String> = order.names.iter().map(|name| quoted(name)).collect();
    let lines = format!(
        "[site]\norganisation = {}\ncountry = {}\nnames = [{}]\n\n[registration]\napprovals = \"required\"\n",
        quoted(&order.organisation),
        quoted(&order.country),
        names.join(", "),
    );
    if !commandline::is_there(path)? {
        let origin = order.names.first().map_or("localhost", String::as_str);
        let origin = format!(
            "\nlog_origin = {}\n\n[reg",
            quoted(&format!("{origin}/audit"))
        );
        let lines = lines.replacen("\n\n[reg", &origin, 1);
        let text = format!(
            "# Written by `cordon site found`; docs/configuration.md has all settings.\n{lines}"
        );
        Config::parse(&text, path)?;
        return commandline::write_new(path, text.as_bytes());
    }
    let config = Config::load(Some(path))?;
    let fits = config.site.organisation == order.organisation
        && config.site.country == order.country
        && config.site.names == order.names
        && config.registration.approvals == Approvals::Required;
    match fits {
        true => Ok(()),
        false => {
            let what = anyhow::anyhow!("{} says otherwise than the founding", path.display());
            let hint = format!(
                "these lines belong into it, or name a file that does not exist: {}",
                lines.trim().replace('\n', "  ")
            );
            Err(Failure::new(what, hint))
        }
    }
}

/// Makes the data folder with its mark and its authorities. Gives the root certificate in DER.
async fn prepare_folder(args: &SiteArgs) -> Outcome<Vec<u8>> {
    let data = &args.data;
    let rights = "check the folder's rights";
    crate::owner::check(data)?;
    durable::create_dir_all(data).or_hint(format!("cannot make {}", data.display()), rights)?;
    let looked = || format!("cannot look into {}", data.display());
    let mut entries = std::fs::read_dir(data).or_hint(looked(), rights)?;
    let is_empty = entries.next().is_none();
    let is_site = Registry::is_initialised(data).or_hint(looked(), rights)?;
    if is_empty {
        private(data)?;
        // A folder appears at once: a temporary file that a killed run leaves would count as other data.
        let marked = durable::create_dir_all(&data.join(MARK));
        marked.or_hint(format!("cannot write to {}", data.display()), rights)?;
    } else if !is_site && !commandline::is_there(&data.join(MARK))? {
        let what = anyhow::anyhow!("{} is not empty", data.display());
        return Err(Failure::new(what, "name a new folder with --data"));
    }
    let config = Config::load(args.config.as_deref())?;
    crate::at_rest::demand(&config, data)?;
    let secret = commandline::passphrase(data, args.passphrase_file.as_deref())?;
    let settings = registry_settings(&config);
    let now = OffsetDateTime::now_utc();
    make_authorities(data, &settings, &Passphrase::new(secret), now).await?;
    let root = pki::file::load_chain(&data.join("pki/root.pem"));
    let root = root.or_hint("the root", "check the folder pki")?;
    pki::cert::to_der(root.leaf()).or_hint("the root", "report this")
}

impl Founding {
    /// Has the log begin with the transcript. A log that begins otherwise is refused before anything is recorded.
    pub(crate) fn record(&self, data: &Path, audit: &SharedLog, now: OffsetDateTime) -> Outcome {
        let view = audit
            .view()
            .or_hint("the audit log", "see `cordon audit verify`")?;
        if view.size() == 0 {
            let event = self.transcript.event(now, crate::console::this_process());
            let event = event.or_hint("founding", "report this")?;
            let recorded = role(audit, "site")?.record(event);
            return recorded.map(drop).or_hint(
                "the founding cannot be recorded",
                "make room on the disk, then found again",
            );
        }
        let hint = "a site is founded once, in a folder of its own: name a new one with --data";
        let known = Transcript::of_log(&view).or_hint("the audit log", hint)?;
        if known.as_ref() == Some(&self.transcript) {
            return Ok(());
        }
        let what = match known {
            Some(_) => anyhow::anyhow!("{} was founded with other content", data.display()),
            None => anyhow::anyhow!("{} is a site that was not founded", data.display()),
        };
        Err(Failure::new(what, hint))
    }

    /// Brings the people into the directory, and certifies their keys.
    async fn certify(&self, site: &Site, people: &[Person]) -> Outcome<Vec<Founded>> {
        const AGAIN: &str = "found again, with the same content";
        let by = crate::console::this_process();
        let log = site.audit.view().or_hint("the audit log", AGAIN)?;
        let mut founded = Vec::new();
        for (person, founder) in people.iter().zip(&self.transcript.people) {
            let now = site.clock.or_later(OffsetDateTime::now_utc());
            let what = || format!("{} is not founded", person.uid);
            let known = site.directory.get(&person.uid).await;
            if known.or_hint(what(), AGAIN)?.is_none() {
                let added = site.directory.add(person, by.clone(), now).await;
                added.or_hint(what(), AGAIN)?;
            }
            let subject = subject_of(&site.config, person);
            let issued = registry::issue_founder(&site.registry, &log, subject, by.clone(), now);
            let issued = issued.await.or_hint(what(), AGAIN)?;
            tracing::info!(uid = person.uid, serial = issued.serial, "certified");
            founded.push(Founded {
                uid: person.uid.clone(),
                role: founder.role,
                serial: issued.serial,
                chain: issued.chain,
            });
        }
        Ok(founded)
    }
}
