//! A search under way: which entries it gives, in which order, and where it ends.

use ldap3_proto::proto::{
    LdapPartialAttribute, LdapResultCode, LdapSearchRequest, LdapSearchResultEntry, LdapSearchScope,
};

use crate::filter::Filter;
use crate::name::{Name, SEPARATOR};
use crate::schema::{self, Attribute, View};
use crate::sync::{ContentHash, Copy};
use crate::tree::{Entry, Tree, is_at_or_below};

/// Entries of one answer at most; more come in pages. Our choice: a list that a person reads, and a page of known clients.
pub(crate) const MAX_ENTRIES: usize = 1000;
/// Octets of a page's cookie at most: the key of an entry.
const MAX_COOKIE: usize = 4096;

/// Why a search is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: LdapResultCode,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Base,
    OneLevel,
    Subtree,
    Children,
}

/// Attributes that a search returns.
#[derive(Debug, Default)]
struct Selection {
    all_user: bool,
    all_operational: bool,
    named: Vec<&'static Attribute>,
}

impl Selection {
    /// RFC 4511, section 4.5.1.8: no names mean all user attributes, `1.1` none; RFC 3673: `+` all operational ones.
    fn new(names: &[String]) -> Self {
        let mut selection = Self {
            all_user: names.is_empty(),
            ..Self::default()
        };
        for name in names {
            match name.as_str() {
                "*" => selection.all_user = true,
                "+" => selection.all_operational = true,
                name => selection.named.extend(schema::by_name(name)),
            }
        }
        selection
    }

    fn has(&self, attribute: &Attribute) -> bool {
        let all = match attribute.operational {
            true => self.all_operational,
            false => self.all_user,
        };
        all || self.named.iter().any(|named| named.name == attribute.name)
    }
}

/// A page of results that the client asks for (RFC 2696).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) size: usize,
}

/// A search under way. The shell calls [`Self::next`] until it is done, and may stop at its time limit.
#[derive(Debug)]
pub struct Search {
    pub(crate) id: i32,
    base: String,
    scope: Scope,
    filter: Filter,
    selection: Selection,
    types_only: bool,
    /// Entries that the client takes at most.
    size_limit: Option<usize>,
    /// Seconds that the client waits at most; 0 is for ever.
    time_limit: u32,
    pub(crate) page: Option<Page>,
    pub(crate) copy: Option<Copy>,
    /// Only entries with later keys.
    after: Option<String>,
    found: usize,
    last: String,
    /// Positions still to be looked at, the next one last; made from tree and view at first use.
    rest: Option<Rest>,
}

#[derive(Debug)]
enum Rest {
    Positions(Vec<usize>),
    Range(std::ops::Range<usize>),
}

impl Rest {
    fn pop(&mut self) -> Option<usize> {
        match self {
            Self::Positions(positions) => positions.pop(),
            Self::Range(range) => range.next(),
        }
    }
}

