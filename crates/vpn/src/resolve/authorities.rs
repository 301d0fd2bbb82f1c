//! Authorities of the file and of its connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pki::ocsp::OcspPolicy;

use super::{Reader, ResolveError, certificates, wrong};
use crate::config::{DaemonConfig, TrustConfig};
use crate::trust::{Authorities, Trust};

/// Reads the authorities of the whole file.
pub(super) fn general(
    config: Option<&TrustConfig>,
    folder: &Path,
) -> Result<Authorities, ResolveError> {
    let Some(trust) = config else {
        return Ok(Authorities::default());
    };
    if let Some(what) = trust.unfit_responders() {
        return Err(wrong("[trust]", what));
    }
    if trust.anchors.is_empty() {
        // The rest says how revocation is looked at in connections that have authorities of their own.
        return Ok(Authorities::default());
    }
    let made = read(
        (&trust.anchors, &trust.intermediates),
        config,
        folder,
        "[trust]",
    )?;
    Ok(Authorities::new(Some(made)))
}

/// Files with revocation lists.
pub(super) fn crl_files(config: &DaemonConfig, folder: &Path) -> Vec<PathBuf> {
    let general = config.trust.iter().flat_map(|trust| &trust.crls);
    let own = config
        .connection
        .iter()
        .filter_map(|one| one.trust.as_ref());
    let own = own.flat_map(|trust| &trust.crls);
    let mut files: Vec<_> = general.chain(own).map(|file| folder.join(file)).collect();
    // Connections may share a list, which is read once.
    files.sort();
    files.dedup();
    files
}

impl Reader<'_> {
    /// Reads the authorities that the connection has instead of those of the file.
    pub(super) fn own_trust(&self) -> Result<Option<Arc<Trust>>, ResolveError> {
        let Some(own) = &self.config.trust else {
            return Ok(None);
        };
        let (files, general) = (
            (&*own.anchors, &*own.intermediates),
            self.all.trust.as_ref(),
        );
        let place = format!("{}: trust", self.place);
        read(files, general, self.folder, &place).map(|trust| Some(Arc::new(trust)))
    }
}

fn read(
    (anchors, others): (&[PathBuf], &[PathBuf]),
    policy: Option<&TrustConfig>,
    folder: &Path,
    place: &str,
) -> Result<Trust, ResolveError> {
    let read = |files: &[PathBuf]| certificates(files, folder, place);
    let (anchors, others) = (read(anchors)?, read(others)?);
    if anchors.is_empty() {
        return Err(wrong(place, "`anchors` has no certificate"));
    }
    // One demand on revocation for all: a connection's own authorities are no way around it.
    let require_crl = policy.is_some_and(|policy| policy.require_crl);
    let made = Trust::new(&anchors, &others, require_crl);
    let made = made.map_err(|error| wrong(place, error.to_string()))?;
    let ocsp = policy.map_or(OcspPolicy::Off, |policy| policy.ocsp);
    let responders = policy.map_or(&[][..], |policy| &policy.ocsp_responder);
    Ok(made.with_ocsp(ocsp, responders))
}
