//! Custody packages on their way out: into a folder of the administrator, or to a browser as a ZIP
//! file that is made while it is read. Neither leaves plaintext behind.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use access::Principal;
use audit::SharedLog;
use axum::body::{Body, Bytes};
use centre::{Export, ExportContext, ProofError, ReviewError};
use evidence::check::{self, TrustFile};
use evidence::export::{CustodyEvent, ExportError, Fill, FolderTarget, LogProof, Target};
use pki::oid::ExtensionArc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use zip::write::{SimpleFileOptions, StreamWriter, ZipWriter};

use crate::failure::{OrHint as _, Outcome};
use crate::parts::centre_parts::CentreParts;
use crate::trust_state::TrustState;

/// Bytes that go to a reader at a time.
const PIECE: usize = 64 * 1024;
/// Pieces that wait for a reader.
const PIECES: usize = 4;
/// A reader that takes no piece for this long is given up, and its thread freed.
const STALLED: Duration = Duration::from_secs(30);

/// Collects everything for one export.
pub(crate) fn context(audit: &SharedLog, trust: &TrustState) -> Outcome<ExportContext> {
    let audit = audit.clone();
    Ok(ExportContext {
        root_pem: trust.root_pem()?,
        crls_pem: trust.crls_pem(),
        prove: Box::new(move |indices| prove(&audit, indices)),
    })
}

fn prove(audit: &SharedLog, indices: &[u64]) -> Result<LogProof, ProofError> {
    let view = audit.view()?;
    let mut events = Vec::with_capacity(indices.len());
    for &index in indices {
        let entry = view.entry(index)?;
        let proof = view.inclusion_proof(index)?;
        events.push(CustodyEvent {
            entry,
            index,
            proof,
        });
    }
    Ok(LogProof {
        checkpoint: view.note().to_owned(),
        origin: audit.verifier().name().to_owned(),
        public_key: *audit.verifier().public_key(),
        events,
    })
}

/// Builds the trust that a verifier of this site's packages must have beforehand.
pub(crate) fn trust_file(parts: &CentreParts) -> Outcome<TrustFile> {
    const HINT: &str = "check pki/root.pem";
    let root = check::fingerprint(&parts.trust.root()).or_hint("cannot read the root", HINT)?;
    let arc = ExtensionArc::default().ca_kind.parent();
    let arc = arc.map(|arc| arc.to_string()).unwrap_or_default();
    let verifier = parts.audit.verifier();
    Ok(TrustFile::new(
        root,
        arc,
        verifier.name().to_owned(),
        verifier.public_key(),
    ))
}

/// Writes a package that the access rules let `who` export into a new folder, which only its owner can read.
pub(crate) async fn into_folder(
    parts: &CentreParts,
    who: &Principal,
    id: &str,
    out: &Path,
) -> Outcome<serde_json::Value> {
    const HINT: &str = "check the violation's name and that the folder does not exist yet";
    let failed = || format!("cannot export {id}");
    let context = context(&parts.audit, &parts.trust)?;
    // First, so that a name that is taken costs no event.
    let mut target = FolderTarget::begin(out).or_hint(failed(), HINT)?;
    let export = parts.centre.review().export(who, id, context).await;
    let hint = match &export {
        Err(ReviewError::Denied { .. }) => {
            "ask a reviewer of the unit with that clearance to export it, by --as FILE and --as-password-file FILE"
        }
        _ => HINT,
    };
    let export = export.or_hint(failed(), hint)?;
    tokio::task::spawn_blocking(move || export.write(&mut target))
        .await
        .or_hint(failed(), HINT)?
        .or_hint(failed(), HINT)?;
    Ok(serde_json::json!({ "violation": id, "folder": out }))
}

/// The package as a ZIP file whose bytes are made while they are read, in bounded memory.
///
/// After an error the stream ends with that error, and without the directory that a ZIP file ends
/// with, so that a part cannot pass for the whole.
pub(crate) fn stream(export: Export, folder: String) -> Body {
    let (sender, pieces) = mpsc::channel(PIECES);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let pieces = Pieces { sender, runtime };
        let mut target = ZipTarget::new(BufWriter::with_capacity(PIECE, pieces.clone()), folder);
        if let Err(error) = export.write(&mut target) {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::warn!(error, "an export was not written to its end");
            // Without it the reader would wait for the end of the file.
            let _ = pieces.send(Err(io::Error::other("the export failed")));
        }
    });
    Body::from_stream(futures_util::stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    }))
}