/// What a step of a search gives.
#[derive(Debug)]
pub enum Batch<'a> {
    /// Entries, and there may be more.
    More(Vec<&'a Entry>),
    /// The last entries, and how the search ends.
    Last(Vec<&'a Entry>, LdapResultCode),
}

impl Search {
    pub(crate) fn new(
        id: i32,
        request: &LdapSearchRequest,
        page: Option<(i64, Vec<u8>)>,
    ) -> Result<Self, Refused> {
        let refused = |code, message: String| Refused { code, message };
        let base = Name::parse(&request.base)
            .map_err(|error| refused(LdapResultCode::InvalidDNSyntax, error.to_string()))?;
        let filter = Filter::new(&request.filter)
            .map_err(|error| refused(LdapResultCode::AdminLimitExceeded, error.to_string()))?;
        let (page, after) = match page {
            None => (None, None),
            Some((size, cookie)) => {
                let cookie = (cookie.len() <= MAX_COOKIE)
                    .then(|| String::from_utf8(cookie).ok())
                    .flatten();
                // RFC 2696, section 3.
                let cookie = cookie.ok_or_else(|| {
                    let message = "the cookie is none of this server".to_owned();
                    refused(LdapResultCode::UnwillingToPerform, message)
                })?;
                let size = usize::try_from(size).map_or(MAX_ENTRIES, |size| size.min(MAX_ENTRIES));
                (Some(Page { size }), (!cookie.is_empty()).then_some(cookie))
            }
        };
        Ok(Self {
            id,
            base: base.key(),
            scope: match request.scope {
                LdapSearchScope::Base => Scope::Base,
                LdapSearchScope::OneLevel => Scope::OneLevel,
                LdapSearchScope::Subtree => Scope::Subtree,
                LdapSearchScope::Children => Scope::Children,
            },
            filter,
            selection: Selection::new(&request.attrs),
            types_only: request.typesonly,
            size_limit: usize::try_from(request.sizelimit).ok().filter(|n| *n > 0),
            time_limit: u32::try_from(request.timelimit).unwrap_or(0),
            page,
            copy: None,
            after,
            found: 0,
            last: String::new(),
            rest: None,
        })
    }

    /// Makes it a search whose client keeps a copy.
    pub(crate) fn synchronising(self, copy: Copy) -> Self {
        Self {
            copy: Some(copy),
            page: None,
            after: None,
            // A copy of a part is not a copy: the client would delete the rest.
            size_limit: None,
            ..self
        }
    }

    /// Whether the client keeps a copy (RFC 4533).
    #[must_use]
    pub const fn is_synchronising(&self) -> bool {
        self.copy.is_some()
    }

    /// Whether the client's copy is that of `csn`.
    #[must_use]
    pub fn has_copy_of(&self, csn: &str) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.is_at(csn))
    }

    /// A text that is the same for all searches with the same results: base, scope, filter and attributes.
    #[must_use]
    pub fn content_key(&self) -> String {
        let named = self.selection.named.iter().map(|attribute| attribute.name);
        let named = named.collect::<Vec<_>>().join(" ");
        let all = (self.selection.all_user, self.selection.all_operational);
        format!(
            "{:?} {:?} {:?} {all:?} {named}",
            self.base, self.scope, self.filter
        )
    }

    /// Begins at the first entry again.
    pub fn rewind(&mut self) {
        self.found = 0;
        self.rest = None;
    }

    /// Adds an entry as it is sent to the hash of the content.
    pub fn hash(&self, entry: &Entry, view: View, late: &Fetched, hash: &mut ContentHash) {
        hash.add(&self.result(entry, view, late));
    }

    /// Seconds that the client waits at most; `None` for ever.
    #[must_use]
    pub fn time_limit(&self) -> Option<u32> {
        (self.time_limit > 0).then_some(self.time_limit)
    }

    /// The filter with names of attributes and without values, for the audit log.
    #[must_use]
    pub fn shape(&self) -> String {
        self.filter.shape()
    }

    /// Whether only entries are asked for that everybody may see: root DSE and subschema.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.scope == Scope::Base && (self.base.is_empty() || self.base == "cn=schema")
    }

    /// Whether values of certificates and revocation lists are asked for.
    #[must_use]
    pub fn wants_binary(&self) -> bool {
        [
            &schema::USER_CERTIFICATE,
            &schema::CA_CERTIFICATE,
            &schema::REVOCATION_LIST,
        ]
        .into_iter()
        .any(|attribute| self.selection.has(attribute))
    }

    /// Key of the entry at the base. Below the root, which has no entry of its own, are the entries of the site.
    fn base_in<'a>(&'a self, tree: &'a Tree) -> &'a str {
        match self.is_from_root() {
            true => tree.base_key(),
            false => &self.base,
        }
    }

    fn is_from_root(&self) -> bool {
        self.base.is_empty() && self.scope != Scope::Base
    }

    /// Whether `view` knows of an entry at the base; a search below another one fails.
    #[must_use]
    pub fn has_base(&self, tree: &Tree, view: View) -> bool {
        let base = tree.find(self.base_in(tree));
        base.is_some_and(|(_, entry)| entry.is_visible(view))
    }

    /// Looks at up to `count` entries.
    pub fn next<'a>(&mut self, tree: &'a Tree, view: View, count: usize) -> Batch<'a> {
        let mut rest = match self.rest.take() {
            Some(rest) => rest,
            None => self.start(tree, view),
        };
        let mut entries = Vec::new();
        if self.page.is_some_and(|page| page.size == 0) {
            return Batch::Last(entries, LdapResultCode::Success);
        }
        for _ in 0..count {
            let Some(position) = rest.pop() else {
                self.last.clear();
                return Batch::Last(entries, LdapResultCode::Success);
            };
            let Some(entry) = tree.get(position) else {
                continue;
            };
            if !self.is_in_scope(entry, tree)
                || !entry.is_visible(view)
                || !self.filter.matches(entry, view)
            {
                continue;
            }
            if let Some(end) = self.end_before_another() {
                return Batch::Last(entries, end);
            }
            self.found += 1;
            self.last.clone_from(&entry.key);
            entries.push(entry);
        }
        self.rest = Some(rest);
        Batch::More(entries)
    }

    /// The cookie of the next page; empty after the last one.
    pub(crate) fn cookie(&self) -> Vec<u8> {
        self.last.clone().into_bytes()
    }

    /// How the search ends instead of giving another entry, if it has to.
    fn end_before_another(&self) -> Option<LdapResultCode> {
        if self.size_limit.is_some_and(|limit| self.found >= limit) {
            return Some(LdapResultCode::SizeLimitExceeded);
        }
        match self.page {
            Some(page) if self.found >= page.size => Some(LdapResultCode::Success),
            // A copy of a part is not a copy.
            None if self.copy.is_some() => None,
            None if self.found >= MAX_ENTRIES => Some(LdapResultCode::SizeLimitExceeded),
            _ => None,
        }
    }

    fn start(&self, tree: &Tree, view: View) -> Rest {
        let from = match &self.after {
            // Keys are texts of the client here: any is as good as another, as the view decides what is seen.
            Some(after) => tree.lower_bound(&format!("{after}{SEPARATOR}")),
            None => 0,
        };
        if self.scope == Scope::Base {
            let position = tree.find(&self.base).map(|(position, _)| position);
            let position = position.filter(|position| *position >= from);
            return Rest::Positions(position.into_iter().collect());
        }
        match self.filter.candidates(tree, view) {
            Some(mut positions) => {
                positions.retain(|position| *position >= from);
                positions.sort_unstable_by(|a, b| b.cmp(a));
                Rest::Positions(positions)
            }
            None => {
                let base = self.base_in(tree);
                let start = tree.lower_bound(base).max(from);
                Rest::Range(start..tree.end_of(base).max(start))
            }
        }
    }

    fn is_in_scope(&self, entry: &Entry, tree: &Tree) -> bool {
        let base = self.base_in(tree);
        if !is_at_or_below(&entry.key, base) {
            return false;
        }
        let levels = || {
            let below = entry.key.get(base.len()..).unwrap_or_default();
            below.matches(SEPARATOR).count()
        };
        match self.scope {
            Scope::Base => levels() == 0,
            Scope::OneLevel if self.is_from_root() => levels() == 0,
            Scope::OneLevel => levels() == 1,
            Scope::Subtree => true,
            Scope::Children => levels() > 0 || self.is_from_root(),
        }
    }

    /// The entry as it is sent: what is asked for of what `view` may see. `late` are values of its certificates and lists.
    #[must_use]
    pub fn result(&self, entry: &Entry, view: View, late: &Fetched) -> LdapSearchResultEntry {
        let values = |values: Vec<Vec<u8>>| match self.types_only {
            true => Vec::new(),
            false => values,
        };
        let mut attributes = Vec::new();
        for (attribute, known) in entry.visible(view) {
            if self.selection.has(attribute) {
                let known = known.iter().map(|value| value.text.clone().into_bytes());
                attributes.push(LdapPartialAttribute {
                    atype: attribute.sent_name(),
                    vals: values(known.collect()),
                });
            }
        }
        for (attribute, known) in late.attributes() {
            if !known.is_empty() && self.selection.has(attribute) && view.has(attribute.class) {
                attributes.push(LdapPartialAttribute {
                    atype: attribute.sent_name(),
                    vals: values(known.to_vec()),
                });
            }
        }
        LdapSearchResultEntry {
            dn: entry.dn().to_owned(),
            attributes,
        }
    }
}

/// Values that were fetched for one entry.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Certificates of a person (DER).
    pub user_certificates: Vec<Vec<u8>>,
    /// Certificates of an authority.
    pub authority_certificates: Vec<Vec<u8>>,
    /// Revocation lists of an authority.
    pub revocation_lists: Vec<Vec<u8>>,
}

impl Fetched {
    fn attributes(&self) -> [(&'static Attribute, &[Vec<u8>]); 3] {
        [
            (&schema::USER_CERTIFICATE, &self.user_certificates),
            (&schema::CA_CERTIFICATE, &self.authority_certificates),
            (&schema::REVOCATION_LIST, &self.revocation_lists),
        ]
    }
}
