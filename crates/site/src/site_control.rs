//! What the commands of tunnels request of a site, as orders to it.

use std::path::Path;

use audit::Event;
use pki::key::KeyAlgorithm;
use tunnel_tools::{Answer, SiteControl, SiteRequest};

use crate::config::Config;
use crate::control::{self, Request};
use crate::failure::Outcome;
use crate::parts::algorithm;
use commandline::SiteArgs;

/// Sends orders to sites, whether they run or not.
pub struct OrdersToSites;

impl SiteControl for OrdersToSites {
    fn key_algorithm(&self, site: &SiteArgs) -> Outcome<KeyAlgorithm> {
        let config = Config::load(site.config.as_deref())?;
        Ok(algorithm(&config.keys.leaf))
    }

    fn request<'a>(&'a self, site: &'a SiteArgs, request: SiteRequest) -> Answer<'a> {
        Box::pin(control::ask(site, request.into()))
    }

    fn request_running<'a>(&'a self, data: &'a Path, request: SiteRequest) -> Answer<'a> {
        Box::pin(async move { control::ask_running(data, &request.into()).await })
    }

    fn send_journal(&self, data: &Path, first: u64, events: Vec<Event>) -> Result<u64, String> {
        control::send_journal(data, first, events)
    }
}

impl From<SiteRequest> for Request {
    fn from(request: SiteRequest) -> Self {
        match request {
            SiteRequest::Certify(request) => Self::Openvpn(request),
            SiteRequest::Crls => Self::Crls,
            SiteRequest::RefusedDevices => Self::RefusedDevices,
            SiteRequest::Standings { serials } => Self::Standings { serials },
        }
    }
}
