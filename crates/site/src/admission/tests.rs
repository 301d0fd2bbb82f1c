//! The same questions to both forms: the registry of this host, and that of a peer.

use std::sync::Arc;

use commandline::SiteArgs;
use oidc::LoginKind;
use peering::{Peer, PeerKey};
use pki::cert::CertificateChain;
use pki::tls::PeerCertificates;
use portal::{Epoch, Proof, Refused};
use portal_services::openid::PortalLogin;
use service_kit::Doors;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use zeroize::Zeroizing;

use super::{Admission, Local, Remote, router};
use crate::console::this_process;
use crate::control::{Request, execute};
use crate::gate::Gate;
use crate::giver::Giver;
use crate::parts::Site;
use crate::portal_services::openid::admit_again;

const PASSWORD: &str = "a long password of the test";

struct World {
    site: Site,
    giver: Giver,
    peer: PeerCertificates,
    local: Local,
    remote: Remote,
    stop: Option<DropGuard>,
    _folder: tempfile::TempDir,
}

fn key() -> PeerKey {
    PeerKey::new(&PeerKey::generate().unwrap()).unwrap()
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let args = SiteArgs {
            data: folder.path().join("data"),
            config: None,
            passphrase_file: None,
            as_person: None,
            as_password_file: None,
        };
        let site = Site::open(&args).await.unwrap();
        let actor = this_process();
        let giver = Giver {
            principal: access::Principal::console(&actor.id, ""),
            actor,
            certificate: None,
        };
        let local = Local {
            registry: site.registry.clone(),
            directory: site.directory.clone(),
        };
        let (host, client) = (key(), key());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let tls = host.server(vec![client.id()]).unwrap();
        let (audit, audit_pool) = (site.portal_audit.clone(), site.audit_pool.clone());
        let gate = Gate::new(Arc::new(local.clone()), audit, audit_pool);
        let door = router(local.clone(), Arc::new(gate));
        let listener = Doors::new().secure("hosts", socket, tls, listener::DEVICES, door);
        let stop = CancellationToken::new();
        tokio::spawn(listener.serve(stop.clone()));
        let remote = Remote {
            peer: Arc::new(Peer::new(address, client, host.id())),
            trust: site.registry.trust(),
        };
        let mut world = Self {
            site,
            giver,
            peer: PeerCertificates(Arc::new(Vec::new())),
            local,
            remote,
            stop: Some(stop.drop_guard()),
            _folder: folder,
        };
        world.import(2).await;
        let password = || Zeroizing::new(PASSWORD.to_owned());
        let issued = world
            .order(Request::IssueUser {
                uid: "anna".to_owned(),
                profile: None,
                password: password(),
            })
            .await;
        let chain = CertificateChain::from_pem(issued["chain_pem"].as_str().unwrap());
        world.peer = PeerCertificates(Arc::new(chain.unwrap().ders().to_vec()));
        world
            .order(Request::Password {
                uid: "anna".to_owned(),
                password: password(),
            })
            .await;
        world
    }

    async fn order(&self, request: Request) -> serde_json::Value {
        execute(&self.site, request, &self.giver).await.unwrap()
    }

    async fn import(&self, clearance: u8) {
        let people = format!(
            r#"{{"uid":"anna","name":"Anna","email":"anna@example.org","organisation":"LEA-EU","clearance":{clearance},"roles":["officer"],"units":["traffic"]}}"#
        );
        let enable = false;
        let people = Zeroizing::new(people);
        self.order(Request::Import { people, enable }).await;
    }

    fn both(&self) -> [(&'static str, &dyn Admission); 2] {
        [("local", &self.local), ("remote", &self.remote)]
    }
}

fn code<T>(outcome: Result<T, Refused>) -> (String, bool) {
    let refused = outcome.map(|_| ()).unwrap_err();
    (refused.code, refused.temporary)
}

