//! Pages of the portal over more and more violations.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CURL, PAGES as FIGURE, SQLITE};
use crate::LabError;
use crate::experiments::OPENSSL;
use crate::network::{Network, Side};
use crate::process::Call;
use crate::session::Round;
use crate::uploader::{Agent, Original, Site};

/// The pages that are asked for.
pub(super) const PAGES: [&str; 6] = ["thumbnail", "detail", "list", "search", "start", "cameras"];
/// Memory that a violation takes in the index, with its entries in the search.
pub(super) const VIOLATION_BYTES: u64 = 4000;
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
        agent.stage(original, 1, false)?;
        agent.go()?;
        agent.delivered()?;
        agent.stop();
        let root = site.data().join("pki/root.pem");
        let index = site.data().join("centre/centre.sqlite");
        site.stop();
        let sqlite = SQLITE.path().unwrap_or_else(|| SQLITE.name.into());
        let shown = Call::new(&sqlite)
            .arg(&index)
            .arg("SELECT id FROM violations")
            .run()?;
        Call::new(sqlite)
            .arg(&index)
            .input(rows(violations))
            .limit(Duration::from_secs(600))
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

/// Statements that add violations to an index until it has so many, as the intake writes them; triggers count, and
/// the next start makes the entries of the search.
fn rows(violations: u32) -> String {
    format!(
        "PRAGMA synchronous = OFF;
         BEGIN;
         INSERT INTO audiences (unit, classification)
           SELECT u.value, c.value FROM json_each('[\"traffic\",\"harbour\",\"border\"]') u, json_each('[0,1,2,3]') c WHERE true
           ON CONFLICT DO NOTHING;
         INSERT INTO violation_groups (audience, state) SELECT id, 'open' FROM audiences WHERE true ON CONFLICT DO NOTHING;
         CREATE TEMP TABLE kinds AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS place
           FROM violation_groups WHERE state = 'open';
         CREATE TEMP TABLE numbers AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {violations})
           SELECT i, printf('%064x', i) AS name, 'camera-' || (100 + i % 50) AS device, i / 50 + 1 AS number,
             CAST(strftime('%s') AS INTEGER) * 1000 - 3600000 - i * 1000 AS at FROM n;
         INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, sequence, manifest_sha256, log_index, receipt)
           SELECT name, device, 1, at, 'accepted', '', number, name, 1, x'00' FROM numbers;
         INSERT INTO chain SELECT device, number, name, name, name FROM numbers;
         INSERT INTO violations SELECT at << 15, printf('v-%016x', i), name, device,
           (SELECT id FROM kinds WHERE place = i % (SELECT count(*) FROM kinds)), number, at, 'speeding',
           'A' || (i % 7) || ' km ' || (i % 41), 0, 0, 100 + i % 90, 90, printf('KR %07d', abs(random()) % 10000000), 1,
           printf('%900s', 'x') FROM numbers;
         DELETE FROM violation_text_version;
         COMMIT;\n"
    )
}
