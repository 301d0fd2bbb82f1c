//! Child SAs: traffic selectors, installation, what one side offers and the other takes.

use std::sync::Arc;

use super::child_sa::{ChildSa, ChildState, Traffic};
use super::core::{Core, end_time, rekey_time};
use super::payloads::{find, has_notify};
use super::refusal::Refusal;
use super::siblings::{Siblings, resource_notify};
use crate::authorization::{Authorization, narrow};
use crate::config::{Addresses, ChildConfig, Connection, Mode};
use crate::crypto::{Group, IkeKeys, Pending, Shared, child_keys, respond};
use crate::diagnosis::{Difference, Setting};
use crate::event::{ChildUp, Event, Reason};
use crate::select::{EspSuite, choose, render_all};
use crate::types::{IkeId, Nonces, Path};
use crate::wire::{
    KeyExchange, KeyExchangeId, Notify, NotifyType, Payload, Proposal, TrafficSelector,
};

impl ChildSa {
    /// The peer is to delete it now, as it made another in its place, or made it in vain.
    pub(crate) fn leave_to_peer(&mut self, core: &Core, state: ChildState) {
        self.retire(state);
        self.ends_at = Some(core.now.after(core.limits.superseded));
    }

    /// Says that it is gone, and gives its SPI back.
    pub(crate) fn report_down(self, core: &mut Core, ike: IkeId, reason: Reason) {
        core.free_esp_spi(self.spi_in);
        core.event(Event::ChildDown {
            ike,
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            reason,
        });
    }
}

/// Our offer for a Child SA.
pub(crate) struct Offer {
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) pending: Option<Pending>,
    /// There may be several for its traffic (RFC 9611).
    pub(crate) shares: bool,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
}

/// The context in which a Child SA is made.
pub(crate) struct ChildContext<'a> {
    pub(crate) ike: IkeId,
    pub(crate) connection: &'a Connection,
    pub(crate) keys: &'a IkeKeys,
    pub(crate) nonces: &'a Nonces,
    pub(crate) path: Path,
    pub(crate) encapsulation: bool,
    pub(crate) replaces: Option<u32>,
    pub(crate) send_now: bool,
    /// SPIs of the peer that are in use in this IKE SA.
    pub(crate) taken: Vec<u32>,
    pub(crate) authorization: &'a Authorization,
    /// Child SAs that the peer has in this IKE SA, without the one that is replaced.
    pub(crate) others: Vec<u32>,
    /// The same with all that there are for the same traffic.
    pub(crate) siblings: Siblings,
    /// The one that is replaced is one of several for its traffic.
    pub(crate) shared: bool,
}

