//! What a provider says it did to a request, as it is kept with the answer.

use atomic_protocol::json::{ObjectWriter, Raw};

use crate::body::List;
use crate::http::cut;
use crate::wire::Text;

/// Most changes that are kept of one answer: a provider may list one for each message of a long conversation.
const MAX_CHANGES: usize = 100;

/// `{"transformations":[…]}`, of each change the named words that are there.
pub(crate) fn transformations<'a, const N: usize>(
    changes: impl Iterator<Item = [(&'static str, &'a Option<Text<'a>>); N]>,
) -> Raw {
    let mut out = Vec::new();
    let mut details = ObjectWriter::begin(&mut out);
    let mut list = List::begin(details.key("transformations"));
    for change in changes.take(MAX_CHANGES) {
        let mut object = list.object();
        for (name, word) in change {
            if let Some(word) = word {
                object.str(name, &cut(word));
            }
        }
        object.end();
    }
    list.end();
    details.end();
    std::str::from_utf8(&out).ok().and_then(|text| Raw::parse(text).ok()).unwrap_or_else(Raw::empty_object)
}
