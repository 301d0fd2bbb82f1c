//! The whole table of states and events, and what each pair does.

mod states;

use std::net::SocketAddr;

use zeroize::Zeroizing;

use self::states::{ASKED, connection, in_state, may, path};
use super::channel::Received;
use super::core::Core;
use super::exchange::Purpose;
use super::intent::Intent;
use super::{IkeSa, State, StateName, WrongState};
use crate::eap::NtHash;
use crate::event::{Reason, Response};
use crate::puzzle::Solution;
use crate::types::{IkeId, Path};
use crate::wire::{
    Datagram, ExchangeType, Flags, Header, Notify, NotifyType, Payload, PayloadType, encode_clear,
};

type Apply = Box<dyn Fn(&mut IkeSa, &mut Core) -> Result<(), WrongState>>;

fn message(exchange: ExchangeType, response: bool) -> Apply {
    Box::new(move |sa, core| {
        if !response {
            sa.common.channel.begin_request(1);
        }
        let received = Received {
            exchange,
            response,
            payloads: Ok(Vec::new()),
            logical: Zeroizing::new(Vec::new()),
        };
        let outcome = sa.on_message(core, sa.path(), received);
        sa.pump(core);
        outcome
    })
}

/// A message without protection.
fn clear(exchange: ExchangeType, response: bool) -> Apply {
    Box::new(move |sa, core| {
        let spis = sa.common.channel.spis;
        let header = Header {
            spi_i: spis.initiator,
            spi_r: spis.responder,
            first: PayloadType::NONE,
            exchange,
            flags: Flags {
                initiator: !response,
                response,
            },
            message_id: 0,
        };
        let notify = Payload::Notify(Notify::new(NotifyType::INVALID_IKE_SPI));
        let payloads = if exchange.is_first() {
            vec![]
        } else {
            vec![notify]
        };
        let bytes = encode_clear(header, &payloads);
        let datagram = Datagram::parse(&bytes).unwrap();
        sa.handle(core, sa.path(), &datagram, &bytes)
    })
}

fn answer(make: impl Fn() -> Response + 'static) -> Apply {
    Box::new(move |sa, core| sa.on_caller_response(core, ASKED, make()))
}

const EXCHANGES: [ExchangeType; 6] = [
    ExchangeType::IKE_INTERMEDIATE,
    ExchangeType::IKE_AUTH,
    ExchangeType::CREATE_CHILD_SA,
    ExchangeType::INFORMATIONAL,
    ExchangeType::IKE_FOLLOWUP_KE,
    ExchangeType(250),
];

/// Groups of events, in the order of the columns.
fn events() -> Vec<Vec<Apply>> {
    let messages = |response| EXCHANGES.map(|exchange| message(exchange, response));
    let elsewhere = Path {
        local: SocketAddr::from(([192, 0, 2, 9], 4500)),
        ..path(0)
    };
    vec![
        Vec::from(messages(false)),
        Vec::from(messages(true)),
        vec![
            clear(ExchangeType::IKE_SA_INIT, false),
            clear(ExchangeType::IKE_SA_INIT, true),
            clear(ExchangeType::INFORMATIONAL, true),
        ],
        vec![
            answer(|| Response::Signature(vec![0; 64])),
            answer(|| Response::PeerKey(vec![0; 32])),
            answer(|| Response::Welcome),
            answer(|| Response::Password(NtHash::of_password("secret"))),
            answer(|| Response::Solved(Solution(vec![0; 8]))),
            answer(|| Response::Tls),
            answer(|| Response::Authorized(Box::new(may(0)))),
            answer(|| Response::OtherConnection("not this one".into())),
            answer(|| Response::OtherAuthorities("not theirs".into())),
            answer(|| Response::Refused("no".into())),
        ],
        vec![
            Box::new(|sa, core| sa.want(core, Intent::Liveness)),
            Box::new(|sa, core| sa.want(core, Intent::DeleteIke(Reason::Local))),
            Box::new(move |sa, core| sa.change_path(core, elsewhere).map(|_| ())),
            Box::new(|sa, core| sa.set_addresses(core, vec![]).map(|_| ())),
            Box::new(move |sa, core| sa.heard_from(core, elsewhere.local).map(|_| ())),
            Box::new(|sa, core| sa.notify_invalid_spi(core, 4711)),
            Box::new(|sa, core| sa.note_inbound(core, 4711)),
        ],
        vec![
            Box::new(|sa, core| sa.discard(core)),
            Box::new(|sa, core| {
                let paths = (path(0), path(1));
                sa.follow_path(core, &connection(0, false), paths)
            }),
            Box::new(|sa, core| {
                let (_, other) = in_state(StateName::Live);
                let State::Established(mut other) = other.state else {
                    panic!("established")
                };
                let inherited = other.hand_over(path(0), super::nat::Nat::default());
                sa.inherit(core, IkeId(4711), inherited)
            }),
        ],
        vec![
            Box::new(|sa, core| {
                sa.common.deadline = Some(core.now);
                sa.on_timeout(core);
                Ok(())
            }),
            Box::new(|sa, core| {
                sa.on_peer_gone(core);
                Ok(())
            }),
        ],
    ]
}

