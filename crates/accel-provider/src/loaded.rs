//! State of one loaded provider.

use std::sync::Arc;

use offload_policy::{Device, Policy};
use provider_abi::Host;
use provider_abi::abi::{Algorithm, Constant};

use crate::algorithm::numbered;
use crate::device::PerProcess;
use crate::refusal::Refusal;
use crate::settings::{Engine, Offered, Settings};

/// One loaded provider: what OpenSSL calls `provctx`.
pub(crate) struct Provider {
    host: Host,
    policy: Arc<Policy>,
    ciphers: Constant<Vec<Algorithm>>,
    offered: Offered,
}

impl Provider {
    /// Reads the settings and, where they want it, measures the device.
    ///
    /// `ciphers` are all ciphers in the order of their numbers.
    pub(crate) fn new(host: Host, ciphers: &[Algorithm]) -> Result<Self, Refusal> {
        let settings = Settings::read(|name| host.text(name))?;
        let policy_settings = settings.policy();
        let offered = settings.offered;
        let ciphers = ciphers
            .iter()
            .enumerate()
            .filter(|(number, _)| offered.cipher(numbered(*number).0))
            .map(|(_, algorithm)| *algorithm);
        let ciphers = Constant(ciphers.chain([Algorithm::END]).collect());
        let device = (settings.engine != Engine::Library)
            .then(|| Arc::new(PerProcess::new(settings)) as Arc<dyn Device>);
        Ok(Self {
            host,
            policy: Policy::new(device, policy_settings),
            ciphers,
            offered,
        })
    }

    pub(crate) fn host(&self) -> Host {
        self.host
    }

    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The list of the ciphers that are offered, with an end.
    pub(crate) fn ciphers(&self) -> *const Algorithm {
        self.ciphers.0.as_ptr()
    }

    /// True where keys and signatures of RSA are offered.
    pub(crate) fn rsa(&self) -> bool {
        self.offered.rsa
    }

    /// True where HMAC is offered.
    pub(crate) fn hmac(&self) -> bool {
        self.offered.hmac
    }
}
