//! The site that certifies keys for tunnels, as these commands reach it.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use audit::Event;
use commandline::{Outcome, SiteArgs};
use pki::key::KeyAlgorithm;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request for a certificate. The private key stays where it was made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateRequest {
    /// For a server; request in DER, hexadecimal.
    Server {
        csr: String,
    },
    Device {
        name: String,
        csr: String,
    },
}

/// A request to a site.
#[derive(Debug)]
pub enum SiteRequest {
    Certify(CertificateRequest),
    /// The current revocation lists, and a mark that changes whenever they do.
    Crls,
    /// Names of devices that are not enrolled, and the mark of the current revocation lists.
    RefusedDevices,
    /// Which of these device certificates, by serial number, the site refuses, and why.
    Standings {
        serials: Vec<String>,
    },
}

/// A site's answer to a [`SiteRequest`].
pub type Answer<'a> = Pin<Box<dyn Future<Output = Outcome<Value>> + Send + 'a>>;

/// A way to sites. The program implements it, because a site that does not run is opened in process.
pub trait SiteControl: Sync {
    /// Algorithm of new keys, by the site's settings.
    ///
    /// # Errors
    /// The settings cannot be read.
    fn key_algorithm(&self, site: &SiteArgs) -> Outcome<KeyAlgorithm>;

    /// Sends a request to the running site, or opens its data folder.
    fn request<'a>(&'a self, site: &'a SiteArgs, request: SiteRequest) -> Answer<'a>;

    /// Sends a request to the running site and never opens its data folder.
    fn request_running<'a>(&'a self, data: &'a Path, request: SiteRequest) -> Answer<'a>;

    /// Sends events of a tunnel daemon to the central log of the running site, and waits for the answer.
    ///
    /// `first` is the number of the first event in the daemon's journal. Returns the index of the last one in the log.
    ///
    /// # Errors
    /// For the operator of the daemon.
    fn send_journal(&self, data: &Path, first: u64, events: Vec<Event>) -> Result<u64, String>;
}

/// The way to sites that the program gives to the commands.
pub type Control = &'static dyn SiteControl;