/// What a pair does, as one letter.
fn outcome(name: StateName, event: &Apply) -> char {
    let (mut core, mut sa) = in_state(name);
    assert_eq!(sa.state.name(), name);
    core.transmits.clear();
    let result = event(&mut sa, &mut core);
    if let Err(wrong) = result {
        assert_eq!(wrong.state, name, "the error names the state");
    }
    assert!(
        !matches!(sa.state, State::Moving),
        "no event stays half done"
    );
    let ended = sa.state.name() == StateName::Closed && name != StateName::Closed;
    match (result.is_err(), ended, sa.state.name() == name) {
        (true, true, _) => '!',
        (true, false, _) => '.',
        (false, true, _) => 'x',
        (false, false, _) if sa.is_gone() => 'x',
        (false, false, false) => '>',
        (false, false, true) => '=',
    }
}

const STATES: [StateName; 27] = [
    StateName::InitSent,
    StateName::SolvingPuzzle,
    StateName::IntermediateSent,
    StateName::SigningRequest,
    StateName::AuthSent,
    StateName::VerifyingResponder,
    StateName::ReviewingResponder,
    StateName::AuthorizingResponder,
    StateName::EapStarted,
    StateName::EapVerifyingResponder,
    StateName::EapWorking,
    StateName::EapSent,
    StateName::EapProofSent,
    StateName::InitAnswered,
    StateName::VerifyingInitiator,
    StateName::ReviewingInitiator,
    StateName::AuthorizingInitiator,
    StateName::SigningResponse,
    StateName::EapSigning,
    StateName::EapExpecting,
    StateName::EapAsking,
    StateName::EapSucceeded,
    StateName::Live,
    StateName::CollisionPending,
    StateName::Replaced,
    StateName::Redundant,
    StateName::Closed,
];

/// Rows are states, columns events:
///
/// 1. authenticated requests without payloads: IKE_INTERMEDIATE, IKE_AUTH, CREATE_CHILD_SA, INFORMATIONAL,
///    IKE_FOLLOWUP_KE, an unknown exchange
/// 2. authenticated responses of the same, where nothing was asked
/// 3. first request again, response to it without payloads, another unprotected message
/// 4. answers: signature, peer key, welcome, password, solution, TLS step, authorization, other connection, other
///    authorities, refusal
/// 5. caller: probe, close, change path, set addresses, peer moved, unknown SPI, inbound packets
/// 6. other IKE SAs: discard, follow path, inherit
/// 7. deadline, peer gone
///
/// `=` has a place and leaves the state, `>` leads to another, `x` ends the IKE SA; `.` has no place and changes
/// nothing, `!` has none and ends the IKE SA. Both are counted.
const TABLE: &str = "\
InitSent               !!!!!! !!!!!! ==. .......... .x..... ... xx
SolvingPuzzle          !!!!!! !!!!!! =.. !!!!>!!!!x .x..... ... xx
IntermediateSent       !!==== x!!!!! =.. .......... .x..... ... xx
SigningRequest         !!==== !!!!!! =.. >!!!!!!xxx .x..... ... xx
AuthSent               !!==== !x!!!! =.. .......... .x..... ... xx
VerifyingResponder     !!==== !!!!!! =.. !x!!!!!xxx .x..... ... xx
ReviewingResponder     !!==== !!!!!! =.. !!>!!!!xxx .x..... ... xx
AuthorizingResponder   !!==== !!!!!! =.. !!!!!!>xxx .x..... ... xx
EapStarted             !!==== !x!!!! =.. .......... .x..... ... xx
EapVerifyingResponder  !!==== !!!!!! =.. !x!!!!!xxx .x..... ... xx
EapWorking             !!==== !!!!!! =.. !!!x!x!xxx .x..... ... xx
EapSent                !!==== !x!!!! =.. .......... .x..... ... xx
EapProofSent           !!==== !x!!!! =.. .......... .x..... ... xx
InitAnswered           xx!!!! !!!!!! =.. .......... .x..... ... xx
VerifyingInitiator     !!!!!! !!!!!! =.. !x!!!!!xxx .x..... ... xx
ReviewingInitiator     !!!!!! !!!!!! =.. !!>!!!!xxx .x..... ... xx
AuthorizingInitiator   !!!!!! !!!!!! =.. !!!!!!>xxx .x..... ... xx
SigningResponse        !!!!!! !!!!!! =.. >!!!!!!xxx .x..... ... xx
EapSigning             !!!!!! !!!!!! =.. >!!!!!!xxx .x..... ... xx
EapExpecting           !x!x!! !!!!!! =.. .......... .x..... ... xx
EapAsking              !!!!!! !!!!!! =.. !x!x!x!xxx .x..... ... xx
EapSucceeded           !x!!!! !!!!!! =.. .......... .x..... ... xx
Live                   !!===! !!!!!! =.= .......... ======= >== xx
CollisionPending       !!===! !!!!!! =.= .......... ......= >=> xx
Replaced               !!===! !!!!!! =.= .......... ......= >=> xx
Redundant              !!===! !!!!!! =.= .......... ......= ==> xx
Closed                 ====== xxxxxx =.. .......... ....... ... xx
";

