//! `cordon service`: foreign applications.

use std::path::PathBuf;

use access::Role;
use clap::{Args, Subcommand};
use services::Icon;

use commandline::SiteArgs;

/// `cordon service …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// Register an application and say who may open it.
    #[command(after_help = "Examples:
  cordon service add --data /var/lib/cordon --id map --name Map \\
    --address https://map.example.org/ --owner 'Control room' --level 1 --role officer
  cordon service add --data /var/lib/cordon --id wiki --name Wiki \\
    --address https://wiki.example.org/ --owner 'IT department' --level 2 --role officer \\
    --redirect https://wiki.example.org/oidc/callback --secret-out wiki.secret")]
    Add {
        #[command(flatten)]
        site: SiteArgs,
        /// Identifier: small letters, digits and `-`. It is the client identifier of OpenID Connect.
        #[arg(long)]
        id: String,
        /// Name on the tile.
        #[arg(long)]
        name: String,
        /// Address of the application's first page.
        #[arg(long, value_name = "URL")]
        address: String,
        /// Picture on the tile: application, chart, document, mail, map, people, search or video.
        #[arg(long, default_value = "application")]
        icon: Icon,
        /// Office or person that answers for the application.
        #[arg(long)]
        owner: String,
        /// Clearance that a person needs at least, from 0 to 4.
        #[arg(long, value_parser = clap::value_parser!(u8).range(0..=4))]
        level: u8,
        /// Role that opens it; repeat it for others.
        #[arg(long, required = true)]
        role: Vec<Role>,
        /// Unit that opens it; repeat it for others. Without it people of any unit do.
        #[arg(long)]
        unit: Vec<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Change some fields of a service; it takes effect at the next request.
    #[command(after_help = "Examples:
  cordon service change --data /var/lib/cordon wiki --level 3
  cordon service change --data /var/lib/cordon wiki --secret-out wiki.secret")]
    Change {
        #[command(flatten)]
        site: SiteArgs,
        /// Identifier of the service.
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// Address of the application's first page.
        #[arg(long, value_name = "URL")]
        address: Option<String>,
        /// Picture on the tile.
        #[arg(long)]
        icon: Option<Icon>,
        /// Office or person that answers for the application.
        #[arg(long)]
        owner: Option<String>,
        /// Clearance that a person needs at least, from 0 to 4.
        #[arg(long, value_parser = clap::value_parser!(u8).range(0..=4))]
        level: Option<u8>,
        /// All roles that open it from now on.
        #[arg(long)]
        role: Vec<Role>,
        /// All units that open it from now on.
        #[arg(long)]
        unit: Vec<String>,
        /// People of any unit open it from now on.
        #[arg(long, conflicts_with = "unit")]
        any_unit: bool,
        /// End the connection by OpenID Connect; the tile stays.
        #[arg(long, conflicts_with_all = ["redirect", "secret_out", "client_key", "logout", "no_logout"])]
        link: bool,
        /// End back-channel logout.
        #[arg(long, conflicts_with_all = ["logout", "logout_trust"])]
        no_logout: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Remove a service.
    #[command(after_help = "Example:\n  cordon service remove --data /var/lib/cordon wiki")]
    Remove {
        #[command(flatten)]
        site: SiteArgs,
        /// Identifier of the service.
        id: String,
    },
    /// Have the next key sign tokens of OpenID Connect. The former key stays published for a day.
    #[command(after_help = "Example:\n  cordon service roll-key --data /var/lib/cordon")]
    RollKey {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// List services.
    #[command(after_help = "Example:\n  cordon service list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Show one service.
    #[command(after_help = "Example:\n  cordon service show --data /var/lib/cordon wiki")]
    Show {
        #[command(flatten)]
        site: SiteArgs,
        /// Identifier of the service.
        id: String,
    },
}

/// The application as a client of OpenID Connect.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// Address to which a login returns, exactly as the application sends it; repeat it for others. It makes
    /// the application a client of OpenID Connect.
    #[arg(long, value_name = "URL")]
    pub(crate) redirect: Vec<String>,
    /// Make a client secret and write it to this new file (`client_secret_basic`).
    #[arg(long, value_name = "FILE", conflicts_with = "client_key")]
    pub(crate) secret_out: Option<PathBuf>,
    /// File with the application's public key, a JWK on P-256 (`private_key_jwt` with ES256).
    #[arg(long, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// Address for back-channel logout.
    #[arg(long, value_name = "URL")]
    pub(crate) logout: Option<String>,
    /// Certificates (PEM) that certify the server at the logout address; without them it is the site's root.
    #[arg(long, value_name = "FILE")]
    pub(crate) logout_trust: Option<PathBuf>,
}
