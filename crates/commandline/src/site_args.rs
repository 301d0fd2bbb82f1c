//! The arguments that name a site, and who gives the command.

use std::path::PathBuf;

use clap::Args;

/// Where a site keeps its data and settings.
#[derive(Clone, Debug, Args)]
pub struct SiteArgs {
    /// Folder of the site's data; made when it is missing.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Settings; without it everything has its default.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File with the passphrase of the key files.
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// Certificate and key of the person who gives the command (PKCS#12 or PEM).
    #[arg(long = "as", value_name = "FILE")]
    pub as_person: Option<PathBuf>,
    /// File with the password of --as; `-` reads standard input.
    #[arg(long, value_name = "FILE", requires = "as_person")]
    pub as_password_file: Option<PathBuf>,
}
