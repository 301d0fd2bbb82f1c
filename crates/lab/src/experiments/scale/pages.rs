//! Pages of the portal over more and more violations.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::{CURL, PAGES as FIGURE, SQLITE};
use crate::LabError;
use crate::experiments::OPENSSL;
use crate::network::{Network, Side};
use crate::process::Call;
use crate::session::Round;
use crate::uploader::{Agent, Original, Site};

/// The pages that are asked for.
pub(super) const PAGES: [&str; 6] = ["thumbnail", "detail", "list", "search", "start", "cameras"];
/// Memory that a violation takes: its picture as staged, sealed and archived, and its rows.
pub(super) const VIOLATION_BYTES: u64 = 4 * PICTURE as u64;
/// Bytes of each picture.
pub(super) const PICTURE: usize = 100_000;
/// User id of the client.
const PERSON: &str = "reviewer-3";

/// A site with so many violations.
pub(super) struct Filled<'a> {
    network: &'a Network,
    site: Site<'a>,
    violations: u32,
    /// Certificate and key of who asks, and the site's root.
    identity: PathBuf,
    root: PathBuf,
    /// The violation of which there are media.
    shown: String,
}

impl<'a> Filled<'a> {
    pub(super) fn start(
        network: &'a Network,
        folder: &Path,
        original: &Original,
        violations: u32,
    ) -> Result<Self, LabError> {
        let folder = folder.join(format!("violations-{violations}"));
        // Each is a host of its own.
        let address = Ipv4Addr::from_bits(Side::Server.outside().to_bits() + violations.ilog2());
        let words = ["address", "add", &format!("{address}/24"), "dev", "cable"];
        network.ip(Side::Server, &words)?;
        let site = Site::start(network, address, &folder)?;
        let identity = person(&site, &folder)?;
        let mut agent = Agent::start(network, &site.camera("camera-17")?)?;
        agent.ready()?;
        // A site shows nothing that its log and its archive do not have, so each violation is sent by a camera.
        agent.stage(original, violations as usize, false)?;
        agent.go()?;
        agent.delivered()?;
        agent.stop();
        let root = site.data().join("pki/root.pem");
        let index = site.data().join("centre/centre.sqlite");
        site.stop();
        let sqlite = SQLITE.path().unwrap_or_else(|| SQLITE.name.into());
        let shown = Call::new(&sqlite)
            .arg(&index)
            .arg("SELECT id FROM violations LIMIT 1")
            .run()?;
        Ok(Self {
            network,
            site: Site::start(network, address, &folder)?,
            violations,
            identity,
            root,
            shown: shown.stdout.trim().to_owned(),
        })
    }

    /// Processor time of the site for a page, over one connection.
    pub(super) fn page(
        &self,
        page: &str,
        requests: u32,
        round: &mut Round,
    ) -> Result<(), LabError> {
        let shown = &self.shown;
        let path = match page {
            "thumbnail" => format!("/violations/{shown}/thumbnail"),
            "detail" => format!("/violations/{shown}"),
            "list" => "/violations".to_owned(),
            "search" => "/violations?plate=KR+00".to_owned(),
            "cameras" => "/cameras".to_owned(),
            _ => "/".to_owned(),
        };
        let address = self.site.page(&path);
        self.ask(&address, 2)?;
        let before = self.site.usage().cpu;
        self.ask(&address, requests)?;
        let used = self.site.usage().cpu - before;
        let each = used * 1000.0 / f64::from(requests);
        round.put_at(FIGURE, self.violations.into(), each);
        Ok(())
    }

    fn ask(&self, address: &str, requests: u32) -> Result<(), LabError> {
        let curl = CURL.path().unwrap_or_else(|| CURL.name.into());
        let one = format!("url = \"{address}\"\noutput = \"/dev/null\"\n");
        let done = self
            .network
            .call(Side::Server, curl)
            .args([
                "--silent",
                "--show-error",
                "--http1.1",
                "--write-out",
                "%{http_code} %{num_connects}\n",
            ])
            .arg("--cacert")
            .arg(&self.root)
            .arg("--cert")
            .arg(&self.identity)
            .args(["--config", "-"])
            .input(one.repeat(requests as usize))
            .run()?;
        let answers: Vec<&str> = done.stdout.lines().collect();
        let [first, others @ ..] = answers.as_slice() else {
            return Err(LabError::Unexpected("curl said nothing".to_owned()));
        };
        if answers.len() != requests as usize
            || *first != "200 1"
            || others.iter().any(|a| *a != "200 0")
        {
            let text = format!("{address} was answered {first}, then {others:?}");
            return Err(LabError::Unexpected(text));
        }
        Ok(())
    }
}

/// Makes who asks known to the site, and returns certificate and key.
fn person(site: &Site<'_>, folder: &Path) -> Result<PathBuf, LabError> {
    let failed = || LabError::io("files of a person");
    let people = folder.join("people.jsonl");
    let text = format!(
        "{{\"uid\": \"{PERSON}\", \"name\": \"Test {PERSON}\", \"email\": \"{PERSON}@example.org\", \
         \"organisation\": \"LEA-EU\", \"clearance\": 3, \"roles\": [\"officer\", \"reviewer\"], \
         \"units\": [\"traffic\"]}}\n"
    );
    std::fs::write(&people, text).map_err(failed())?;
    site.ask(&["directory", "import", &people.to_string_lossy()])?;
    let bundle = folder.join("person.p12");
    site.ask(&[
        "pki",
        "issue-user",
        "--uid",
        PERSON,
        "--out",
        &bundle.to_string_lossy(),
    ])?;
    let identity = folder.join("person.pem");
    let openssl = OPENSSL.path().unwrap_or_else(|| OPENSSL.name.into());
    let password = folder.join("person.p12.password");
    Call::new(openssl)
        .args(["pkcs12", "-nodes", "-in"])
        .arg(&bundle)
        .arg("-passin")
        .arg(format!("file:{}", password.display()))
        .arg("-out")
        .arg(&identity)
        .run()?;
    Ok(identity)
}
