//! LDAP over the connections of a [`listener`]: the protocol is [`ldap_directory`]'s, people and rules are those of
//! [`Services`].
//!
//! A connection is served request by request, so that a client waits for its own requests only. Whether a bind still stands
//! is asked before every answer.
#![forbid(unsafe_code)]

mod services;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use ldap_directory::{
    Batch, Bound, ContentHash, Entry, Fetched, Framing, LdapResultCode, Proof, Search, Session,
    Step, Tree, View, frame_length, not_a_message,
};
use listener::{Failed, Peer, Protocol, Request, Serving, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zeroize::Zeroizing;

pub use services::{Ended, Refused, Services, Standing};
use turns::Turns;

/// Longest time for one search. Our choice: a search by a part of a name takes milliseconds.
const MAX_SEARCH: Duration = Duration::from_secs(10);
/// Entries that are looked at before other connections have their turn.
const AT_ONCE: usize = 500;
/// Octets of answers that are sent together.
const PIECE: usize = 32 * 1024;
/// Octets that are read at once.
const READ: usize = 4096;

/// Serves LDAP with the people and rules of `S`.
pub struct Ldap<S> {
    services: S,
    turns: Turns,
}

impl<S: Services> Ldap<S> {
    #[must_use]
    pub fn new(services: S) -> Self {
        Self {
            services,
            turns: Turns::default(),
        }
    }

    async fn connection(&self, stream: Box<dyn Stream>, peer: Peer) -> Result<(), Failed> {
        let mut connection = Connection {
            stream,
            peer,
            session: Session::default(),
        };
        let mut buffer = BytesMut::new();
        loop {
            let length = match frame_length(&buffer) {
                Framing::Complete(length) => length,
                Framing::Refused => return connection.last_words(&not_a_message()).await,
                Framing::Incomplete => {
                    buffer.reserve(READ);
                    let read = tokio::select! {
                        read = connection.stream.read_buf(&mut buffer) => read?,
                        () = connection.peer.stopping.cancelled() => 0,
                    };
                    if read == 0 {
                        return Ok(());
                    }
                    continue;
                }
            };
            // It may have a password.
            let message = Zeroizing::new(buffer.get(..length).unwrap_or_default().to_vec());
            buffer.advance(length);
            let request = connection.peer.request();
            if !self.handle(&mut connection, &message, &request).await? {
                return Ok(());
            }
            drop(request);
            // A client that sends without pause leaves others their turn.
            tokio::task::yield_now().await;
        }
    }

    /// Handles one message. False: the connection ends.
    async fn handle(
        &self,
        connection: &mut Connection<S>,
        message: &[u8],
        request: &Request,
    ) -> Result<bool, Failed> {
        let step = connection.session.receive(message);
        let answer = match &step {
            Step::Nothing => return Ok(true),
            Step::Answer(answer) => answer.clone(),
            Step::End(notice) => {
                connection.last_words(notice).await?;
                return Ok(false);
            }
            Step::Bind(proof) => self.bind(connection, &step, proof).await,
            Step::Search(_) | Step::Compare(_) | Step::WhoAmI => {
                return self.ask(connection, step, request).await;
            }
        };
        connection.send(&answer, request).await?;
        Ok(true)
    }

    async fn bind(&self, connection: &mut Connection<S>, step: &Step, proof: &Proof) -> Vec<u8> {
        let bound = match proof {
            Proof::Password { name, password } => {
                self.services
                    .by_password(name, password, connection.peer.address.ip())
                    .await
            }
            Proof::Certificate { authorization } => {
                let Some(certificates) = connection.peer.certificates.clone() else {
                    let code = LdapResultCode::InappropriateAuthentication;
                    let message = "SASL EXTERNAL needs a client certificate in the TLS handshake";
                    return connection.session.refuse(step, code, message);
                };
                let from = connection.peer.address.ip();
                self.services
                    .by_certificate(certificates, authorization.as_deref(), from)
                    .await
            }
        };
        match bound {
            Ok(Bound { dn, identity }) => connection.session.accept(Bound { dn, identity }),
            Err(Refused {
                is_temporary,
                message,
            }) => {
                let code = match is_temporary {
                    true => LdapResultCode::Unavailable,
                    false => LdapResultCode::InvalidCredentials,
                };
                connection.session.refuse(step, code, &message)
            }
        }
    }

    /// Answers a request whose answer depends on who asks. False: the connection ends.
    async fn ask(
        &self,
        connection: &mut Connection<S>,
        step: Step,
        request: &Request,
    ) -> Result<bool, Failed> {
        let standing = match connection.session.bound() {
            None => Standing::default(),
            Some(bound) => match self.services.standing(&bound.identity).await {
                Ok(standing) => standing,
                Err(Ended::Lost) => {
                    let notice = connection.session.lost();
                    connection.last_words(&notice).await?;
                    return Ok(false);
                }
                Err(Ended::Unknown) => {
                    return connection.unavailable(&step, request).await;
                }
            },
        };
        let answer = match &step {
            Step::WhoAmI => connection.session.who_am_i(),
            _ => match self.services.tree().await {
                Some(tree) => return self.look(connection, step, &tree, standing, request).await,
                None => return connection.unavailable(&step, request).await,
            },
        };
        connection.send(&answer, request).await?;
        Ok(true)
    }

    async fn look(
        &self,
        connection: &mut Connection<S>,
        mut step: Step,
        tree: &Tree,
        Standing { uid, view }: Standing,
        request: &Request,
    ) -> Result<bool, Failed> {
        let shape = match &step {
            Step::Search(search) if search.is_public() => None,
            Step::Search(search) => Some(search.shape()),
            _ => Some("(compare)".to_owned()),
        };
        if let Some(shape) = shape {
            let Some(bound) = connection.session.bound() else {
                let code = LdapResultCode::InsufficentAccessRights;
                let message =
                    "bind first: without a name only the root DSE and the subschema are shown";
                let answer = connection.session.refuse(&step, code, message);
                connection.send(&answer, request).await?;
                return Ok(true);
            };
            // No data without a record.
            match self.services.record(&bound.identity, &shape).await {
                Ok(()) => {}
                Err(Refused {
                    is_temporary: true, ..
                }) => {
                    return connection.unavailable(&step, request).await;
                }
                Err(Refused { message, .. }) => {
                    let code = LdapResultCode::InsufficentAccessRights;
                    let answer = connection.session.refuse(&step, code, &message);
                    connection.send(&answer, request).await?;
                    return Ok(true);
                }
            }
        }
        // Anonymous clients would wait for one another: one that reads nothing could keep the others from the root DSE.
        let _turn = match connection.session.bound() {
            Some(_) => self.turns.of(&uid).acquire_owned().await.ok(),
            None => None,
        };
        match &mut step {
            Step::Search(search) => {
                if !search.has_base(tree, view) {
                    let code = LdapResultCode::NoSuchObject;
                    let answer = connection.session.refuse(&step, code, "");
                    connection.send(&answer, request).await?;
                    return Ok(true);
                }
                match search.is_synchronising() {
                    false => self.search(connection, search, tree, view, request).await?,
                    true if view.rights => {
                        self.refresh(connection, search, tree, view, request)
                            .await?;
                    }
                    true => {
                        let code = LdapResultCode::InsufficentAccessRights;
                        let message = "copies of the directory are for those who see all of it";
                        let answer = connection.session.refuse(&step, code, message);
                        connection.send(&answer, request).await?;
                    }
                }
            }
            Step::Compare(compare) => {
                let answer = connection.session.compared(compare, tree, view);
                connection.send(&answer, request).await?;
            }
            _ => {}
        }
        Ok(true)
    }

    async fn search(
        &self,
        connection: &mut Connection<S>,
        search: &mut Search,
        tree: &Tree,
        view: View,
        request: &Request,
    ) -> Result<(), Failed> {
        let patience = search.time_limit().map(|s| Duration::from_secs(s.into()));
        let end = Instant::now() + patience.unwrap_or(MAX_SEARCH).min(MAX_SEARCH);
        let mut piece = Vec::new();
        loop {
            let Some((found, code)) = self.batch(search, tree, view).await else {
                let code = LdapResultCode::Unavailable;
                piece.extend(connection.session.done(search, code, UNAVAILABLE));
                return connection.send(&piece, request).await;
            };
            for (entry, fetched) in found {
                piece.extend(connection.session.found(search, entry, view, &fetched));
                connection.send_full(&mut piece, request).await?;
            }
            let code = match code {
                None if Instant::now() >= end => Some(LdapResultCode::TimeLimitExceeded),
                code => code,
            };
            if let Some(code) = code {
                piece.extend(connection.session.done(search, code, ""));
                return connection.send(&piece, request).await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The next entries of a search with what belongs to them, and how it ends, if it does. `None`: something cannot be read.
    async fn batch<'a>(
        &self,
        search: &mut Search,
        tree: &'a Tree,
        view: View,
    ) -> Option<(Vec<(&'a Entry, Fetched)>, Option<LdapResultCode>)> {
        let (entries, code) = match search.next(tree, view, AT_ONCE) {
            Batch::More(entries) => (entries, None),
            Batch::Last(entries, code) => (entries, Some(code)),
        };
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            let fetched = match entry.late() {
                Some(late) if search.wants_binary() => self.services.fetch(late).await?,
                _ => Fetched::default(),
            };
            found.push((entry, fetched));
        }
        Some((found, code))
    }

    /// Brings a client's copy up to date. The content is looked at twice: first for its hash, which says whether the copy is
    /// current, then to send it. What changes in between gives another hash at the next refresh.
    async fn refresh(
        &self,
        connection: &mut Connection<S>,
        search: &mut Search,
        tree: &Tree,
        view: View,
        request: &Request,
    ) -> Result<(), Failed> {
        let mut hash = ContentHash::default();
        let mut is_over = false;
        while !is_over {
            let Some((found, code)) = self.batch(search, tree, view).await else {
                let code = LdapResultCode::Unavailable;
                let answer = connection.session.done(search, code, UNAVAILABLE);
                return connection.send(&answer, request).await;
            };
            for (entry, fetched) in &found {
                search.hash(entry, view, fetched, &mut hash);
            }
            is_over = code.is_some();
            tokio::task::yield_now().await;
        }
        let csn = self.services.csn(search.content_key(), hash.finish());
        let mut piece = Vec::new();
        search.rewind();
        is_over = search.has_copy_of(&csn);
        while !is_over {
            let Some((found, code)) = self.batch(search, tree, view).await else {
                let code = LdapResultCode::Unavailable;
                piece.extend(connection.session.done(search, code, UNAVAILABLE));
                return connection.send(&piece, request).await;
            };
            for (entry, fetched) in &found {
                let session = &connection.session;
                piece.extend(session.synchronised(search, entry, view, fetched, &csn));
                connection.send_full(&mut piece, request).await?;
            }
            is_over = code.is_some();
            tokio::task::yield_now().await;
        }
        piece.extend(connection.session.refreshed(search, &csn));
        connection.send(&piece, request).await
    }
}

impl<S: Services> Protocol for Ldap<S> {
    fn serve<'a>(&'a self, stream: Box<dyn Stream>, peer: Peer) -> Serving<'a> {
        Box::pin(self.connection(stream, peer))
    }
}

/// A fault of this side, of which the log knows more.
const UNAVAILABLE: &str = "the server cannot answer now: try again in a minute";

struct Connection<S: Services> {
    stream: Box<dyn Stream>,
    peer: Peer,
    session: Session<S::Identity>,
}

impl<S: Services> Connection<S> {
    async fn send(&mut self, answer: &[u8], request: &Request) -> Result<(), Failed> {
        let stream = &mut self.stream;
        let write = async move {
            stream.write_all(answer).await?;
            stream.flush().await
        };
        Ok(request.while_writing(write).await?)
    }

    /// Sends what has become long enough.
    async fn send_full(&mut self, piece: &mut Vec<u8>, request: &Request) -> Result<(), Failed> {
        if piece.len() >= PIECE {
            self.send(piece, request).await?;
            piece.clear();
        }
        Ok(())
    }

    async fn unavailable(&mut self, step: &Step, request: &Request) -> Result<bool, Failed> {
        let code = LdapResultCode::Unavailable;
        let answer = self.session.refuse(step, code, UNAVAILABLE);
        self.send(&answer, request).await?;
        Ok(true)
    }

    /// Sends what there is to say, and closes the connection.
    async fn last_words(&mut self, notice: &[u8]) -> Result<(), Failed> {
        let request = self.peer.request();
        self.send(notice, &request).await?;
        let shut = request.while_writing(self.stream.shutdown());
        Ok(shut.await?)
    }
}

/// Shares one value with all connections.
impl<S: Services> From<Ldap<S>> for listener::Service {
    fn from(ldap: Ldap<S>) -> Self {
        Self::Other(Arc::new(ldap))
    }
}
