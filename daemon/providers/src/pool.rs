//! What the sessions of one daemon have in common, so that twenty windows ask once.

use std::fmt;
use std::sync::Arc;

use crate::google_adc::Tokens;
use crate::local::Lists;

/// Short-lived tokens and the lists of local servers. In memory only; cloning gives another handle.
#[derive(Clone, Default)]
pub struct Pool(Arc<Kept>);

#[derive(Default)]
struct Kept {
    tokens: Tokens,
    lists: Lists,
}

impl Pool {
    /// With nothing in it.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// Those that Google gave.
    pub(crate) fn google_tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// What local servers said they have.
    pub(crate) fn lists(&self) -> &Lists {
        &self.0.lists
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}
