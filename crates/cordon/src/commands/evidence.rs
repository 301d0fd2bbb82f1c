//! `cordon evidence`: sealed blocks by hand.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use evidence::check::{self, TrustFile};
use evidence::cms::RecipientKey;
use evidence::manifest::Violation;
use evidence::open::{Opened, Opener};
use evidence::seal::{ManifestDraft, MediumSource, Sealer, Statement};
use pki::cert::{self, Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::key::Passphrase;
use pki::path::{Purpose, TrustStore};
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::cli::{Check, Evidence, Open, Seal, Unseal};
use crate::commands::{MAX_LISTS, print, read_regular, read_text};
use commandline::{OrHint as _, Outcome};
use site::control::{Request, ask};

pub(crate) async fn run(command: Evidence, json: bool) -> Outcome {
    match command {
        Evidence::Seal(args) => seal(&args, json),
        Evidence::Open(args) => open(&args, json),
        Evidence::Quarantine(command) => super::quarantine::run(command, json).await,
        Evidence::Verify(args) => verify(&args, json),
        Evidence::Check(args) => check_package(&args, json),
        Evidence::Trust(site) => {
            let value = ask(&site, Request::Trust).await?;
            let text = serde_json::to_string_pretty(&value).unwrap_or_default();
            print(json, &value, &text)
        }
        Evidence::RebuildIndex(args) => super::index::rebuild(&args, json).await,
        Evidence::AcceptLoss(args) => super::index::accept_loss(&args, json),
        Evidence::Script => super::write_out(evidence::export::SCRIPT.as_bytes()),
        Evidence::Export(args) => {
            // The site may run elsewhere: the folder's name must mean the same there.
            let out = std::path::absolute(&args.out)
                .or_hint(format!("{}", args.out.display()), "name another folder")?;
            let value = ask(&args.site, Request::Export { id: args.id, out }).await?;
            let text = format!(
                "wrote {}: its README.md says how to check it",
                args.out.display()
            );
            print(json, &value, &text)
        }
    }
}

fn check_package(args: &Check, json: bool) -> Outcome {
    const HINT: &str = "do not rely on this package; ask its sender for another one";
    let package = args.package.display();
    let text = read_text(&args.trust)?;
    let trust = TrustFile::parse(text.as_bytes()).or_hint(
        format!("cannot use {}", args.trust.display()),
        "get the file that the authority prints with `cordon evidence trust`",
    )?;
    let lists = args.crl.iter().map(|path| read_crls(path));
    let lists: Vec<Vec<Vec<u8>>> = lists.collect::<Outcome<_>>()?;
    let lists = lists.concat();
    let now = OffsetDateTime::now_utc();
    let report = check::check(&args.package, &trust, &lists, now)
        .or_hint(format!("{package} is not valid"), HINT)?;
    let epoch = match report.epoch {
        0 => String::new(),
        epoch => format!(" of epoch {epoch}, after a replacement"),
    };
    let mut text = format!(
        "{package} is valid\n\
         violation   {} of {}, number {}{epoch}\n\
         captured    {}\n\
         received    {}\n\
         exported    {}\n\
         custody     {} events, none left out up to the export; log size {}\n\
         revocation  known until {}; bring newer lists with --crl",
        report.violation,
        report.device,
        report.sequence,
        report.captured_at,
        report.received_at,
        report.exported_at,
        report.events,
        report.log_size,
        report.revocations_until,
    );
    for note in &report.notes {
        text.push_str(&format!("\nnote        {note}"));
    }
    let value = serde_json::to_value(&report).or_hint("cannot write the report", HINT)?;
    let mut value = json!({ "valid": true, "report": value });
    if let Some(object) = value.as_object_mut() {
        object.insert("package".to_owned(), json!(args.package));
    }
    print(json, &value, &text)
}

/// Facts about the pictures, as a camera's head describes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    #[serde(with = "time::serde::rfc3339")]
    captured_at: OffsetDateTime,
    classification: Clearance,
    violation: Violation,
}

fn passphrase(file: &Path) -> Outcome<Passphrase> {
    Ok(Passphrase::from(read_text(file)?.trim_end()))
}

fn chain(path: &Path) -> Outcome<CertificateChain> {
    pki::file::load_chain(path).or_hint(
        format!("cannot read {}", path.display()),
        "pass PEM certificates, leaf first",
    )
}

