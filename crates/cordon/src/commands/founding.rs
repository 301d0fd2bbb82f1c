//! `cordon site found`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use registry::FounderRole;
use serde_json::json;
use site::founding::{self, FounderOrder, FoundingOrder};

use super::{print, read_text};
use crate::cli::SiteArgs;
use commandline::{Failure, OrHint as _, Outcome};

/// Bytes of an answer at most.
const MAX_ANSWER: u64 = 4096;
const ROOT: &str = "root.pem";
/// Refused user id: its certificate would replace the root's file.
const ROOT_UID: &str = "root";
const DISK: &str = "check the folder's rights and the room on its disk, then found again";
const HINT: &str = "docs/founding.md has an example";

pub(crate) async fn run(args: &SiteArgs, from: Option<&Path>, out: &Path, json: bool) -> Outcome {
    let (order, folder) = match from {
        Some(file) => (read(file)?, file.parent().map(Path::to_owned)),
        None => (ask_for_all()?, None),
    };
    let folder = folder.unwrap_or_default();
    let requests = order.people.iter().map(|one| {
        let der = tunnel_tools::read_csr(&folder.join(&one.request))?;
        hex::decode(der).or_hint("certification request", "report this")
    });
    let requests = requests.collect::<Outcome<Vec<Vec<u8>>>>()?;
    let keys = keys(&order, &requests)?;
    if from.is_none() {
        confirm(&keys)?;
    }
    let (founded, root_pem) = founding::found(args, &order, &requests).await?;
    durable::create_dir_all(out).or_hint(format!("cannot make {}", out.display()), DISK)?;
    write_once(&out.join(ROOT), &root_pem)?;
    let mut people = Vec::new();
    let mut text = String::from("founded\n");
    for one in &founded {
        let key = keys.get(one.uid.as_str());
        let key = key.map(String::as_str).unwrap_or_default();
        let pem = one.chain.to_pem().or_hint("certificate", "report this")?;
        let name = format!("{}.pem", one.uid);
        let path = out.join(&name);
        write_once(&path, &pem)?;
        text.push_str(&format!(
            "{}  certificate of the {} {}, key {key}\n",
            path.display(),
            one.role.name(),
            one.uid
        ));
        people.push(json!({
            "uid": one.uid, "role": one.role, "serial": one.serial, "key_sha256": key,
        }));
    }
    founding::complete(&args.data)?;
    let root = pki::cert::CertificateChain::from_pem(&root_pem);
    let root = root.or_hint("root", "report this")?.leaf_fingerprint();
    text.push_str(&format!(
        "root of the site: {root}\n\
         each person continues with `cordon id install --uid UID --certificate UID.pem --root root.pem \
         --root-fingerprint {root}`"
    ));
    let value = json!({ "people": people, "folder": out, "root_sha256": root });
    print(json, &value, &text)
}

/// The SHA-256 of each person's key by user id, after the proof that its owner signed the request.
fn keys<'a>(order: &'a FoundingOrder, requests: &[Vec<u8>]) -> Outcome<BTreeMap<&'a str, String>> {
    let each = order.people.iter().zip(requests).map(|(one, der)| {
        if one.uid.eq_ignore_ascii_case(ROOT_UID) {
            let what = format!(
                "user id {:?} is taken: {ROOT} is the root certificate",
                one.uid
            );
            return Err(Failure::new(
                anyhow::anyhow!(what),
                "choose another user id",
            ));
        }
        let what = || format!("the certification request of {} is refused", one.uid);
        let request = pki::csr::parse_and_verify(der).or_hint(what(), HINT)?;
        let key = pki::spki::spki_sha256(&request.spki).or_hint(what(), HINT)?;
        Ok((one.uid.as_str(), key))
    });
    each.collect()
}

/// Shows every person's key and asks whether to found the site.
fn confirm(keys: &BTreeMap<&str, String>) -> Outcome {
    let mut lines = String::from("Compare each fingerprint with the person:\n");
    for (uid, key) in keys {
        lines.push_str(&format!("  {}  key {key}\n", commandline::visible(uid)));
    }
    let shown = std::io::stderr().write_all(lines.as_bytes());
    shown.or_hint("cannot show the keys", "name a file with --from")?;
    match ask("Found this site? Type yes")?.as_str() {
        "yes" => Ok(()),
        _ => Err(Failure::usage(
            "nothing is founded",
            "answer yes to found the site",
        )),
    }
}

/// Writes a file unless it exists with the same content, as an earlier run of the same founding leaves it.
fn write_once(path: &Path, text: &str) -> Outcome {
    match durable::write_new(path, text.as_bytes(), 0o644) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        written => return written.or_hint(format!("cannot write {}", path.display()), DISK),
    }
    let same = durable::real().load(path, text.len());
    match same.is_ok_and(|found| found == text.as_bytes()) {
        true => Ok(()),
        false => {
            let what = anyhow::anyhow!("{} exists with other content", path.display());
            Err(Failure::new(
                what,
                "name a new folder with --out, then found again",
            ))
        }
    }
}

fn read(file: &Path) -> Outcome<FoundingOrder> {
    let text = read_text(file)?;
    toml::from_str(&text).map_err(|error| {
        let place = commandline::place(&text, &error);
        let what = anyhow::anyhow!("{}:{place}: {}", file.display(), error.message());
        Failure::new(what, HINT)
    })
}

/// Asks on the terminal; answers may come from a pipe.
fn ask_for_all() -> Outcome<FoundingOrder> {
    let organisation = ask("Organisation")?;
    let country = ask("Country, two capital letters")?;
    let names = ask("Host names and addresses of the servers, with spaces between")?;
    let names = names.split_whitespace().map(str::to_owned).collect();
    let mut people = Vec::new();
    for (role, word) in [
        (FounderRole::Administrator, "administrator"),
        (FounderRole::Registrar, "registrar"),
    ] {
        let mut number = 1;
        loop {
            let end = match number {
                1 | 2 => "",
                _ => " (empty: no more)",
            };
            let uid = ask(&format!("User id of {word} {number}{end}"))?;
            if uid.is_empty() && number > 2 {
                break;
            }
            people.push(FounderOrder {
                role,
                clearance: pki::clearance::Clearance::TopSecret,
                units: Default::default(),
                name: ask("  Name")?,
                email: ask("  Mail address")?,
                request: PathBuf::from(ask("  File with the certification request")?),
                uid,
            });
            number += 1;
        }
    }
    Ok(FoundingOrder {
        organisation,
        country,
        names,
        people,
    })
}

fn ask(question: &str) -> Outcome<String> {
    const END: &str = "answer every question, or name a file with --from";
    let mut stderr = std::io::stderr();
    let shown = write!(stderr, "{question}: ").and_then(|()| stderr.flush());
    shown.or_hint("cannot ask", END)?;
    let mut line = Vec::new();
    let stdin = std::io::stdin().lock();
    let read = stdin.take(MAX_ANSWER).read_until(b'\n', &mut line);
    if read.or_hint("cannot read the answer", END)? == 0 {
        return Err(Failure::new(
            anyhow::anyhow!("no answer to {question:?}"),
            END,
        ));
    }
    let line = String::from_utf8(line).or_hint("the answer", "answer in UTF-8")?;
    Ok(line.trim().to_owned())
}
