//! Why EAP ended without success.

/// Why EAP ended without success. The peer gets no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EapError {
    /// Not as the documents want it.
    #[error("EAP: the peer broke the protocol ({0})")]
    Protocol(&'static str),
    /// Success came before the peer had proved itself.
    #[error("EAP: success without proof")]
    EarlySuccess,
    /// The server refused us.
    #[error("EAP: refused by the server")]
    Refused,
    /// Name or password is wrong, or there is no such user.
    #[error("EAP: wrong user or password ({0})")]
    Password(String),
    /// No method in common.
    #[error("EAP: no method in common")]
    Method,
    /// TLS failed.
    #[error("EAP-TLS: {0}")]
    Tls(String),
    /// The caller does not take the peer's certificate.
    #[error("EAP-TLS: certificate refused: {0}")]
    Certificate(String),
}
