//! The checks a block has to pass before it counts as evidence; no database, blocking.
//!
//! Order: the block's own integrity, then who signed it and whether that was allowed, then the
//! claims against what we know (device, clocks), then the media: hash and malware.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Duration;

use evidence::manifest::Manifest;
use evidence::open::{OpenError, Opened};
use pki::path::{Identity, PathError, Purpose, TrustStore};
use time::OffsetDateTime;

use crate::keys::Keys;
use crate::reasons::{OTHER_SENDER, RELEASABLE, REPLAYED, SEQUENCE_FORK};

use super::scan::{Scan, ScanError, ScanResult, ScannerAddress};

/// Distance by which a camera's clock may be ahead of ours.
const MAX_AHEAD: Duration = Duration::from_secs(5 * 60);
/// Age that a violation may have when it arrives: a camera that was cut off for half a year is still
/// served, a clock that fell back to 1970 is noticed.
const MAX_AGE: Duration = Duration::from_secs(400 * 24 * 3600);

/// A block that passed everything except its place in the camera's sequence.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) manifest: Manifest,
    pub(crate) manifest_bytes: Vec<u8>,
    /// End of the signer's certificate, if that came before the block did.
    pub(crate) signer_expired: Option<OffsetDateTime>,
}

/// Why a block is kept in quarantine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the block cannot be opened")]
    Open(#[from] OpenError),
    #[error("the signer's certificate is not acceptable")]
    Signer(#[from] PathError),
    #[error("the block of {device} was sent by {sender}")]
    OtherSender { device: String, sender: String },
    #[error("the block was sealed in the future, at {0}")]
    FromTheFuture(OffsetDateTime),
    #[error("the violation is too old, from {0}")]
    TooOld(OffsetDateTime),
    #[error("the violation was captured at {captured}, after it was sealed at {sealed}")]
    CapturedAfterSealing {
        captured: OffsetDateTime,
        sealed: OffsetDateTime,
    },
    #[error("the signing certificate was not valid at the signing time {0}")]
    SignedOutsideValidity(OffsetDateTime),
    #[error("classification {0} is above the camera's clearance {1}")]
    AboveClearance(u8, u8),
    #[error("medium {medium} holds malware: {name}")]
    Infected { medium: String, name: String },
    #[error("medium {medium} is larger than the malware scanner takes")]
    NotScanned { medium: String },
    #[error("sequence number {0} of this camera is taken by another block")]
    Fork(u64),
    #[error("the manifest {0} of this camera arrived before in another block")]
    Replay(u64),
}

impl Refusal {
    /// Stable name of the reason, in kebab case.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Open(e) => e.code(),
            Self::Signer(e) => e.code(),
            Self::OtherSender { .. } => OTHER_SENDER,
            Self::FromTheFuture(_) => "from-the-future",
            Self::TooOld(_) => "too-old",
            Self::CapturedAfterSealing { .. } => "captured-after-sealing",
            Self::SignedOutsideValidity(_) => "signed-outside-validity",
            Self::AboveClearance(..) => "above-clearance",
            Self::Infected { .. } => "malware",
            Self::NotScanned { .. } => "not-scanned",
            Self::Fork(_) => SEQUENCE_FORK,
            Self::Replay(_) => REPLAYED,
        }
    }
}

/// A refused block.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// Its number, if the camera that brought it signed it.
    pub(crate) number: Option<u64>,
}

impl Refused {
    const fn unsigned(refusal: Refusal) -> Self {
        Self {
            refusal,
            number: None,
        }
    }

    fn of(refusal: Refusal, number: u64) -> Self {
        let is_signed = match &refusal {
            Refusal::Signer(error) => matches!(error, PathError::Revoked { .. }),
            Refusal::OtherSender { .. } => false,
            _ => true,
        };
        Self {
            refusal,
            number: is_signed.then_some(number),
        }
    }
}

/// Checks that a person has stated to be no obstacle; none, for every block that just arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exceptions {
    codes: Vec<String>,
    /// When the block was here, if that is not now: it must not become too old in quarantine.
    arrived: Option<OffsetDateTime>,
}

impl Exceptions {
    /// `None` if one of `codes` is not [`RELEASABLE`].
    pub(crate) fn new(codes: &[String]) -> Option<Self> {
        let known = |code: &String| RELEASABLE.contains(&code.as_str());
        codes.iter().all(known).then(|| Self {
            codes: codes.to_vec(),
            arrived: None,
        })
    }

    pub(crate) fn arrived(self, at: OffsetDateTime) -> Self {
        Self {
            arrived: Some(at),
            ..self
        }
    }

    fn hold(&self, code: &str) -> bool {
        self.codes.iter().any(|excepted| excepted == code)
    }

    /// The refusal, unless it is excepted.
    fn refuse(&self, refusal: Refusal) -> Result<(), Refusal> {
        if self.hold(refusal.code()) {
            Ok(())
        } else {
            Err(refusal)
        }
    }
}