/// A writer whose bytes go to a reader elsewhere.
#[derive(Clone)]
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
}

impl Pieces {
    fn send(&self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = async { tokio::time::timeout(STALLED, self.sender.send(piece)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(Ok(Bytes::copy_from_slice(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A ZIP file, stored without compression: pictures and sealed blocks have none left in them.
struct ZipTarget<W: Write> {
    archive: Option<ZipWriter<StreamWriter<W>>>,
    folder: String,
}

impl<W: Write> ZipTarget<W> {
    fn new(out: W, folder: String) -> Self {
        Self {
            archive: Some(ZipWriter::new_stream(out)),
            folder,
        }
    }
}

fn io_error(error: impl Into<io::Error>) -> ExportError {
    ExportError::Io(error.into())
}

impl<W: Write> Target for ZipTarget<W> {
    fn file(&mut self, name: &str, fill: &mut Fill<'_>) -> Result<(), ExportError> {
        let ended = || io_error(io::ErrorKind::BrokenPipe);
        let archive = self.archive.as_mut().ok_or_else(ended)?;
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .large_file(true);
        archive
            .start_file(format!("{}/{name}", self.folder), options)
            .map_err(io_error)?;
        fill(archive)
    }

    fn finish(&mut self) -> Result<(), ExportError> {
        let ended = || io_error(io::ErrorKind::BrokenPipe);
        let archive = self.archive.take().ok_or_else(ended)?;
        let mut out = archive.finish().map_err(io_error)?;
        out.flush().map_err(ExportError::Io)
    }
}

/// Removes the temporary folders in which versions before the streamed export kept packages in the
/// clear, when they were killed half-way.
pub(crate) fn sweep(data: &Path) -> io::Result<()> {
    for item in std::fs::read_dir(data)? {
        let item = item?;
        let name = item.file_name();
        let name = name.to_str().unwrap_or_default();
        let random = name.strip_prefix(".tmp").unwrap_or_default();
        let ours = random.len() == 6 && random.bytes().all(|b| b.is_ascii_alphanumeric());
        if ours && item.file_type()?.is_dir() && holds_packages(&item.path())? {
            std::fs::remove_dir_all(item.path())?;
            tracing::warn!(folder = name, "removed what an interrupted export left");
        }
    }
    Ok(())
}

/// Whether a folder has nothing but folders of violations in it.
fn holds_packages(folder: &Path) -> io::Result<bool> {
    for item in std::fs::read_dir(folder)? {
        let name = item?.file_name();
        let name = name.to_str().unwrap_or_default();
        let name = name.strip_suffix(".partial").unwrap_or(name);
        let id = name.strip_prefix("v-").unwrap_or_default();
        if id.len() != 16 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_interrupted_exports_and_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::create_dir_all(data.path().join(name)).unwrap();
        make(".tmpAb12Cd/v-0123456789abcdef/media");
        make(".tmpAb12Ce/v-0123456789abcdef.partial");
        let kept = [
            ".tmpAb12Cf/something",
            ".tmpAb12Cg1/v-0123456789abcdef",
            "centre/v-0123456789abcdef",
        ];
        kept.iter().for_each(|name| make(name));
        sweep(data.path()).unwrap();
        assert!(kept.iter().all(|name| data.path().join(name).exists()));
        assert!(!data.path().join(".tmpAb12Cd").exists());
        assert!(!data.path().join(".tmpAb12Ce").exists());
    }

    #[test]
    fn zip_file_made_as_a_stream_is_read_by_the_library() {
        let mut out = Vec::new();
        let mut target = ZipTarget::new(&mut out, "v-1".to_owned());
        for name in ["a", "media/01-b.jpg"] {
            target
                .file(name, &mut |out| {
                    out.write_all(name.as_bytes()).map_err(ExportError::Io)
                })
                .unwrap();
        }
        target.finish().unwrap();
        drop(target);
        let mut archive = zip::ZipArchive::new(io::Cursor::new(out)).unwrap();
        let mut text = String::new();
        let mut file = archive.by_name("v-1/media/01-b.jpg").unwrap();
        io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "media/01-b.jpg");
    }
}
