use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::channel;

use ipsec::lifetime::{Lifetime, Limits};
use ipsec::sa::{Protocol, UdpEncapsulation};
use ipsec::selector::AddressRange;
use ipsec::tunnel::Tunnel;
use offload::{Encryption, KeyMaterial, Suite};

use tunnel::outer::NextHop;

use super::*;

/// A kernel that remembers what it has.
#[derive(Default)]
struct Told {
    sas: BTreeMap<u32, (Sa, Usage)>,
    policies: BTreeMap<String, Policy>,
    /// Associations that it does not take.
    refused: Vec<u32>,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Told>>);

fn name(policy: &Policy) -> String {
    let selector = &policy.selector;
    format!(
        "{:?} {} {}",
        policy.direction, selector.source.address, selector.destination.address
    )
}

impl Xfrm for Fake {
    fn add_sa(&mut self, sa: &Sa, if_id: Option<u32>) -> Result<(), XfrmError> {
        assert_eq!(if_id, Some(7));
        if self.0.borrow().refused.contains(&sa.spi.get()) {
            return Err(XfrmError::Exists("association".into()));
        }
        let state = (sa.clone(), Usage::default());
        let before = self.0.borrow_mut().sas.insert(sa.spi.get(), state);
        assert!(before.is_none(), "it was there");
        Ok(())
    }

    fn remove_sa(&mut self, sa: &Sa) -> Result<(), XfrmError> {
        let removed = self.0.borrow_mut().sas.remove(&sa.spi.get());
        assert!(removed.is_some(), "it was not there");
        Ok(())
    }

    fn add_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        panic!("policies may be there: {policy:?}");
    }

    fn set_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        self.0.borrow_mut().policies.insert(name(policy), *policy);
        Ok(())
    }

    fn remove_policy(&mut self, policy: &Policy) -> Result<(), XfrmError> {
        let removed = self.0.borrow_mut().policies.remove(&name(policy));
        assert!(removed.is_some(), "it was not there");
        Ok(())
    }

    fn usage(&mut self, sa: &Sa) -> Result<Usage, XfrmError> {
        let state = self.0.borrow();
        let found = state.sas.get(&sa.spi.get());
        Ok(found.map(|(_, usage)| *usage).unwrap_or_default())
    }
}

impl Fake {
    fn spis(&self) -> Vec<u32> {
        self.0.borrow().sas.keys().copied().collect()
    }

    /// The peer and number that the policy for packets that leave shows, and how many policies there are.
    fn shown(&self) -> (Option<(String, u32)>, usize) {
        let state = self.0.borrow();
        let out = state.policies.get("Out 10.5.1.0 10.5.2.0");
        let template = out.and_then(|policy| policy.template);
        let shown = template.map(|template| (template.destination.to_string(), template.reqid));
        (shown, state.policies.len())
    }

    fn used(&self, spi: u32, usage: Usage) {
        self.0.borrow_mut().sas.get_mut(&spi).unwrap().1 = usage;
    }
}

struct Bench {
    kernel: Fake,
    children: KernelChildren<Fake>,
    events: Receiver<ChildEvent>,
}

fn bench() -> Bench {
    let (sender, events) = channel();
    let kernel = Fake::default();
    let sink = Box::new(move |event| sender.send(event).unwrap());
    let children = KernelChildren::new(kernel.clone(), 7, Snapshot::default(), sink);
    Bench {
        kernel,
        children,
        events,
    }
}

fn spi(number: u32) -> Spi {
    Spi::new(number).unwrap()
}

fn network(text: &str, bits: u8) -> AddressRange {
    AddressRange::prefix(text.parse().unwrap(), bits).unwrap()
}

fn wanted() -> Wanted {
    Wanted::between(network("10.5.1.0", 24), network("10.5.2.0", 24))
}

fn parameters(number: u32, peer: &str) -> SaParameters {
    let soft = Limits {
        packets: Some(1000),
        ..Limits::default()
    };
    SaParameters {
        engine: offload::Engine::default(),
        accelerator: None,
        spi: spi(number),
        protocol: Protocol::Esp(Suite::new(Encryption::AesGcm128, None).unwrap()),
        keys: KeyMaterial::new(&[1; 20], &[]),
        extended_sequence: false,
        mode: Mode::Tunnel(Tunnel::new(
            "192.0.2.1".parse().unwrap(),
            peer.parse().unwrap(),
        )),
        encapsulation: Some(UdpEncapsulation {
            local: 4500,
            remote: 1234,
        }),
        lifetime: Lifetime {
            soft,
            hard: Limits::default(),
        },
    }
}