fn seal(args: &Seal, json: bool) -> Outcome {
    let key = pki::file::load_private(&args.key, &passphrase(&args.passphrase_file)?).or_hint(
        format!("cannot read {}", args.key.display()),
        "check the key and passphrase",
    )?;
    let recipients = args
        .recipient
        .iter()
        .map(|path| Ok(chain(path)?.leaf().clone()));
    let recipients: Vec<Certificate> = recipients.collect::<Outcome<_>>()?;
    let sealer = Sealer::new(key, chain(&args.chain)?, recipients).or_hint(
        "cannot seal with these keys",
        "check --key, --chain and --recipient",
    )?;
    let meta: Meta = serde_json::from_str(&read_text(&args.meta)?).or_hint(
        format!("{} does not describe a violation", args.meta.display()),
        "see docs/camera.md for the format",
    )?;
    let previous = args.previous.as_deref().unwrap_or(&"0".repeat(64)).parse();
    let draft = ManifestDraft {
        sequence: args.sequence,
        previous: previous.or_hint("--previous", "pass 64 lower-case hexadecimal digits")?,
        captured_at: meta.captured_at,
        classification: meta.classification,
        statement: Statement::Violation(meta.violation),
    };
    let media = args
        .media
        .iter()
        .map(|path| medium(path))
        .collect::<Outcome<Vec<_>>>()?;
    let folder = args
        .out
        .parent()
        .filter(|f| !f.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // Complete under its name or not there at all.
    let target = tempfile::NamedTempFile::new_in(folder).or_hint(
        format!("cannot write into {}", folder.display()),
        "check the folder",
    )?;
    let mut out = BufWriter::new(target);
    let sealed = sealer.seal(draft, media, OffsetDateTime::now_utc(), &mut out);
    let sealed = sealed.or_hint("cannot seal", "check the media and their description")?;
    let target = out
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    let target = target.or_hint("cannot write the block", "check the disk")?;
    target
        .as_file()
        .sync_all()
        .and_then(|()| {
            target
                .persist_noclobber(&args.out)
                .map_err(|e| e.error)
                .map(drop)
        })
        .and_then(|()| durable::sync_parent(&args.out))
        .or_hint(
            format!("cannot write {}", args.out.display()),
            "name a file that does not exist",
        )?;
    let value = json!({
        "block": args.out,
        "block_sha256": sealed.block_sha256.to_string(),
        "size": sealed.block_size,
        "manifest_sha256": sealed.manifest_sha256.to_string(),
        "sequence": sealed.manifest.sequence,
    });
    let text = format!(
        "sealed {} bytes into {}\nblock     {}\nmanifest  {}  (--previous of the next block)",
        sealed.block_size,
        args.out.display(),
        sealed.block_sha256,
        sealed.manifest_sha256,
    );
    print(json, &value, &text)
}

fn medium(path: &Path) -> Outcome<MediumSource<'static>> {
    let file = File::open(path).or_hint(
        format!("cannot read {}", path.display()),
        "name existing media files",
    )?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let media_type = match path.extension().and_then(|e| e.to_str()) {
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        Some("mp4") => "video/mp4",
        _ => "application/octet-stream",
    };
    Ok(MediumSource {
        name,
        media_type: media_type.to_owned(),
        reader: Box::new(BufReader::new(file)),
    })
}

/// Opens the block and checks who signed it.
fn unseal(args: &Unseal) -> Outcome<Opened<BufReader<File>>> {
    const HINT: &str = "do not trust this block; compare it with the sender's copy";
    let key = pki::file::load_private(&args.key, &passphrase(&args.passphrase_file)?).or_hint(
        format!("cannot read {}", args.key.display()),
        "check the key and passphrase",
    )?;
    let certificate = chain(&args.certificate)?.leaf().clone();
    let key = RecipientKey::new(key, certificate).or_hint(
        "key and certificate do not belong together",
        "check --key and --certificate",
    )?;
    let block = args.block.display();
    let file = File::open(&args.block).or_hint(format!("cannot read {block}"), "check the file")?;
    let opened = Opener::new(vec![key])
        .open(BufReader::new(file))
        .or_hint(format!("{block} is refused"), HINT)?;

    let roots = chain(&args.root)?;
    let trust = TrustStore::new(roots.certificates(), &[]).or_hint(
        format!("{} is no root", args.root.display()),
        "pass the root certificate",
    )?;
    // The lists are signed by the authorities that the block brings along.
    let issuers = opened
        .signer_chain
        .certificates()
        .get(1..)
        .unwrap_or_default()
        .to_vec();
    let trust = if args.crl.is_empty() {
        trust
    } else {
        let trust = TrustStore::new(roots.certificates(), &issuers).or_hint("issuers", HINT)?;
        for path in &args.crl {
            for der in read_crls(path)? {
                trust.accept_crl(&der, OffsetDateTime::now_utc()).or_hint(
                    format!("{} is not usable", path.display()),
                    "fetch a fresh list",
                )?;
            }
        }
        trust
    };
    // A certificate may have expired since; what counts is the time of signing.
    trust
        .validate(
            opened.signer_chain.ders(),
            Purpose::DeviceSigner,
            opened.signing_time,
        )
        .or_hint(format!("the signer of {block} is not trusted"), HINT)?;
    Ok(opened)
}