fn refused(code: &str) -> (String, bool) {
    (code.to_owned(), false)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_forms_admit_the_same_people_with_the_same_rights() {
    let world = World::new().await;
    let from = Some("192.0.2.7".parse().unwrap());
    let mut found = Vec::new();
    for (form, admission) in world.both() {
        let person = admission.person(&world.peer, from).await.unwrap();
        assert_eq!(
            (person.uid(), person.clearance().level()),
            ("anna", 2),
            "{form}"
        );
        assert_eq!(person.address(), from, "{form}");
        let (by_password, epoch) = admission.password("anna", PASSWORD, from).await.unwrap();
        assert_eq!(by_password.clearance(), access::PASSWORD_CEILING, "{form}");
        assert_eq!(admission.epoch("anna").await, Ok(epoch), "{form}");
        let session = admission.session("anna", epoch, from).await.unwrap();
        assert_eq!(
            admission.record("anna").await.unwrap().uid,
            "anna",
            "{form}"
        );
        assert_eq!(admission.refused_devices().await, Ok(Vec::new()), "{form}");
        found.push((person, by_password, session));
    }
    assert_eq!(found[0], found[1]);
    world.import(1).await;
    for (form, admission) in world.both() {
        let person = admission.person(&world.peer, from).await.unwrap();
        assert_eq!(person.clearance().level(), 1, "{form}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_forms_refuse_the_same_people_for_the_same_reason() {
    let world = World::new().await;
    let strange = PeerCertificates(Arc::new(vec![vec![0x30, 0x00].into()]));
    let (_, epoch) = world.local.password("anna", PASSWORD, None).await.unwrap();
    let mut codes = Vec::new();
    for (form, admission) in world.both() {
        let strange = (
            code(admission.person(&strange, None).await),
            code(admission.device(&strange, None).await),
        );
        assert!(!strange.0.1 && !strange.1.1, "{form}: {strange:?}");
        // A camera's certificate is another kind.
        let device = code(admission.device(&world.peer, None).await);
        let wrong = code(admission.password("anna", "wrong", None).await);
        assert_eq!(
            code(admission.epoch("nobody").await),
            refused("not-in-directory"),
            "{form}"
        );
        let ended = Epoch([epoch.0[0] - 1, epoch.0[1]]);
        let ended = code(admission.session("anna", ended, None).await);
        assert_eq!(ended, refused("session-ended"), "{form}");
        codes.push((strange, device, wrong));
    }
    assert_eq!(codes[0], codes[1]);
    let uid = "anna".to_owned();
    world.order(Request::Disable { uid }).await;
    for (form, admission) in world.both() {
        let person = code(admission.person(&world.peer, None).await);
        assert!(!person.1, "{form}: {person:?}");
        assert!(
            admission.session("anna", epoch, None).await.is_err(),
            "{form}"
        );
        assert!(
            admission.password("anna", PASSWORD, None).await.is_err(),
            "{form}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn login_to_application_has_rights_of_its_epoch() {
    let world = World::new().await;
    let (audit, pool) = (
        world.site.portal_audit.clone(),
        world.site.audit_pool.clone(),
    );
    let gate = Gate::new(Arc::new(world.local.clone()), audit, pool);
    let (by_password, began) = world.local.password("anna", PASSWORD, None).await.unwrap();
    let login = |principal, proof, kind| PortalLogin {
        principal,
        proof,
        kind,
        since: 0,
        session: "s1".to_owned(),
    };
    let principal = world.local.person(&world.peer, None).await.unwrap();
    let proof = Proof::Certificate(world.peer.clone());
    let by_certificate = login(principal, proof, LoginKind::Certificate);
    let by_password = login(by_password, Proof::Password(began), LoginKind::Password);
    let again = admit_again(&gate, &by_password).await.unwrap();
    assert_eq!(again, (by_password.principal.clone(), began));
    // A right is taken away after the portal admitted the person, and before the application does.
    world.import(1).await;
    let (principal, epoch) = admit_again(&gate, &by_certificate).await.unwrap();
    assert_eq!(principal.clearance().level(), 1);
    assert_eq!(Ok(epoch), world.local.epoch("anna").await);
    let ended = code(admit_again(&gate, &by_password).await);
    assert_eq!(ended, refused("session-ended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_person_has_no_epoch() {
    let world = World::new().await;
    let by = world.giver.actor.clone();
    let directory = &world.site.directory;
    let now = OffsetDateTime::now_utc();
    directory.set_active("anna", false, by, now).await.unwrap();
    for (form, admission) in world.both() {
        let epoch = code(admission.epoch("anna").await);
        assert_eq!(epoch, refused("account-disabled"), "{form}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_admitted_while_the_peer_is_gone() {
    let mut world = World::new().await;
    assert!(world.remote.person(&world.peer, None).await.is_ok());
    drop(world.stop.take());
    let unreachable = ("registry-unreachable".to_owned(), true);
    let gone = async || world.remote.person(&world.peer, None).await;
    for _ in 0..50 {
        if gone().await.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(code(gone().await), unreachable);
    assert_eq!(code(world.remote.epoch("anna").await), unreachable);
    assert_eq!(code(world.remote.refused_devices().await), unreachable);
}