fn kernel_child(
    (inbound, outbound): (&SaParameters, &SaParameters),
    selectors: &[Wanted],
    replaces: Option<Spi>,
    send_now: bool,
) -> Result<KernelChild, Unfit> {
    KernelChild::new(&ChildSa {
        inbound: inbound.clone(),
        outbound: outbound.clone(),
        selectors: selectors.to_vec(),
        replaces,
        beside: None,
        next_hop: NextHop {
            remote: "192.0.2.7:1234".parse().unwrap(),
            source: None,
        },
        order: 0,
        path_mtu: 1500,
        tfc_padding: None,
        send_now,
    })
}

/// A Child SA with SPIs `number` (inbound) and `number + 1`.
fn child(number: u32, peer: &str, replaces: Option<u32>, send_now: bool) -> KernelChild {
    let (inbound, outbound) = (parameters(number, peer), parameters(number + 1, peer));
    let replaces = replaces.map(spi);
    kernel_child((&inbound, &outbound), &[wanted()], replaces, send_now).unwrap()
}

#[test]
fn child_rekey_keeps_the_reqid() {
    let Bench {
        kernel,
        mut children,
        events,
    } = bench();
    children.install(child(0x1000, "192.0.2.7", None, true));
    assert_eq!(kernel.spis(), [0x1000, 0x1001]);
    assert_eq!(kernel.shown(), (Some(("192.0.2.7".into(), 1)), 3));
    let ports = kernel.0.borrow().sas[&0x1000].0.in_udp;
    assert_eq!(ports, Some([1234, 4500]), "from the peer to us");
    // The responder of a rekey waits for the peer before it sends.
    children.install(child(0x2000, "192.0.2.7", Some(0x1000), false));
    assert_eq!(kernel.spis(), [0x1000, 0x1001, 0x2000]);
    children.poll(Instant::now());
    assert!(events.try_recv().is_err());
    let usage = Usage {
        packets: 1,
        ..Usage::default()
    };
    kernel.used(0x2000, usage);
    children.poll(Instant::now());
    children.poll(Instant::now());
    assert_eq!(
        events.try_iter().collect::<Vec<_>>(),
        [ChildEvent::FirstInbound(spi(0x2000))]
    );
    children.send_with(spi(0x2000));
    children.send_with(spi(0x2000));
    assert_eq!(kernel.shown(), (Some(("192.0.2.7".into(), 1)), 3));
    let now = Instant::now();
    children.remove(spi(0x1000), now + Duration::from_secs(5));
    assert_eq!(
        kernel.spis(),
        [0x1000, 0x2000, 0x2001],
        "old keys still receive"
    );
    children.poll(now + Duration::from_secs(4));
    assert_eq!(kernel.spis(), [0x1000, 0x2000, 0x2001]);
    children.poll(now + Duration::from_secs(5));
    assert_eq!(kernel.spis(), [0x2000, 0x2001]);
    assert_eq!(kernel.shown().1, 3);
    children.remove_all().unwrap();
    assert_eq!((kernel.spis(), kernel.shown().1), (vec![], 0));
}

#[test]
fn child_of_another_ike_sa_is_let_in_beside_and_gives_way() {
    let Bench {
        kernel,
        mut children,
        ..
    } = bench();
    children.install(child(0x1000, "192.0.2.7", None, true));
    // The peer authenticates anew: no rekeying, but policies take packets of both.
    children.install(child(0x2000, "192.0.2.7", None, true));
    assert_eq!(kernel.shown(), (Some(("192.0.2.7".into(), 1)), 3));
    assert_eq!(kernel.spis(), [0x1000, 0x1001, 0x2000, 0x2001]);
    // The first one stays: it sends, and the other one only receives.
    children.send_with(spi(0x1000));
    assert_eq!(kernel.spis(), [0x1000, 0x1001, 0x2000]);
    // With the sequence numbers that it has used it must not send again.
    children.send_with(spi(0x2000));
    assert_eq!(kernel.spis(), [0x1000, 0x1001, 0x2000]);
    children.remove(spi(0x2000), Instant::now());
    children.poll(Instant::now());
    assert_eq!(kernel.spis(), [0x1000, 0x1001]);
    assert_eq!(kernel.shown(), (Some(("192.0.2.7".into(), 1)), 3));
}