/// A verification that could not be carried out; the block waits.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerifyFailure {
    #[error("the block's file cannot be read")]
    Io(#[from] io::Error),
    #[error("the malware scanner gives no result")]
    Scan(#[from] ScanError),
}

/// Inputs of the checks.
pub(crate) struct Verifier {
    pub(crate) keys: Keys,
    pub(crate) trust: TrustStore,
    pub(crate) scanner: Option<ScannerAddress>,
}

impl Verifier {
    /// Checks the block in the file `path` that `sender` brought.
    ///
    /// The outer error means "not now", the inner one "never".
    pub(crate) fn verify(
        &self,
        path: &Path,
        sender: &str,
        now: OffsetDateTime,
        exceptions: &Exceptions,
    ) -> Result<Result<Verified, Refused>, VerifyFailure> {
        let file = BufReader::new(File::open(path)?);
        let mut opened = match self.keys.opener().open(file) {
            Ok(opened) => opened,
            Err(error) => return Ok(not_now_or_never(error)?.map_err(Refused::unsigned)),
        };
        let number = opened.manifest.sequence;
        let expired = match self.check_claims(&opened, sender, now, exceptions) {
            Ok(expired) => expired,
            Err(refusal) => return Ok(Err(Refused::of(refusal, number))),
        };
        for index in 0..opened.manifest.media.len() {
            if let Err(refusal) = self.check_medium(&mut opened, index, exceptions)? {
                return Ok(Err(Refused::of(refusal, number)));
            }
        }
        let Opened {
            manifest,
            manifest_bytes,
            ..
        } = opened;
        Ok(Ok(Verified {
            manifest,
            manifest_bytes,
            signer_expired: expired,
        }))
    }

    fn check_medium(
        &self,
        opened: &mut Opened<BufReader<File>>,
        index: usize,
        exceptions: &Exceptions,
    ) -> Result<Result<(), Refusal>, VerifyFailure> {
        let Some(address) = &self.scanner else {
            return match opened.read_medium(index, &mut io::sink()) {
                Ok(_) => Ok(Ok(())),
                Err(error) => not_now_or_never(error),
            };
        };
        let mut scan = Scan::start(address)?;
        let result = match opened.read_medium(index, &mut scan) {
            Ok(_) => scan.finish()?,
            // clamd closes the stream when it has seen enough, and says why.
            Err(OpenError::Write(cause)) => match scan.answer() {
                Ok(ScanResult::TooLarge) => ScanResult::TooLarge,
                _ => return Err(VerifyFailure::Io(cause)),
            },
            Err(error) => return not_now_or_never(error),
        };
        let medium = || {
            let medium = opened.manifest.media.get(index);
            medium.map(|m| m.name.clone()).unwrap_or_default()
        };
        Ok(match result {
            ScanResult::Clean => Ok(()),
            ScanResult::Infected(name) => Err(Refusal::Infected {
                medium: medium(),
                name,
            }),
            // Trying again would never end; unscanned it must not reach anybody.
            ScanResult::TooLarge => exceptions.refuse(Refusal::NotScanned { medium: medium() }),
        })
    }

    /// Checks who signed and what is claimed; gives the end of the signer's certificate if it has expired
    /// since.
    fn check_claims<R>(
        &self,
        opened: &Opened<R>,
        sender: &str,
        now: OffsetDateTime,
        exceptions: &Exceptions,
    ) -> Result<Option<OffsetDateTime>, Refusal> {
        let manifest = &opened.manifest;
        if manifest.device != sender {
            exceptions.refuse(Refusal::OtherSender {
                device: manifest.device.clone(),
                sender: sender.to_owned(),
            })?;
        }
        let signer = self.signer(opened, now, exceptions)?;
        let arrived = exceptions.arrived.unwrap_or(now);
        let signed = opened.signing_time;
        if signed < signer.not_before || signed > signer.not_after {
            exceptions.refuse(Refusal::SignedOutsideValidity(signed))?;
        }
        if manifest.sealed_at > arrived + MAX_AHEAD {
            exceptions.refuse(Refusal::FromTheFuture(manifest.sealed_at))?;
        }
        if manifest.captured_at > manifest.sealed_at + MAX_AHEAD {
            exceptions.refuse(Refusal::CapturedAfterSealing {
                captured: manifest.captured_at,
                sealed: manifest.sealed_at,
            })?;
        }
        if manifest.captured_at < arrived - MAX_AGE {
            exceptions.refuse(Refusal::TooOld(manifest.captured_at))?;
        }
        if manifest.classification > signer.clearance {
            let levels = (manifest.classification.level(), signer.clearance.level());
            exceptions.refuse(Refusal::AboveClearance(levels.0, levels.1))?;
        }
        Ok((signer.not_after < now).then_some(signer.not_after))
    }

    /// Validates the signer at the time that decides, and its revocation now.
    ///
    /// A block that was sealed in time counts however late it arrives: the camera was cut off, or
    /// renewed its certificate meanwhile. The time of signing is the camera's word, by a clock that may
    /// be ahead. That it is this camera's shows the present certificate of the same, enrolled
    /// device, which brings the block; when it was here, the log's event. A former key alone gives no access: two people
    /// decide about a block that another device brings.
    fn signer<R>(
        &self,
        opened: &Opened<R>,
        now: OffsetDateTime,
        exceptions: &Exceptions,
    ) -> Result<Identity, Refusal> {
        let chain = &opened.signer_chain;
        let end = chain.leaf().tbs_certificate.validity.not_after;
        let at = now.min(end.to_system_time().into());
        let signed = opened
            .signing_time
            .saturating_sub(MAX_AHEAD.try_into().unwrap_or_default());
        let purpose = Purpose::DeviceSigner;
        let outcome = self
            .trust
            .validate_signer(chain.ders(), purpose, signed, at, now);
        match outcome {
            Err(error @ PathError::Revoked { .. }) => {
                exceptions.refuse(Refusal::Signer(error))?;
                // The path itself is no matter of exceptions.
                let validated =
                    self.trust
                        .validate_ignoring_revocation(chain.ders(), purpose, at)?;
                Ok(validated.identity.clone())
            }
            outcome => Ok(outcome?),
        }
    }
}

/// An unreadable disk or a broken scanner connection says nothing about the block.
fn not_now_or_never<T>(error: OpenError) -> Result<Result<T, Refusal>, VerifyFailure> {
    match error {
        OpenError::Read(e) | OpenError::Write(e) => Err(VerifyFailure::Io(e)),
        refused => Ok(Err(Refusal::Open(refused))),
    }
}
