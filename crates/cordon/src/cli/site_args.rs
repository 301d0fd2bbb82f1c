//! The arguments that name a site, and who gives the command.

use std::path::PathBuf;

use clap::Args;

/// Where a site keeps its data and settings.
#[derive(Clone, Debug, Args)]
pub(crate) struct SiteArgs {
    /// Folder of the site's data; made when it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Settings; without it everything has its default.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File with the passphrase of the key files.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Certificate and key of the person who gives the command (PKCS#12 or PEM).
    #[arg(long = "as", value_name = "FILE")]
    pub(crate) as_person: Option<PathBuf>,
    /// File with the password of --as; `-` reads standard input.
    #[arg(long, value_name = "FILE", requires = "as_person")]
    pub(crate) as_password_file: Option<PathBuf>,
}

/// `cordon audit accept-loss` and its like.
#[derive(Debug, Args)]
pub(crate) struct AcceptLoss {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Why; it is recorded for ever.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
