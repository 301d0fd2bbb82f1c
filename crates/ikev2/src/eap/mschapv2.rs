//! EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2): its packets and both sides.

use subtle::ConstantTimeEq;

use super::mschap::{NtHash, Run, session_key};
use super::{EapError, SessionKey};
use crate::wire::Reader;

const CHALLENGE: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// Longest name of a user that we take.
const MAX_NAME: usize = 256;

/// The server's name; nobody checks it.
const SERVER_NAME: &[u8] = b"cordon";

fn broken<E>(_: E) -> EapError {
    EapError::Protocol("MSCHAPv2")
}

/// The header in front of all but the short answers. The length counts from the operation on.
fn framed(operation: u8, id: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len().saturating_add(4)).unwrap_or(u16::MAX);
    let [high, low] = len.to_be_bytes();
    [&[operation, id, high, low], body].concat()
}

/// Operation, identifier and body; a short answer has only the operation.
fn parse(data: &[u8]) -> Result<(u8, u8, &[u8]), EapError> {
    let (operation, rest) = data.split_first().ok_or(EapError::Protocol("MSCHAPv2"))?;
    if rest.is_empty() {
        return Ok((*operation, 0, rest));
    }
    let mut reader = Reader::new(rest, 0);
    let id = reader.u8("identifier").map_err(broken)?;
    let len = usize::from(reader.u16("length").map_err(broken)?);
    let body = len.checked_sub(4).ok_or(EapError::Protocol("MSCHAPv2"))?;
    Ok((*operation, id, reader.take(body, "body").map_err(broken)?))
}

pub(super) enum Client {
    /// Nothing has come yet.
    Start,
    /// Challenged; the password is to come.
    Challenged { id: u8, challenge: [u8; 16] },
    /// Answered; the server's proof is to come.
    Answered { expected: String, key: SessionKey },
    /// The server has proved itself.
    Done(SessionKey),
}

/// The client's step after a request.
pub(super) enum Step {
    Send(Vec<u8>),
    NeedPassword,
}

impl Client {
    pub(super) fn handle(&mut self, data: &[u8]) -> Result<Step, EapError> {
        let (operation, id, body) = parse(data)?;
        match (operation, &*self) {
            // A second challenge would be a second chance to learn about the password.
            (CHALLENGE, Self::Start) => {
                let mut reader = Reader::new(body, 0);
                let size = reader.u8("value size").map_err(broken)?;
                let challenge = reader.array("challenge").map_err(broken)?;
                if size != 16 {
                    return Err(EapError::Protocol("MSCHAPv2"));
                }
                *self = Self::Challenged { id, challenge };
                Ok(Step::NeedPassword)
            }
            (SUCCESS, Self::Answered { expected, key }) => {
                // "S=" and 40 digits, then perhaps a message.
                let proof = body.get(..expected.len()).unwrap_or_default();
                if !bool::from(proof.ct_eq(expected.as_bytes())) {
                    return Err(EapError::Protocol("the server does not know the password"));
                }
                *self = Self::Done(key.clone());
                Ok(Step::Send(vec![SUCCESS]))
            }
            (FAILURE, Self::Answered { .. }) => Ok(Step::Send(vec![FAILURE])),
            _ => Err(EapError::Protocol("MSCHAPv2")),
        }
    }

    pub(super) fn password(
        &mut self,
        user: &[u8],
        peer_challenge: [u8; 16],
        password: &NtHash,
    ) -> Result<Vec<u8>, EapError> {
        let Self::Challenged { id, challenge } = &*self else {
            return Err(EapError::Protocol("MSCHAPv2"));
        };
        let run = Run {
            server_challenge: challenge,
            peer_challenge: &peer_challenge,
            user,
        };
        let proof = run.nt_response(password);
        let body = [&[49], &peer_challenge[..], &[0; 8], &proof, &[0], user].concat();
        let answer = framed(RESPONSE, *id, &body);
        *self = Self::Answered {
            expected: run.authenticator_response(password, &proof),
            key: session_key(password, &proof),
        };
        Ok(answer)
    }
}