#[test]
fn removed_child_hands_its_policy_to_the_one_before() {
    let Bench {
        kernel,
        mut children,
        ..
    } = bench();
    children.install(child(0x1000, "192.0.2.7", None, true));
    children.install(child(0x2000, "192.0.2.8", None, true));
    assert_eq!(kernel.shown(), (Some(("192.0.2.8".into(), 2)), 3));
    children.remove(spi(0x2000), Instant::now());
    children.poll(Instant::now());
    assert_eq!(kernel.shown(), (Some(("192.0.2.7".into(), 1)), 3));
    assert_eq!(kernel.spis(), [0x1000, 0x1001]);
    // One that is not the last goes without a trace.
    children.install(child(0x3000, "192.0.2.9", None, true));
    children.remove(spi(0x1000), Instant::now());
    assert_eq!(kernel.shown(), (Some(("192.0.2.9".into(), 3)), 3));
    children.remove(spi(0x3000), Instant::now());
    assert_eq!(kernel.shown(), (None, 0));
}

#[test]
fn nearly_used_up_sequence_numbers_are_reported_once() {
    let Bench {
        kernel,
        mut children,
        events,
    } = bench();
    children.install(child(0x1000, "192.0.2.7", None, true));
    let sent = |sent| Usage {
        sent,
        ..Usage::default()
    };
    kernel.used(0x1001, sent(999));
    children.look_at_sequence();
    assert!(events.try_recv().is_err());
    kernel.used(0x1001, sent(1000));
    children.look_at_sequence();
    children.look_at_sequence();
    let state: Vec<ChildEvent> = events.try_iter().collect();
    assert_eq!(state, [ChildEvent::Expired(spi(0x1000), Expiry::Soft)]);
}

#[test]
fn association_refused_by_the_kernel_is_reported_expired() {
    for (refused, left) in [(0x1000, vec![]), (0x1001, vec![0x1000])] {
        let Bench {
            kernel,
            mut children,
            events,
        } = bench();
        kernel.0.borrow_mut().refused.push(refused);
        children.install(child(0x1000, "192.0.2.7", None, true));
        let state: Vec<ChildEvent> = events.try_iter().collect();
        assert_eq!(state, [ChildEvent::Expired(spi(0x1000), Expiry::Hard)]);
        assert_eq!(kernel.spis(), left);
        children.remove(spi(0x1000), Instant::now());
        children.poll(Instant::now());
        assert_eq!((kernel.spis(), kernel.shown().1), (vec![], 0));
    }
}

#[test]
fn association_has_a_hard_lifetime_in_the_kernel() {
    let mut inbound = parameters(0x1000, "192.0.2.7");
    inbound.lifetime.hard.age = Some(Duration::from_secs(7260));
    let outbound = parameters(0x1001, "192.0.2.7");
    let made = kernel_child((&inbound, &outbound), &[wanted()], None, true).unwrap();
    assert_eq!(made.inbound.hard_seconds, Some(7260));
    assert_eq!(made.outbound.hard_seconds, None);
}

#[test]
fn child_unfit_for_the_kernel_is_refused() {
    let two = (
        parameters(0x1000, "192.0.2.7"),
        parameters(0x1001, "192.0.2.7"),
    );
    let make = |selectors: &[Wanted]| kernel_child((&two.0, &two.1), selectors, None, true).err();
    let ports = |first, last| Wanted {
        protocol: Some(6),
        remote_ports: PortMatch::Range(first, last),
        ..wanted()
    };
    assert_eq!(make(&[ports(80, 80)]), None);
    assert_eq!(make(&[ports(80, 81)]), Some(Unfit::Ports));
    assert_eq!(make(&vec![wanted(); POLICIES]), None);
    assert_eq!(make(&vec![wanted(); POLICIES + 1]), Some(Unfit::Many));
    let transport = SaParameters {
        engine: offload::Engine::default(),
        accelerator: None,
        mode: Mode::Transport,
        ..parameters(0x1000, "192.0.2.7")
    };
    let made = kernel_child((&transport, &transport), &[wanted()], None, true);
    assert_eq!(made.err(), Some(Unfit::Transport));
}
