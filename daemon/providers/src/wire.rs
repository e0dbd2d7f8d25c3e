//! Values as providers write them: strings and counts of any shape. A delta is read into flat structs of these, which
//! borrow where they can.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A string. A list of content parts reads as their texts together; anything else reads as empty, because a field of an
/// unexpected type must not cost the answer.
#[derive(Debug, Default)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl Text<'_> {
    pub(crate) fn owned(self) -> String {
        self.0.into_owned()
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_i64<E>(self, _: i64) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Text<'de>, A::Error> {
                let mut all = Text::default();
                while let Some(part) = parts.next_element::<Text<'de>>()? {
                    if all.is_empty() {
                        all = part;
                    } else {
                        all.0.to_mut().push_str(&part);
                    }
                }
                Ok(all)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut part: A) -> Result<Text<'de>, A::Error> {
                let mut text = Text::default();
                while let Some(key) = part.next_key::<Cow<'de, str>>()? {
                    if key == "text" {
                        text = part.next_value()?;
                    } else {
                        part.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(text)
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// The text, unless there is nothing in it.
pub(crate) fn filled(text: Option<Text<'_>>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(Text::owned)
}

/// Largest count: what every reader of our records holds exactly (2^53 - 1). Sums of a few do not overflow, whatever a
/// provider claims.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// A count that may be a float, a number in quotes, null or missing; of anything else, or below zero, nothing counts.
/// Never more than [`MAX_COUNT`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl<'de> Visitor<'de> for CountVisitor {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Count, E> {
                Ok(Count(Some(number.min(MAX_COUNT))))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Count, E> {
                Ok(Count(Some(u64::try_from(number).unwrap_or(0).min(MAX_COUNT))))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Count, E> {
                Ok(Count(Some(whole(number))))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
                Ok(Count(text.trim().parse::<f64>().ok().map(whole)))
            }
            fn visit_unit<E>(self) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Count(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Count(None))
            }
        }
        deserializer.deserialize_any(CountVisitor)
    }
}

fn whole(number: f64) -> u64 {
    // Below zero and no number at all become 0, what is too large the largest.
    (number as u64).min(MAX_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_counts_of_any_shape() {
        for (json, text, count) in [
            (r#""a""#, "a", None),
            (r#""\u00e4""#, "ä", None),
            (r#"" 12 ""#, " 12 ", Some(12)),
            ("12", "", Some(12)),
            ("12.0", "", Some(12)),
            ("-3", "", Some(0)),
            ("18446744073709551615", "", Some(MAX_COUNT)),
            ("1e300", "", Some(MAX_COUNT)),
            ("null", "", None),
            ("true", "", None),
            (r#"[{"type":"text","text":"a"},{"x":[1]},"b"]"#, "ab", None),
            (r#"{"x":{"text":"no"},"text":"yes"}"#, "yes", None),
        ] {
            assert_eq!(&*serde_json::from_str::<Text<'_>>(json).unwrap(), text, "{json}");
            assert_eq!(serde_json::from_str::<Count>(json).unwrap().0, count, "{json}");
        }
        let borrowed: Text<'_> = serde_json::from_str(r#""plain""#).unwrap();
        assert!(matches!(borrowed.0, Cow::Borrowed(_)));
    }
}