fn text(selectors: &[TrafficSelector]) -> String {
    selectors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

impl Offer {
    /// An offer for the child with index `config`. A key exchange of its own is made where the
    /// configuration has groups and there is an exchange for it; `group` is the one that the peer
    /// asked for. Before the peer is authenticated there is no authorization: what it agrees to is held
    /// against its own then ([`Self::accept`]). `place` is that of its SPI ([`Core::esp_spi`]).
    pub(crate) fn new(
        core: &mut Core,
        connection: &Connection,
        config: usize,
        with_groups: bool,
        group: Option<Group>,
        authorization: Option<&Authorization>,
        place: Option<u32>,
    ) -> Option<Self> {
        let child = connection.children.get(config)?;
        let (local, remote) = match authorization {
            Some(may) => (may.of_ours(&child.local), may.of_peer(&child.remote)),
            None => (child.local.clone(), child.remote.clone()),
        };
        // An offer without traffic would come back as TS_UNACCEPTABLE.
        if local.is_empty() || remote.is_empty() {
            return None;
        }
        // One SPI for all proposals: whichever the peer chooses, it is the one we listen for (§3.3.1).
        let spi_in = core.esp_spi(place);
        let mut proposals: Vec<Proposal> = Vec::new();
        for esp in &child.esp {
            let proposal = esp.to_wire(0, spi_in, with_groups);
            // Without key exchanges several may be the same.
            let known = |other: &Proposal| other.transforms == proposal.transforms;
            if !proposals.iter().any(known) {
                proposals.push(proposal);
            }
        }
        for (number, proposal) in (1..=u8::MAX).zip(&mut proposals) {
            proposal.number = number;
        }
        let first = child
            .esp
            .first()
            .and_then(|esp| esp.groups.first().copied());
        let pending = match group.or(first).filter(|_| with_groups) {
            Some(group) => Some(Pending::start(group, &mut *core.random).ok()?),
            None => None,
        };
        Some(Self {
            config,
            spi_in,
            proposals,
            pending,
            shares: false,
            local,
            remote,
        })
    }

    /// The payloads of the request, apart from the nonce.
    pub(crate) fn payloads(&self, child: &ChildConfig, first: Option<Payload>) -> Vec<Payload> {
        let mut out = vec![Payload::Sa(self.proposals.clone())];
        out.extend(first);
        if let Some(pending) = &self.pending {
            let (method, data) = (pending.group().id(), pending.public().to_vec());
            out.push(Payload::Ke(KeyExchange { method, data }));
        }
        out.push(Payload::TsI(self.local.clone()));
        out.push(Payload::TsR(self.remote.clone()));
        if child.mode == Mode::Transport {
            out.extend(transport_notifies());
        }
        out.extend(self.shares.then(resource_notify));
        out
    }

    /// The peer's refusal, with what of the offer it is about.
    pub(crate) fn refused_with(&self, error: NotifyType) -> Reason {
        let theirs = format!("refuses with {error}");
        let traffic = || format!("{} = {}", text(&self.local), text(&self.remote));
        let (setting, ours) = match error {
            NotifyType::NO_PROPOSAL_CHOSEN => {
                (Setting::ChildAlgorithms, render_all(&self.proposals))
            }
            NotifyType::FAILED_CP_REQUIRED | NotifyType::INTERNAL_ADDRESS_FAILURE => {
                (Setting::Addresses, traffic())
            }
            _ => (Setting::Traffic, traffic()),
        };
        Reason::RefusedOffer(error, Box::new(Difference::new(setting, theirs, ours)))
    }

    /// Takes what the peer's response agrees to.
    pub(crate) fn accept(
        &self,
        context: &ChildContext<'_>,
        response: &[Payload],
    ) -> Result<Negotiated, Reason> {
        let child = context
            .connection
            .children
            .get(self.config)
            .ok_or(Reason::Local)?;
        let answer = find!(response, Payload::Sa).ok_or(Reason::Protocol("no SA payload"))?;
        let (ts_i, ts_r) = selectors(response).ok_or(Reason::Protocol("no selectors"))?;
        let chosen = crate::select::check_choice(&self.proposals, answer);
        let chosen = chosen.map_err(Reason::Negotiation)?;
        let suite = EspSuite::from_wire(&chosen).ok_or(Reason::Protocol("unusable suite"))?;
        let spi_out = chosen.spi32().filter(|spi| is_free(*spi, context));
        let spi_out = spi_out.ok_or(Reason::Protocol("SPI of the Child SA"))?;
        // What the peer narrowed to must lie in what we offered (§2.9).
        let within = |offer: &[TrafficSelector], answer: &[TrafficSelector]| {
            answer
                .iter()
                .all(|one| offer.iter().any(|offered| offered.contains(one)))
        };
        if !within(&self.local, ts_i) || !within(&self.remote, ts_r) {
            let ours = format!("{} = {}", text(&self.local), text(&self.remote));
            let theirs = format!("{} = {}", text(ts_i), text(ts_r));
            return Err(Reason::Selectors { theirs, ours });
        }
        // What went out with IKE_AUTH went out before it was known what the peer may have.
        let may = context.authorization;
        let (ts_i, ts_r) = (may.of_ours(ts_i), may.of_peer(ts_r));
        if ts_i.is_empty() && matches!(context.connection.addresses, Addresses::Request { .. }) {
            let theirs = "gave none (its connection has no pool, or none is left)";
            let difference = Difference::new(Setting::Addresses, theirs, "asked for one");
            return Err(Reason::NoAddress(Box::new(difference)));
        }
        let shared = match (suite.group, &self.pending, find!(response, Payload::Ke)) {
            (None, _, _) => Vec::new(),
            (Some(group), Some(pending), Some(ke))
                if pending.group() == group && ke.method == group.id() =>
            {
                let shared = pending.finish(&ke.data);
                vec![shared.map_err(|_| Reason::Protocol("public value"))?]
            }
            _ => return Err(Reason::Protocol("key exchange of the Child SA")),
        };
        // Tunnel mode unless both want the other (§1.3.1).
        let transport = has_notify(response, NotifyType::USE_TRANSPORT_MODE);
        let mode = if transport && child.mode == Mode::Transport {
            Mode::Transport
        } else {
            Mode::Tunnel
        };
        Ok(Negotiated {
            config: self.config,
            spi_in: self.spi_in,
            spi_out,
            suite,
            shared,
            selectors: (ts_i, ts_r),
            mode,
            tfc_padding: accepts_tfc_padding(response),
            shares: match context.replaces {
                Some(_) => context.shared,
                None => self.shares && has_notify(response, NotifyType::SA_RESOURCE_INFO),
            },
            initiator: true,
        })
    }
}

pub(crate) fn selectors(
    payloads: &[Payload],
) -> Option<(&Vec<TrafficSelector>, &Vec<TrafficSelector>)> {
    Some((
        find!(payloads, Payload::TsI)?,
        find!(payloads, Payload::TsR)?,
    ))
}

/// Answers the peer's request for a Child SA: what is to be installed, and the payloads of the
/// response without the nonce.
///
/// `with_groups` is false in IKE_AUTH; `only` restricts the choice to the child that is replaced.
pub(crate) fn answer(
    core: &mut Core,
    context: &ChildContext<'_>,
    request: &[Payload],
    with_groups: bool,
    only: Option<usize>,
) -> Result<(Negotiated, Vec<Payload>), Refusal> {
    let syntax = || {
        Refusal::new(
            NotifyType::INVALID_SYNTAX,
            Reason::Protocol("missing payload"),
        )
    };
    let offered = find!(request, Payload::Sa).ok_or_else(syntax)?;
    let (ts_i, ts_r) = selectors(request).ok_or_else(syntax)?;
    let (index, child, local, remote) = fitting_child(context, ts_i, ts_r, only)?;
    let shares = context.admit_resource(&core.limits, index, request)?;
    let traffic = Traffic { local, remote };
    let shared = shares.then_some((index, &traffic));
    let place = context
        .siblings
        .place(&core.limits, context.replaces, shared);
    admissible(core, context, &traffic.remote, context.is_further(shared)).map_err(Refusal::of)?;
    let spi_in = core.esp_spi(place);
    let result = answer_with(
        core,
        context,
        request,
        (index, child),
        (spi_in, offered, with_groups),
        (traffic, shares),
    );
    // Nobody will ever send with it.
    if result.is_err() {
        core.free_esp_spi(spi_in);
    }
    result
}

/// Whether the peer may have one more Child SA with this traffic, or this one for another: it has not as
/// many as it may have, nor too many networks, and no other peer holds an address of these. A `further` one for the
/// same traffic has its own bound.
fn admissible(
    core: &Core,
    context: &ChildContext<'_>,
    remote: &[TrafficSelector],
    further: bool,
) -> Result<(), Reason> {
    let may = context.authorization;
    // A successor takes the place of another; when both sides replace one there are two for a moment.
    let counts = context.replaces.is_none() && !further;
    if counts && context.others.len() >= may.children() {
        return Err(Reason::Limit);
    }
    let before = core.claims.networks_of(context.others.iter().copied());
    if !may.permits_networks(before.iter().chain(remote)) {
        return Err(Reason::Networks);
    }
    match core.claims.conflict(may.holder(), remote) {
        Some(held) => Err(Reason::Held(held)),
        None => Ok(()),
    }
}

/// A second Child SA with an SPI of the peer that is in use could not be told from the first; those up
/// to 255 are reserved (RFC 4303 §2.1).
fn is_free(spi: u32, context: &ChildContext<'_>) -> bool {
    spi > 255 && !context.taken.contains(&spi)
}

type Fitting<'a> = (
    usize,
    &'a ChildConfig,
    Vec<TrafficSelector>,
    Vec<TrafficSelector>,
);

