//! Uploads are announced.

use std::io;

use error_report::Report;
use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::Intake;
use super::append::Claim;
use super::commits::Job;
use super::error::SettleError;
use super::index::Tx;
use super::upload::{Upload, UploadError};
use super::uploads::Uploads;

/// An upload that is to be begun, within its device's shares.
struct Creation {
    uploads: Uploads,
    upload: Upload,
    now: OffsetDateTime,
}

impl Job for Creation {
    /// Claims to uploads that made room; or the refusal.
    type Output = Result<Vec<Claim>, UploadError>;

    fn run<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Self::Output, SettleError>> {
        Box::pin(async move { Ok(self.uploads.admit(tx, &self.upload, self.now).await?) })
    }
}

impl Intake {
    /// Starts an upload; its row and its empty file are on disk on return.
    ///
    /// # Errors
    /// [`UploadError::TooLarge`], [`UploadError::TooMany`] and other shares that are used up, or a failure of the disk.
    pub(crate) async fn create_upload(
        &self,
        upload: Upload,
        now: OffsetDateTime,
    ) -> Result<Upload, UploadError> {
        self.inner.uploads.check_size(upload.size)?;
        let (uploads, id) = (self.inner.uploads.clone(), upload.id.clone());
        // The file first: a row without its file would be an upload that nobody can finish.
        let created = self.inner.pool.run(move || uploads.create_file(&id));
        created.await.map_err(io::Error::other)??;
        let creation = Creation {
            uploads: self.inner.uploads.clone(),
            upload: upload.clone(),
            now,
        };
        let admitted = self.inner.commits.commit(creation).await.map_err(failed);
        match admitted.flatten() {
            Ok(forgotten) => {
                for claim in forgotten {
                    self.inner.uploads.remove_file(&claim.id)?;
                }
                Ok(upload)
            }
            Err(error) => {
                // Should this fail as well, the next sweep removes it.
                let _ = self.inner.uploads.remove_file(&upload.id);
                Err(error)
            }
        }
    }
}

pub(super) fn failed(error: SettleError) -> UploadError {
    match error {
        SettleError::Upload(error) => error,
        SettleError::Store(error) => error.into(),
        SettleError::Sql(error) => error.into(),
        SettleError::Io(error) => error.into(),
        other => io::Error::other(Report(&other).to_string()).into(),
    }
}
