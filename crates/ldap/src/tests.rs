//! A client on a listener without TLS, with services that fail on demand.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use ldap_directory::{Authority, Content, Late, Member, Name};
use ldap3_proto::LdapCodec;
use ldap3_proto::control::LdapControl;
use ldap3_proto::proto::*;
use listener::{BOUNDS, Listener, Metrics, PEOPLE};
use pki::tls::PeerCertificates;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::codec::{Decoder as _, Encoder as _};
use tokio_util::sync::CancellationToken;

use super::*;

/// What does not work, and what was recorded.
#[derive(Clone, Default)]
struct Site(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    no_tree: bool,
    no_record: bool,
    denied: bool,
    no_certificates: bool,
    rights: bool,
    ended: Option<Ended>,
    recorded: Vec<String>,
}

impl Site {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }
}

const BASE: &str = "o=LEA-EU";
const CSN: &str = "20261128120000.000000Z#000000#000#000000";
const PEOPLE_SHOWN: usize = 300;

fn dn(n: usize) -> String {
    format!("uid=p-{n},ou=people,{BASE}")
}

impl Services for Site {
    type Identity = ();

    async fn tree(&self) -> Option<Arc<Tree>> {
        let member = |n| Member {
            uid: format!("p-{n}"),
            name: "A Person".to_owned(),
            given_name: String::new(),
            surname: String::new(),
            mail: format!("p-{n}@example.org"),
            organisation: "LEA-EU".to_owned(),
            clearance: 1,
            roles: BTreeSet::new(),
            units: BTreeSet::new(),
        };
        let content = Content {
            base: Name::parse(BASE).unwrap(),
            organisation: "LEA-EU".to_owned(),
            namespace: "site".to_owned(),
            members: (0..PEOPLE_SHOWN).map(member).collect(),
            authorities: vec![Authority {
                name: "users".to_owned(),
            }],
        };
        (!self.with(|state| state.no_tree)).then(|| Arc::new(Tree::new(&content)))
    }

    async fn by_password(
        &self,
        name: &Name,
        password: &str,
        _: IpAddr,
    ) -> Result<Bound<()>, Refused> {
        let refused = |message: &str, is_temporary| {
            Err(Refused {
                message: message.to_owned(),
                is_temporary,
            })
        };
        match password {
            "right" => Ok(Bound {
                dn: name.text(),
                identity: (),
            }),
            "broken" => refused("try again", true),
            _ => refused("wrong", false),
        }
    }

    async fn by_certificate(
        &self,
        _: PeerCertificates,
        _: Option<&str>,
        _: IpAddr,
    ) -> Result<Bound<()>, Refused> {
        unreachable!("there is no TLS here")
    }

    async fn standing(&self, (): &()) -> Result<Standing, Ended> {
        match self.with(|state| state.ended) {
            Some(ended) => Err(ended),
            None => Ok(Standing {
                uid: "p-1".to_owned(),
                view: View {
                    contacts: true,
                    rights: self.with(|state| state.rights),
                },
            }),
        }
    }

    async fn record(&self, (): &(), shape: &str) -> Result<(), Refused> {
        self.with(|state| {
            state.recorded.push(shape.to_owned());
            match state.no_record || state.denied {
                true => Err(Refused {
                    message: "no rule permits it".to_owned(),
                    is_temporary: state.no_record,
                }),
                false => Ok(()),
            }
        })
    }

    fn csn(&self, _: String, _: Vec<u8>) -> String {
        CSN.to_owned()
    }

    async fn fetch(&self, late: &Late) -> Option<Fetched> {
        let Late::Certificates(uid) = late else {
            return Some(Fetched::default());
        };
        let certificates = Fetched {
            user_certificates: vec![uid.clone().into_bytes()],
            ..Fetched::default()
        };
        (!self.with(|state| state.no_certificates)).then_some(certificates)
    }
}

struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    stop: CancellationToken,
    site: Site,
    address: SocketAddr,
}