fn fitting_child<'a>(
    context: &ChildContext<'a>,
    ts_i: &[TrafficSelector],
    ts_r: &[TrafficSelector],
    only: Option<usize>,
) -> Result<Fitting<'a>, Refusal> {
    let candidates = || {
        let allowed = move |(index, _): &(usize, &ChildConfig)| only.is_none_or(|o| o == *index);
        context
            .connection
            .children
            .iter()
            .enumerate()
            .filter(allowed)
    };
    let may = context.authorization;
    let of = |child: &ChildConfig| (may.of_ours(&child.local), may.of_peer(&child.remote));
    // The first that has anything in common: the order of the configuration is its preference.
    for (index, child) in candidates() {
        let (own, peer) = of(child);
        let (local, remote) = (narrow(&own, ts_r), narrow(&peer, ts_i));
        if !local.is_empty() && !remote.is_empty() {
            return Ok((index, child, local, remote));
        }
    }
    let ours = candidates().map(|(_, child)| {
        let (own, peer) = of(child);
        format!("{} = {}", text(&own), text(&peer))
    });
    let ours = ours.collect::<Vec<_>>().join("; ");
    let theirs = format!("{} = {}", text(ts_r), text(ts_i));
    Err(Refusal::new(
        NotifyType::TS_UNACCEPTABLE,
        Reason::Selectors { theirs, ours },
    ))
}