/// The revocation lists of a file: one in DER, or any number in PEM.
fn read_crls(path: &Path) -> Outcome<Vec<Vec<u8>>> {
    const HINT: &str = "pass revocation lists in DER or PEM";
    const END: &[u8] = b"-----END X509 CRL-----";
    let failed = || format!("cannot read {}", path.display());
    let bytes = read_regular(path, MAX_LISTS, HINT)?;
    if !bytes.starts_with(b"-----BEGIN") {
        return Ok(vec![bytes.to_vec()]);
    }
    let mut lists = Vec::new();
    let mut rest = bytes.trim_ascii();
    while !rest.is_empty() {
        let end = rest.windows(END.len()).position(|part| part == END);
        let end = end.map_or(rest.len(), |at| at + END.len());
        let (one, others) = rest.split_at(end);
        let (_, der) = der::pem::decode_vec(one)
            .map_err(|e| anyhow::anyhow!("{e}"))
            .or_hint(failed(), HINT)?;
        lists.push(der);
        rest = others.trim_ascii();
    }
    Ok(lists)
}

fn describe(opened: &Opened<BufReader<File>>) -> Outcome<(Value, String)> {
    let manifest: Value =
        serde_json::from_slice(&opened.manifest_bytes).or_hint("manifest", "report this")?;
    let signed = opened
        .signing_time
        .format(&time::format_description::well_known::Rfc3339);
    let signed = signed.unwrap_or_default();
    let fingerprint = opened.signer_chain.leaf_fingerprint();
    let value = json!({
        "verified": true,
        "signed_at": &signed,
        "signer_sha256": fingerprint,
        "manifest_sha256": opened.manifest_sha256.to_string(),
        "manifest": manifest,
    });
    let mut text = format!(
        "the block holds: signed by {} at {}\nsigner    {fingerprint}\nmanifest  {}  (number {})\n",
        opened.manifest.device, signed, opened.manifest_sha256, opened.manifest.sequence,
    );
    for medium in &opened.manifest.media {
        text.push_str(&format!(
            "{}  {} bytes  {}\n",
            medium.sha256, medium.size, medium.name
        ));
    }
    Ok((value, text))
}

fn verify(args: &Unseal, json: bool) -> Outcome {
    let mut opened = unseal(args)?;
    opened.verify_media().or_hint(
        format!("{} is refused", args.block.display()),
        "do not trust this block; compare it with the sender's copy",
    )?;
    let (value, text) = describe(&opened)?;
    print(json, &value, &text)
}

fn open(args: &Open, json: bool) -> Outcome {
    let block = args.unseal.block.display();
    let mut opened = unseal(&args.unseal)?;
    std::fs::create_dir(&args.out).or_hint(
        format!("cannot make {}", args.out.display()),
        "name a new folder with --out",
    )?;
    let written = write_media(&mut opened, &args.out);
    if written.is_err() {
        // What failed its checks must not lie about looking like evidence.
        let _ = std::fs::remove_dir_all(&args.out);
    }
    written.or_hint(
        format!("{block} is refused, nothing was kept"),
        "do not trust this block; compare it with the sender's copy",
    )?;
    let (value, text) = describe(&opened)?;
    print(json, &value, &text)
}

fn write_media(opened: &mut Opened<BufReader<File>>, out: &Path) -> anyhow::Result<()> {
    std::fs::write(out.join("manifest.json"), &opened.manifest_bytes)?;
    std::fs::write(out.join("manifest.p7s"), &opened.signed_data_der)?;
    let signer = opened.signer_chain.certificates().iter().map(cert::to_pem);
    std::fs::write(
        out.join("signer.pem"),
        signer.collect::<Result<String, _>>()?,
    )?;
    for index in 0..opened.manifest.media.len() {
        let name = opened
            .manifest
            .media
            .get(index)
            .map(|m| m.name.clone())
            .unwrap_or_default();
        let mut file = BufWriter::new(File::create_new(out.join(name))?);
        opened.read_medium(index, &mut file)?;
        file.flush()?;
    }
    Ok(())
}
