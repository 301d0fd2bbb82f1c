//! People as the portal's shell asks for them; switches refuse, and calls are noted.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use access::{PersonRecord, Principal, Role};
use pki::clearance::Clearance;
use pki::tls::PeerCertificates;
use portal::{Answer, Coming, Epoch, Identity, PageError, Refused};

use crate::EVIL;

/// The password of everybody.
pub const PASSWORD: &str = "correct horse";

/// One person, by certificate or password.
#[derive(Debug, Default)]
pub struct FakePeople {
    pub certificate_revoked: AtomicBool,
    pub session_over: AtomicBool,
    pub epoch: AtomicI64,
    /// Whether sessions cannot be recorded.
    pub unrecorded: AtomicBool,
    /// Whether the directory cannot be read.
    pub unreadable: AtomicBool,
    pub calls: Mutex<Vec<String>>,
}

/// Someone with every role whose name tries to break out of the page.
pub fn person() -> Principal {
    let record = PersonRecord {
        uid: "officer-4711".into(),
        name: format!("Ana {EVIL}"),
        organisation: format!("LEA-EU {EVIL}"),
        clearance: Clearance::Restricted,
        roles: [Role::Reviewer, Role::Auditor].into(),
        units: ["traffic".to_owned()].into(),
        active: true,
    };
    Principal::by_password(&record).unwrap()
}

impl FakePeople {
    fn epoch(&self) -> Epoch {
        Epoch([self.epoch.load(Ordering::SeqCst), 0])
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

fn refused(code: &str, message: &str) -> Refused {
    Refused {
        code: code.into(),
        message: message.into(),
        temporary: code.ends_with("-failed"),
    }
}

fn now<'a, T: Send + 'a>(answer: T) -> Coming<'a, T> {
    Box::pin(std::future::ready(answer))
}

impl Identity for FakePeople {
    fn by_certificate<'a>(
        &'a self,
        _: &'a PeerCertificates,
        _: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        now(match self.certificate_revoked.load(Ordering::SeqCst) {
            true => Err(refused(
                "certificate-revoked",
                "certificate of Ana was revoked <today>",
            )),
            false => Ok(person()),
        })
    }

    fn by_password<'a>(
        &'a self,
        uid: &'a str,
        password: &'a str,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<(Principal, Epoch), Refused>> {
        self.note(format!("login {uid} {from:?}"));
        now(match password == PASSWORD {
            true => Ok((person(), self.epoch())),
            false => Err(refused("wrong-password", "user name or password is wrong")),
        })
    }

    fn by_session<'a>(
        &'a self,
        _: &'a str,
        epoch: Epoch,
        _: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        if self.unreadable.load(Ordering::SeqCst) {
            return now(Err(refused("directory-failed", "the database failed")));
        }
        if epoch != self.epoch() {
            return now(Err(refused("session-ended", "your password was changed")));
        }
        if self.session_over.load(Ordering::SeqCst) {
            let message = "the account of officer-4711 is disabled";
            return now(Err(refused("account-disabled", message)));
        }
        now(Ok(person()))
    }

    fn session_begins<'a>(&'a self, uid: &'a str, _: Option<IpAddr>) -> Answer<'a, ()> {
        self.note(format!("session.start {uid}"));
        now(match self.unrecorded.load(Ordering::SeqCst) {
            true => Err(PageError::Failed("the log is full".into())),
            false => Ok(()),
        })
    }

    fn session_ends<'a>(&'a self, uid: &'a str, _: Option<IpAddr>) -> Coming<'a, ()> {
        self.note(format!("session.end {uid}"));
        now(())
    }
}