fn answer_with(
    core: &mut Core,
    context: &ChildContext<'_>,
    request: &[Payload],
    (index, child): (usize, &ChildConfig),
    (spi_in, offered, with_groups): (u32, &[Proposal], bool),
    (Traffic { local, remote }, shares): (Traffic, bool),
) -> Result<(Negotiated, Vec<Payload>), Refusal> {
    let ke = find!(request, Payload::Ke);
    let ours: Vec<_> = child
        .esp
        .iter()
        .map(|esp| esp.to_wire(1, 0, with_groups))
        .collect();
    let chosen = choose(&ours, offered, ke.map(|ke| ke.method)).map_err(|failure| {
        Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN, Reason::Negotiation(failure))
    })?;
    let unusable = || {
        Refusal::new(
            NotifyType::NO_PROPOSAL_CHOSEN,
            Reason::Protocol("unusable suite"),
        )
    };
    let suite = EspSuite::from_wire(&chosen).ok_or_else(unusable)?;
    let spi_out = chosen
        .spi32()
        .filter(|spi| is_free(*spi, context))
        .ok_or_else(unusable)?;
    let (mut payloads, shared) = (Vec::new(), respond_key_exchange(core, suite.group, ke)?);
    payloads.push(Payload::Sa(vec![Proposal {
        spi: spi_in.to_be_bytes().to_vec(),
        ..chosen
    }]));
    let shared = shared.map(|(ke, shared)| {
        payloads.push(Payload::Ke(ke));
        shared
    });
    let shared = shared.into_iter().collect();
    payloads.push(Payload::TsI(remote.clone()));
    payloads.push(Payload::TsR(local.clone()));
    let transport =
        child.mode == Mode::Transport && has_notify(request, NotifyType::USE_TRANSPORT_MODE);
    if transport {
        payloads.extend(transport_notifies());
    }
    // A successor has the place of what it replaces without a word.
    let confirms = shares && context.replaces.is_none();
    payloads.extend(confirms.then(resource_notify));
    let negotiated = Negotiated {
        config: index,
        spi_in,
        spi_out,
        suite,
        shared,
        selectors: (remote, local),
        mode: if transport {
            Mode::Transport
        } else {
            Mode::Tunnel
        },
        tfc_padding: accepts_tfc_padding(request),
        shares,
        initiator: false,
    };
    Ok((negotiated, payloads))
}

/// Our half of a key exchange, or the demand for the right group (RFC 7296 §1.3).
pub(crate) fn respond_key_exchange(
    core: &mut Core,
    group: Option<Group>,
    ke: Option<&KeyExchange>,
) -> Result<Option<(KeyExchange, Shared)>, Refusal> {
    let Some(group) = group else { return Ok(None) };
    let method = group.id();
    let Some(ke) = ke.filter(|ke| ke.method == method) else {
        let reason = Box::new(Reason::Refused(NotifyType::INVALID_KE_PAYLOAD));
        let notify = invalid_ke(method);
        return Err(Refusal { notify, reason });
    };
    let (data, shared) = respond(group, &ke.data, &mut *core.random)
        .map_err(|_| Refusal::new(NotifyType::INVALID_SYNTAX, Reason::Protocol("public value")))?;
    Ok(Some((KeyExchange { method, data }, shared)))
}

/// INVALID_KE_PAYLOAD with the group that we want.
pub(crate) fn invalid_ke(method: KeyExchangeId) -> Notify {
    Notify::new(NotifyType::INVALID_KE_PAYLOAD).with_data(method.0.to_be_bytes())
}

/// A Child SA that both sides have agreed to.
pub(crate) struct Negotiated {
    pub(super) config: usize,
    pub(crate) spi_in: u32,
    spi_out: u32,
    pub(crate) suite: EspSuite,
    /// The secrets of its own key exchanges so far.
    pub(crate) shared: Vec<Shared>,
    /// Of the exchange's initiator, of its responder.
    pub(super) selectors: (Vec<TrafficSelector>, Vec<TrafficSelector>),
    mode: Mode,
    /// Whether the peer accepts traffic-flow padding.
    tfc_padding: bool,
    /// There may be several for its traffic.
    pub(super) shares: bool,
    pub(super) initiator: bool,
}