pub(super) enum Server {
    Challenged {
        challenge: [u8; 16],
    },
    /// The proof is here, the password is to come.
    Answered {
        challenge: [u8; 16],
        answer: Box<ClientResponse>,
    },
    /// Our own proof is out.
    Proved {
        user: Vec<u8>,
        key: SessionKey,
    },
    /// We have said no.
    Refused {
        user: Vec<u8>,
    },
}

pub(super) struct ClientResponse {
    peer_challenge: [u8; 16],
    proof: [u8; 24],
    user: Vec<u8>,
}

/// Result of a response.
pub(super) enum Outcome {
    NeedPassword(Vec<u8>),
    Done(Vec<u8>, SessionKey),
    /// We have said no before.
    Failed,
}

impl Server {
    pub(super) fn challenge(id: u8, challenge: [u8; 16]) -> (Self, Vec<u8>) {
        let body = [&[16], &challenge[..], SERVER_NAME].concat();
        (Self::Challenged { challenge }, framed(CHALLENGE, id, &body))
    }

    pub(super) fn handle(&mut self, data: &[u8]) -> Result<Outcome, EapError> {
        let (operation, _, body) = parse(data)?;
        match (operation, &*self) {
            (RESPONSE, Self::Challenged { challenge }) => {
                let answer = Box::new(read_answer(body)?);
                let (user, challenge) = (answer.user.clone(), *challenge);
                *self = Self::Answered { challenge, answer };
                Ok(Outcome::NeedPassword(user))
            }
            (SUCCESS, Self::Proved { user, key }) => Ok(Outcome::Done(user.clone(), key.clone())),
            (_, Self::Refused { .. }) => Ok(Outcome::Failed),
            _ => Err(EapError::Protocol("MSCHAPv2")),
        }
    }

    /// Goes on with the user's password; none if there is no such user, which takes the same way.
    pub(super) fn password(
        &mut self,
        id: u8,
        password: Option<&NtHash>,
        fresh_challenge: [u8; 16],
    ) -> Result<Vec<u8>, EapError> {
        let Self::Answered { challenge, answer } = &*self else {
            return Err(EapError::Protocol("MSCHAPv2"));
        };
        let run = Run {
            server_challenge: challenge,
            peer_challenge: &answer.peer_challenge,
            user: &answer.user,
        };
        // Nobody has this hash, and the work is the same.
        let nobody = NtHash::new(fresh_challenge);
        let user = answer.user.clone();
        let accepted = run.accepts(password.unwrap_or(&nobody), &answer.proof);
        if let Some(password) = password.filter(|_| accepted) {
            let proof = run.authenticator_response(password, &answer.proof);
            let key = session_key(password, &answer.proof);
            *self = Self::Proved { user, key };
            return Ok(framed(SUCCESS, id, format!("{proof} M=OK").as_bytes()));
        }
        *self = Self::Refused { user };
        // Wrong credentials, no second try (RFC 2759 §6).
        let hex = fresh_challenge.iter().map(|byte| format!("{byte:02X}"));
        let message = format!("E=691 R=0 C={} V=3 M=refused", hex.collect::<String>());
        Ok(framed(FAILURE, id, message.as_bytes()))
    }
}

fn read_answer(body: &[u8]) -> Result<ClientResponse, EapError> {
    let mut reader = Reader::new(body, 0);
    if reader.u8("value size").map_err(broken)? != 49 {
        return Err(EapError::Protocol("MSCHAPv2"));
    }
    let peer_challenge = reader.array("challenge").map_err(broken)?;
    reader.take(8, "reserved bytes").map_err(broken)?;
    let proof = reader.array("response").map_err(broken)?;
    reader.u8("flags").map_err(broken)?;
    let user = reader.rest();
    if user.is_empty() || user.len() > MAX_NAME {
        return Err(EapError::Protocol("user name"));
    }
    Ok(ClientResponse {
        peer_challenge,
        proof,
        user: user.to_vec(),
    })
}
