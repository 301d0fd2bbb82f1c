//! A bar on a terminal that shows how much has gone through.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

/// Interval between two looks at the counter.
const LOOK: Duration = Duration::from_millis(100);

/// A bar that follows a counter until [`Self::end`].
pub(super) struct Progress {
    bar: ProgressBar,
    follower: JoinHandle<()>,
}

impl Progress {
    /// Shows `counter` bytes of `len`, if standard error is a terminal and nobody wants silence.
    pub(super) fn start(len: Option<u64>, counter: Arc<AtomicU64>, silent: bool) -> Self {
        let bar = if silent || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            visible(len)
        };
        let followed = bar.clone();
        let follower = tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                followed.set_position(counter.load(Ordering::Relaxed));
            }
        });
        Self { bar, follower }
    }

    /// Takes the bar away.
    pub(super) fn end(self) {
        self.follower.abort();
        self.bar.finish_and_clear();
    }
}

fn visible(len: Option<u64>) -> ProgressBar {
    let (bar, template) = match len {
        Some(len) => (
            ProgressBar::new(len),
            "{bar:40} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {bytes}  {bytes_per_sec}  {elapsed}",
        ),
    };
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