/// Asks for, or agrees to, transport mode (RFC 7296 §1.3.1). Only in tunnel mode does the inner packet say
/// where it ends, so padding behind it is accepted there alone (§3.10.1, RFC 4303 §2.7).
fn transport_notifies() -> [Payload; 2] {
    [
        NotifyType::USE_TRANSPORT_MODE,
        NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED,
    ]
    .map(|kind| Payload::Notify(Notify::new(kind)))
}

/// Whether the peer takes packets with traffic-flow padding (RFC 7296 §3.10.1).
fn accepts_tfc_padding(payloads: &[Payload]) -> bool {
    !has_notify(payloads, NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED)
}

/// Installs what the peer has asked for.
pub(crate) fn install_as_responder(
    core: &mut Core,
    context: &ChildContext<'_>,
    new: Negotiated,
) -> Result<ChildSa, Refusal> {
    let spi_in = new.spi_in;
    install(core, context, new).map_err(|reason| {
        core.free_esp_spi(spi_in);
        match reason {
            Reason::Limit | Reason::Networks | Reason::Held(_) | Reason::Unauthorized(_) => {
                Refusal::of(reason)
            }
            _ => Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN, reason),
        }
    })
}

/// Hands a Child SA to the data plane, once all key exchanges are through. The only place where one is
/// made: here the peer's authorization holds for every exchange.
pub(crate) fn install(
    core: &mut Core,
    context: &ChildContext<'_>,
    new: Negotiated,
) -> Result<ChildSa, Reason> {
    if !is_free(new.spi_out, context) {
        return Err(Reason::Protocol("SPI of the Child SA"));
    }
    let child = context
        .connection
        .children
        .get(new.config)
        .ok_or(Reason::Local)?;
    let traffic = new.shared();
    let shared = traffic.as_ref().map(|traffic| (new.config, traffic));
    let further = context.is_further(shared);
    let beside = shared.and_then(|(config, traffic)| {
        let beside = context.siblings.beside(config, traffic);
        beside.first().map(|sibling| sibling.spi_in)
    });
    let (key_i, key_r) = child_keys(context.keys, new.suite.suite, &new.shared, context.nonces)
        .ok_or(Reason::Protocol("key material"))?;
    let (ts_i, ts_r) = new.selectors;
    // Who sent the request sends with the first half of the key material (§2.17).
    let ((outbound, inbound), (local, remote)) = if new.initiator {
        ((key_i, key_r), (ts_i, ts_r))
    } else {
        ((key_r, key_i), (ts_r, ts_i))
    };
    // Nothing leaves for the data plane that the peer may not have, by whatever exchange it came here.
    let may = context.authorization;
    if !may.permits(&local, &remote) {
        let what = format!("{} = {}", text(&local), text(&remote));
        return Err(Reason::Unauthorized(what));
    }
    // Between agreement and this others may have taken what was free then: further exchanges take their time.
    admissible(core, context, &remote, further)?;
    let taken = core.claims.take(new.spi_in, may.holder(), &remote);
    taken.map_err(Reason::Held)?;
    core.event(Event::ChildUp(Box::new(ChildUp {
        ike: context.ike,
        connection: context.connection.name.clone(),
        child: child.name.clone(),
        spi_in: new.spi_in,
        spi_out: new.spi_out,
        suite: new.suite.suite,
        extended_sequence: new.suite.extended_sequence,
        inbound,
        outbound,
        local,
        remote,
        mode: new.mode,
        tfc_padding: new.tfc_padding && new.mode == Mode::Tunnel,
        path: context.path,
        udp_encapsulation: context.encapsulation,
        replaces: context.replaces,
        beside,
        send_now: context.send_now,
    })));
    core.sends_anew |= context.send_now;
    let rekey_at = rekey_time(core, child.rekey_after);
    Ok(ChildSa {
        config: new.config,
        spi_in: new.spi_in,
        spi_out: new.spi_out,
        state: ChildState::Live,
        sending: context.send_now,
        // Who gets a response knows the Child SA; who gives one does not know whether it arrived.
        unconfirmed: (!new.initiator).then(|| core.now.after(core.limits.unconfirmed)),
        held: false,
        further: false,
        traffic: traffic.map(Arc::new),
        rekey_at,
        ends_at: end_time(core, child.rekey_after),
    })
}