/// Rows are exchanges of ours that are out, columns authenticated responses without payloads, as in the second group
/// of [`TABLE`].
const IN_FLIGHT: &str = "\
create Child SA        !!x!!!
rekey Child SA         !!x!!!
rekey IKE SA           !!x!!!
delete Child SA        !!!=!!
delete unaccepted      !!!=!!
delete IKE SA          !!!x!!
update addresses       !!!=!!
check path             !!!=!!
liveness               !!!=!!
confirm                !!!=!!
notification           !!!=!!
";

/// What a response does while an exchange of ours is out.
fn response(start: &Start, exchange: ExchangeType) -> char {
    let (mut core, mut sa) = in_state(StateName::Live);
    let State::Established(established) = &mut sa.state else {
        panic!("established")
    };
    start(established, &mut sa.common, &mut core);
    assert!(established.exchange.is_some(), "a request is out");
    let result = message(exchange, true)(&mut sa, &mut core);
    match (result.is_err(), sa.is_established()) {
        (true, false) => '!',
        (true, true) => '.',
        (false, false) => 'x',
        (false, true) => '=',
    }
}

type Start = Box<dyn Fn(&mut super::Established, &mut super::Common, &mut Core)>;

#[test]
fn every_exchange_in_flight_meets_every_response_and_does_what_the_table_says() {
    let child = |established: &super::Established| {
        let children = &established.children;
        *children.keys().next().expect("a Child SA")
    };
    let starts: [(&str, Start); 11] = [
        (
            "create Child SA",
            Box::new(|e, sa, core| e.start_child(sa, core, 0, &Purpose::New, None)),
        ),
        (
            "rekey Child SA",
            Box::new(move |e, sa, core| e.start_child_rekey(sa, core, child(e))),
        ),
        (
            "rekey IKE SA",
            Box::new(|e, sa, core| e.start_ike_rekey(sa, core, None)),
        ),
        (
            "delete Child SA",
            Box::new(move |e, sa, core| e.start_delete(sa, core, child(e), Reason::Local)),
        ),
        (
            "delete unaccepted",
            Box::new(|e, sa, core| e.start_delete_unaccepted(sa, core, 4711)),
        ),
        (
            "delete IKE SA",
            Box::new(|e, sa, core| e.start_close(sa, core, Reason::Local)),
        ),
        (
            "update addresses",
            Box::new(|e, sa, core| e.start_update(sa, core)),
        ),
        (
            "check path",
            Box::new(|e, sa, core| e.start_path_check(sa, core)),
        ),
        (
            "liveness",
            Box::new(|e, sa, core| e.start_liveness(sa, core)),
        ),
        (
            "confirm",
            Box::new(|e, sa, core| e.start_confirmation(sa, core)),
        ),
        (
            "notification",
            Box::new(|e, sa, core| e.start_announcement(sa, core)),
        ),
    ];
    let mut table = String::new();
    for (name, start) in &starts {
        let letters = EXCHANGES.map(|exchange| response(start, exchange));
        table += &format!("{name:<22} {}\n", String::from_iter(letters));
    }
    assert_eq!(table, IN_FLIGHT, "\n{table}");
}

#[test]
fn silence_after_a_message_larger_than_the_path_is_told_from_silence() {
    for name in [StateName::AuthSent, StateName::InitAnswered] {
        let (_, sa) = in_state(name);
        let channel = &sa.common.channel;
        let Reason::TimeoutOfLarge(len) = channel.silence(0) else {
            panic!("{name} has sent nothing");
        };
        assert_eq!(channel.silence(len), Reason::Timeout);
        assert_eq!(channel.silence(len - 1), Reason::TimeoutOfLarge(len));
    }
}

#[test]
fn who_gives_up_a_handshake_that_may_be_over_for_the_responder_tells_it_so() {
    for name in STATES {
        let answered = matches!(
            name,
            StateName::VerifyingResponder
                | StateName::ReviewingResponder
                | StateName::AuthorizingResponder
        );
        let out = matches!(name, StateName::AuthSent | StateName::EapProofSent);
        let (mut core, mut sa) = in_state(name);
        if answered {
            sa.common.channel.complete_request();
        }
        core.transmits.clear();
        if sa.is_established()
            || sa
                .want(&mut core, Intent::DeleteIke(Reason::Local))
                .is_err()
        {
            continue;
        }
        assert_eq!(core.transmits.len(), usize::from(answered), "{name}");
        assert_eq!(sa.owes_notice(), answered || out, "{name}");
        assert_eq!(sa.is_gone(), !(answered || out), "{name}");
    }
}

#[test]
fn every_state_meets_every_event_and_does_what_the_table_says() {
    let events = events();
    let mut table = String::new();
    for name in STATES {
        let groups = events.iter().map(|group| {
            let letters = group.iter().map(|event| outcome(name, event));
            letters.collect::<String>()
        });
        let groups: Vec<String> = groups.collect();
        table += &format!("{:<22} {}\n", name.to_string(), groups.join(" "));
    }
    assert_eq!(table, TABLE, "\n{table}");
}
