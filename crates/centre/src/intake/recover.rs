//! What a crash interrupted.

use error_report::Report;

use super::index::Settled;
use super::upload::UploadError;
use super::{Intake, creation, index};

impl Intake {
    /// Takes up what a crash interrupted: complete uploads, and blocks without a receipt.
    ///
    /// # Errors
    /// Failures of the journal or index.
    pub async fn recover(&self) -> Result<(), UploadError> {
        let left = index::without_receipt(&self.inner.sql).await?;
        for settled in &left {
            // Before the first upload: blocks of the same camera may follow.
            self.inner
                .around()
                .note_unlogged(settled)
                .await
                .map_err(creation::failed)?;
        }
        self.inner
            .around()
            .adopt_notices()
            .await
            .map_err(creation::failed)?;
        for upload in self.inner.uploads.complete().await? {
            tracing::info!(
                upload = upload.id,
                device = upload.device,
                "taking up an upload"
            );
            self.settle_soon(upload);
        }
        for settled in left {
            let intake = self.clone();
            tokio::spawn(async move { finish_left(intake, settled).await });
        }
        Ok(())
    }
}

/// Finishes a block that a crash left without a receipt, if it is what its row says.
async fn finish_left(intake: Intake, settled: Settled) {
    let reserved = intake.reserve(&settled.block).await;
    // An upload of the same block that was taken up may have been quicker.
    if intake.has_receipt(&settled).await.unwrap_or(false) {
        return;
    }
    match intake.is_genuine(&settled).await {
        Ok(true) => drop(intake.finish_soon(reserved, settled, true)),
        Ok(false) => {
            intake.inner.unlogged.remove(&settled.block);
            tracing::error!(
                block = %settled.block,
                "the index has a block without a receipt that is not what the row says; it gets none"
            );
        }
        Err(error) => tracing::error!(
            block = %settled.block,
            error = %Report(&error),
            "a block without a receipt cannot be verified; the next start tries again"
        ),
    }
}