impl Client {
    async fn new() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (site, stop) = (Site::default(), CancellationToken::new());
        let listener = Listener {
            name: "ldap",
            socket,
            tls: None,
            service: Ldap::new(site.clone()).into(),
            bounds: BOUNDS,
            deadlines: PEOPLE,
            metrics: Metrics::default(),
            anew: None,
        };
        tokio::spawn(listener.serve(stop.clone()));
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            buffer: BytesMut::new(),
            stop,
            site,
            address,
        }
    }

    async fn bound() -> Self {
        let mut client = Self::new().await;
        assert_eq!(client.bind("right").await, LdapResultCode::Success);
        client
    }

    async fn send(&mut self, op: LdapOp) {
        let mut bytes = BytesMut::new();
        LdapCodec::default()
            .encode(LdapMsg::new(7, op), &mut bytes)
            .unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Option<LdapMsg> {
        loop {
            let decoded = LdapCodec::new(Some(1 << 20), None).decode(&mut self.buffer);
            if let Some(message) = decoded.unwrap() {
                return Some(message);
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }

    async fn bind(&mut self, password: &str) -> LdapResultCode {
        self.send(LdapOp::BindRequest(LdapBindRequest {
            version: 3,
            dn: dn(1),
            cred: LdapBindCred::Simple(password.to_owned()),
        }))
        .await;
        match self.next().await.unwrap().op {
            LdapOp::BindResponse(response) => response.res.code,
            other => panic!("{other:?}"),
        }
    }

    /// Entries and result of a search.
    async fn search(
        &mut self,
        filter: &str,
        attrs: &[&str],
    ) -> (Vec<LdapSearchResultEntry>, LdapResult) {
        self.send(LdapOp::SearchRequest(LdapSearchRequest {
            base: BASE.to_owned(),
            scope: LdapSearchScope::Subtree,
            aliases: LdapDerefAliases::Never,
            sizelimit: 0,
            timelimit: 0,
            typesonly: false,
            filter: ldap3_proto::parse_ldap_filter_str(filter).unwrap(),
            attrs: attrs.iter().map(|name| (*name).to_owned()).collect(),
        }))
        .await;
        let mut entries = Vec::new();
        loop {
            match self.next().await.unwrap().op {
                LdapOp::SearchResultEntry(entry) => entries.push(entry),
                LdapOp::SearchResultDone(result) => return (entries, result),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn search_gives_entries_once_it_is_recorded() {
    let mut client = Client::bound().await;
    let (entries, result) = client.search("(uid=p-2)", &["userCertificate"]).await;
    assert_eq!(result.code, LdapResultCode::Success);
    assert_eq!(entries[0].dn, dn(2));
    assert_eq!(entries[0].attributes[0].vals, [b"p-2"]);
    let (entries, _) = client.search("(uid=p-*)", &["mail"]).await;
    assert_eq!(entries.len(), PEOPLE_SHOWN);
    let recorded = client.site.with(|state| state.recorded.clone());
    assert_eq!(recorded, ["(uid=?)", "(uid=*?*)"]);
}

#[tokio::test]
async fn nothing_is_shown_without_a_record_or_a_permission() {
    let mut client = Client::bound().await;
    client.site.with(|state| state.no_record = true);
    let (entries, result) = client.search("(uid=p-2)", &[]).await;
    assert_eq!(
        (entries.len(), result.code),
        (0, LdapResultCode::Unavailable)
    );
    client.site.with(|state| {
        state.no_record = false;
        state.denied = true;
    });
    let (entries, result) = client.search("(uid=p-2)", &[]).await;
    assert_eq!(entries.len(), 0);
    assert_eq!(result.code, LdapResultCode::InsufficentAccessRights);
    assert_eq!(result.message, "no rule permits it");
}

#[tokio::test]
async fn faults_of_the_site_are_unavailable() {
    let mut client = Client::bound().await;
    client.site.with(|state| state.no_certificates = true);
    let (_, result) = client.search("(uid=p-2)", &["userCertificate"]).await;
    assert_eq!(result.code, LdapResultCode::Unavailable);
    let (entries, result) = client.search("(uid=p-2)", &["mail"]).await;
    assert_eq!((entries.len(), result.code), (1, LdapResultCode::Success));
    client.site.with(|state| state.no_tree = true);
    let (_, result) = client.search("(uid=p-2)", &[]).await;
    assert_eq!(result.code, LdapResultCode::Unavailable);
    client.site.with(|state| state.ended = Some(Ended::Unknown));
    let (_, result) = client.search("(uid=p-2)", &[]).await;
    assert_eq!(result.code, LdapResultCode::Unavailable);
    client.site.with(|state| *state = State::default());
    let (entries, _) = client.search("(uid=p-2)", &[]).await;
    assert_eq!(entries.len(), 1);
}

#[tokio::test]
async fn lost_bind_ends_the_connection_with_a_notice() {
    let mut client = Client::bound().await;
    client.site.with(|state| state.ended = Some(Ended::Lost));
    client
        .send(LdapOp::ExtendedRequest(LdapExtendedRequest {
            name: OID_WHOAMI.to_owned(),
            value: None,
        }))
        .await;
    let notice = client.next().await.unwrap();
    match notice.op {
        LdapOp::ExtendedResponse(response) => {
            assert_eq!(response.res.code, LdapResultCode::StrongerAuthRequired);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(notice.msgid, 0);
    assert!(client.next().await.is_none());
}

#[tokio::test]
async fn binds_that_fail_leave_nobody_bound() {
    let mut client = Client::new().await;
    let code = client.bind("wrong").await;
    assert_eq!(code, LdapResultCode::InvalidCredentials);
    assert_eq!(client.bind("broken").await, LdapResultCode::Unavailable);
    let (_, result) = client.search("(uid=p-2)", &[]).await;
    assert_eq!(result.code, LdapResultCode::InsufficentAccessRights);
    client
        .send(LdapOp::BindRequest(LdapBindRequest {
            version: 3,
            dn: String::new(),
            cred: LdapBindCred::SASL(SaslCredentials {
                mechanism: "EXTERNAL".to_owned(),
                credentials: Vec::new(),
            }),
        }))
        .await;
    match client.next().await.unwrap().op {
        LdapOp::BindResponse(response) => {
            let code = LdapResultCode::InappropriateAuthentication;
            assert_eq!(response.res.code, code);
        }
        other => panic!("{other:?}"),
    }
    assert!(client.site.with(|state| state.recorded.is_empty()));
}

#[tokio::test]
async fn stop_ends_idle_connections() {
    let mut client = Client::bound().await;
    client.stop.cancel();
    assert!(client.next().await.is_none());
    assert!(TcpStream::connect(client.address).await.is_err());
}

#[tokio::test]
async fn other_protocols_get_a_notice_and_the_end() {
    let mut client = Client::new().await;
    client
        .stream
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let notice = client.next().await.unwrap();
    assert_eq!(notice.msgid, 0);
    assert!(client.next().await.is_none());
}

#[tokio::test]
async fn copy_gets_everything_once_and_needs_full_sight() {
    let mut client = Client::bound().await;
    let mut refresh = async |cookie: Option<String>, rights: bool| {
        client.site.with(|state| state.rights = rights);
        let request = LdapSearchRequest {
            base: BASE.to_owned(),
            scope: LdapSearchScope::Subtree,
            aliases: LdapDerefAliases::Never,
            sizelimit: 0,
            timelimit: 0,
            typesonly: false,
            filter: LdapFilter::Present("objectClass".to_owned()),
            attrs: vec!["*".to_owned(), "+".to_owned()],
        };
        let sync = LdapControl::SyncRequest {
            criticality: true,
            mode: SyncRequestMode::RefreshOnly,
            cookie: cookie.map(String::into_bytes),
            reload_hint: false,
        };
        let message = LdapMsg::new_with_ctrls(7, LdapOp::SearchRequest(request), vec![sync]);
        let mut bytes = BytesMut::new();
        LdapCodec::default().encode(message, &mut bytes).unwrap();
        client.stream.write_all(&bytes).await.unwrap();
        let mut uuids = BTreeSet::new();
        loop {
            let message = client.next().await.unwrap();
            let control = message.ctrl.into_iter().next();
            match (message.op, control) {
                (
                    LdapOp::SearchResultEntry(entry),
                    Some(LdapControl::SyncState { entry_uuid, .. }),
                ) => {
                    let has_csn = entry.attributes.iter().any(|one| one.atype == "entryCSN");
                    assert!(has_csn && uuids.insert(entry_uuid), "{}", entry.dn);
                }
                (LdapOp::SearchResultDone(result), Some(LdapControl::SyncDone { cookie, .. })) => {
                    return (result.code, uuids.len(), cookie);
                }
                (LdapOp::SearchResultDone(result), None) => return (result.code, 0, None),
                other => panic!("{other:?}"),
            }
        }
    };
    let (code, count, cookie) = refresh(Some("rid=005".to_owned()), true).await;
    assert_eq!(code, LdapResultCode::Success);
    // The people, the base, five containers and an authority.
    assert_eq!(count, PEOPLE_SHOWN + 7);
    let cookie = String::from_utf8(cookie.unwrap()).unwrap();
    assert_eq!(cookie, format!("rid=005,csn={CSN}"));
    let (code, count, _) = refresh(Some(cookie), true).await;
    assert_eq!((code, count), (LdapResultCode::Success, 0));
    let (code, count, cookie) = refresh(None, false).await;
    assert_eq!(code, LdapResultCode::InsufficentAccessRights);
    assert_eq!((count, cookie), (0, None));
}
