//! One module per page; each parses, asks the backend, renders.

pub(crate) mod applications;
pub(crate) mod assets;
pub(crate) mod audit;
pub(crate) mod cameras;
pub(crate) mod home;
pub(crate) mod layout;
pub(crate) mod login;
pub(crate) mod requests;
pub(crate) mod violation;
pub(crate) mod violations;
pub(crate) mod visitor;
