//! The directory's role: the people of the site.

use directory::Directory;
use futures_util::future::BoxFuture;
use service_kit::{Opened, Role, Task};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::databases::watch_directory;
use crate::failure::Outcome;

pub(crate) struct DirectoryRole {
    pub(crate) directory: Directory,
}

impl Role for DirectoryRole {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let watch = watch_directory(self.directory.clone(), stop.clone());
        let tasks = vec![Task::new("directory.sqlite", watch)];
        let listeners = Vec::new();
        Box::pin(std::future::ready(Ok(Opened { listeners, tasks })))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.directory.close(OffsetDateTime::now_utc()))
    }
}
