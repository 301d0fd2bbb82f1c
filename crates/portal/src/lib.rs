//! The web portal: a shell in which applications have their pages.
//!
//! The shell knows who is there, and in which language; it has the frame, the menu, forms and their tokens, password sessions,
//! and pages for what did not work. Pages work without JavaScript, and the content security policy forbids it.
//!
//! An [`Application`] is a crate of pages: it brings a tile, a router, texts in each language, and the trait of the service
//! that it asks. That service decides whether a person may have what a page asks for; the portal holds no data and takes no
//! decision of its own.
//!
//! Start with [`Shell`]. A request is served in this order: the shell chooses the language; [`Viewer`] finds the person, by
//! certificate or by password session, on every request; the handler asks its service; the page shows what was permitted,
//! or says which rule refused.
#![forbid(unsafe_code)]

mod assets;
mod error;
mod form;
pub mod format;
mod frame;
mod headers;
mod home;
mod identity;
mod language;
mod language_choice;
mod login;
mod router;
mod session;
mod shell;
mod viewer;

pub use error::unreadable;
pub use form::Fields;
pub use home::missing;
pub use identity::{Answer, Coming, Epoch, Identity, PageError, Refused};
pub use language::{Argument, Languages, Text, TextError, TextFile, Texts};
pub use login::{continue_to, login_address};
pub use session::{NoRandomness, SessionLimits, Sessions};
pub use shell::{App, Application, Link, Linked, Outline, Shell, Tile};
pub use viewer::{Login, NoViewer, Proof, Viewer};
