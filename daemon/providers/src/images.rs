//! The images of a request, made fit for the model that is asked.
//!
//! What a session keeps is what was said; what goes to a model is made from it here, for each request anew. So a session
//! can move to a model with other limits, and an image that no provider would take does not make every later request
//! fail: a line of text stands in its place. The same image always becomes the same bytes, as providers' caches need it.

use std::sync::{Arc, Mutex, PoisonError};

use atomic_images::{Error, Limits, fit};
use atomic_protocol::message::{Block, Content, Message};
use atomic_protocol::model::{Model, ModelRequest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indexmap::IndexMap;
use ring::digest;
use serde::Deserialize;

/// Most bytes of images made smaller that are kept for the next request of any session. A dozen photographs fit; one that
/// does not is made anew.
const KEPT_BYTES: usize = 32 << 20;

/// Most images remembered. Most of them fit as they are, which costs no bytes.
const KEPT_IMAGES: usize = 1024;

/// What of a request's bytes may be images; the rest is for words.
const SHARE: (u64, u64) = (7, 8);

/// `inputLimits` of a model.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InputLimits {
    max_request_bytes: Option<u64>,
    images: ImageLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ImageLimits {
    max_per_request: Option<usize>,
    max_per_message: Option<usize>,
    resize: Resize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Resize {
    max_width: Option<u32>,
    max_height: Option<u32>,
    max_bytes: Option<u64>,
    jpeg_quality: Option<u8>,
}

impl InputLimits {
    /// What the model says, if it says something we understand.
    fn of(model: &Model) -> InputLimits {
        model.input_limits.as_ref().and_then(|limits| limits.read().ok()).unwrap_or_default()
    }

    /// Of each image. `resize`: whether there are limits at all.
    fn each(&self, resize: bool) -> Limits {
        let usual = Limits::default();
        if !resize {
            return Limits { max_width: u32::MAX, max_height: u32::MAX, max_base64: u64::MAX, ..usual };
        }
        let own = &self.images.resize;
        Limits {
            max_width: own.max_width.filter(|side| *side > 0).unwrap_or(usual.max_width),
            max_height: own.max_height.filter(|side| *side > 0).unwrap_or(usual.max_height),
            max_base64: own.max_bytes.unwrap_or(usual.max_base64),
            jpeg_quality: own.jpeg_quality.unwrap_or(usual.jpeg_quality),
        }
    }
}

/// Makes the images of `request` fit, off the async threads. Without images, or without eyes, nothing happens.
pub(crate) async fn fitted(mut request: ModelRequest, resize: bool) -> ModelRequest {
    let eyes = request.model.input.iter().any(|kind| kind == "image");
    if !eyes || !request.messages.iter().any(|message| blocks(message).iter().any(is_image)) {
        return request;
    }
    let model = Arc::clone(&request.model);
    let mut messages = std::mem::take(&mut request.messages);
    let work = move || {
        fit_all(&mut messages, &InputLimits::of(&model), resize);
        messages
    };
    request.messages = tokio::task::spawn_blocking(work).await.expect("images are fitted without a panic");
    request
}

fn fit_all(messages: &mut [Message], limits: &InputLimits, resize: bool) {
    let each = limits.each(resize);
    for message in messages.iter_mut() {
        let Some(blocks) = blocks_mut(message).filter(|blocks| blocks.iter().any(is_image)) else { continue };
        let mut new = Vec::with_capacity(blocks.len() + 1);
        for block in std::mem::take(blocks) {
            match block {
                Block::Image { data, mime_type } => replace(data, mime_type, &each, &mut new),
                other => new.push(other),
            }
        }
        *blocks = new;
    }
    leave_out(messages, limits);
}

/// An image that fits, with what there is to know about it; or why there is none.
fn replace(data: String, mime_type: String, limits: &Limits, out: &mut Vec<Block>) {
    match verdict(&data, limits) {
        Verdict::Keep(mime) if *mime == *mime_type => out.push(Block::Image { data, mime_type }),
        Verdict::Keep(mime) => out.push(Block::Image { data, mime_type: mime.to_owned() }),
        Verdict::Other { data, mime_type, note } => {
            out.push(Block::Image { data: (*data).to_owned(), mime_type: mime_type.to_owned() });
            out.extend(note.map(|note| Block::text(&*note)));
        }
        Verdict::None(why) => out.push(Block::text(why.to_string())),
    }
}

/// The oldest images go when there are more than the model takes.
fn leave_out(messages: &mut [Message], limits: &InputLimits) {
    let mut bytes = limits.max_request_bytes.map_or(u64::MAX, |most| most / SHARE.1 * SHARE.0);
    let mut count = limits.images.max_per_request.unwrap_or(usize::MAX);
    let per_turn = limits.images.max_per_message.unwrap_or(usize::MAX);
    let mut turn = per_turn;
    for message in messages.iter_mut().rev() {
        // What stands between two answers may become one message of a request.
        if matches!(message, Message::Assistant(_)) {
            turn = per_turn;
        }
        for block in blocks_mut(message).into_iter().flatten().rev() {
            let Block::Image { data, .. } = &*block else { continue };
            let left = (count.checked_sub(1), turn.checked_sub(1), bytes.checked_sub(data.len() as u64));
            match left {
                (Some(less), Some(turn_less), Some(bytes_less)) => {
                    (count, turn, bytes) = (less, turn_less, bytes_less);
                }
                // Older ones go too, even if they were small enough: what is left out stays left out.
                (None, ..) | (.., None) => {
                    (count, bytes) = (0, 0);
                    *block = Block::text(TOO_MANY);
                }
                (_, None, _) => *block = Block::text(TOO_MANY),
            }
        }
    }
}

/// Stands for an image that is one too many.
const TOO_MANY: &str = "[Image omitted: the request holds as many newer images as this model takes.]";

fn is_image(block: &Block) -> bool {
    matches!(block, Block::Image { .. })
}

fn blocks(message: &Message) -> &[Block] {
    match message {
        Message::User(user) => match &user.content {
            Content::Blocks(blocks) => blocks,
            Content::Text(_) => &[],
        },
        Message::ToolResult(result) => &result.content,
        _ => &[],
    }
}

fn blocks_mut(message: &mut Message) -> Option<&mut Vec<Block>> {
    match message {
        Message::User(user) => match &mut user.content {
            Content::Blocks(blocks) => Some(blocks),
            Content::Text(_) => None,
        },
        Message::ToolResult(result) => Some(&mut result.content),
        _ => None,
    }
}

/// What becomes of an image.
#[derive(Clone)]
enum Verdict {
    /// It goes on as it is, under this name.
    Keep(&'static str),
    Other {
        /// Base64.
        data: Arc<str>,
        mime_type: &'static str,
        note: Option<Arc<str>>,
    },
    None(Error),
}

impl Verdict {
    fn bytes(&self) -> usize {
        if let Verdict::Other { data, .. } = self { data.len() } else { 0 }
    }
}

/// By content and limits: what it becomes depends on nothing else, so all sessions share what is known.
type Key = (Vec<u8>, Limits);

#[derive(Default)]
struct Kept {
    /// The one used last stands last.
    verdicts: IndexMap<Key, Verdict>,
    bytes: usize,
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Verdict> {
        let at = self.verdicts.get_index_of(key)?;
        self.verdicts.move_index(at, self.verdicts.len() - 1);
        self.verdicts.get(key).cloned()
    }

    fn put(&mut self, key: Key, verdict: Verdict) {
        if verdict.bytes() > KEPT_BYTES {
            return;
        }
        self.bytes += verdict.bytes();
        if let Some(old) = self.verdicts.insert(key, verdict) {
            self.bytes -= old.bytes();
        }
        while self.bytes > KEPT_BYTES || self.verdicts.len() > KEPT_IMAGES {
            let Some((_, old)) = self.verdicts.shift_remove_index(0) else { break };
            self.bytes -= old.bytes();
        }
    }
}

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

fn kept<T>(with: impl FnOnce(&mut Kept) -> T) -> T {
    with(KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn verdict(data: &str, limits: &Limits) -> Verdict {
    let key = (digest::digest(&digest::SHA256, data.as_bytes()).as_ref().to_vec(), *limits);
    if let Some(verdict) = kept(|kept| kept.get(&key)) {
        return verdict;
    }
    let fitted =
        STANDARD.decode(data.trim()).map_err(|_| Error::Unreadable).and_then(|bytes| fit(&bytes, limits));
    let verdict = match fitted {
        Ok(fitted) => match fitted.bytes {
            None => Verdict::Keep(fitted.mime_type),
            Some(bytes) => Verdict::Other {
                data: STANDARD.encode(bytes).into(),
                mime_type: fitted.mime_type,
                note: fitted.note.map(Arc::from),
            },
        },
        Err(error) => Verdict::None(error),
    };
    kept(|kept| kept.put(key, verdict.clone()));
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof;

    /// One white pixel.
    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

    /// A bitmap of 3000 by 2 pixels in one color.
    fn wide() -> String {
        let pixels = 3000 * 3 * 2_u32;
        let mut bytes = b"BM".to_vec();
        for word in [54 + pixels, 0, 54, 40, 3000, 2] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([1, 0, 24, 0]);
        for word in [0, pixels, 0, 0, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize((54 + pixels) as usize, 0x7f);
        STANDARD.encode(bytes)
    }

    fn image(data: &str, mime_type: &str) -> String {
        format!(r#"{{"type":"image","data":"{data}","mimeType":"{mime_type}"}}"#)
    }

    fn user(images: &[String]) -> String {
        format!(r#"{{"role":"user","content":[{{"type":"text","text":"look"}},{}]}}"#, images.join(","))
    }

    /// What the last message shows after the text: MIME types of images, and texts.
    async fn shown(spec: &str, messages: &[&str], resize: bool) -> Vec<Vec<String>> {
        let request = fitted(proof::request(spec, messages), resize).await;
        let all = request.messages.iter().map(|message| {
            let each = blocks(message).iter().map(|block| match block {
                Block::Image { mime_type, .. } => mime_type.clone(),
                block => block.as_text().unwrap_or_default().to_owned(),
            });
            each.filter(|text| text != "look").collect()
        });
        all.filter(|shown: &Vec<String>| !shown.is_empty()).collect()
    }

    const EYES: &str = r#"{"id":"m","input":["text","image"]}"#;

    #[tokio::test]
    async fn images_fit_the_model_or_are_left_out_with_a_word() {
        let unreadable = "[Image omitted: could not be converted to a supported inline image format.]";
        let converted = "[Image converted from image/bmp to image/png.]";
        let smaller = "[Image: original 3000x2, displayed at 2000x1. Multiply coordinates by 1.50 to map to original image.]";
        for (data, said, resize, want) in [
            (PIXEL, "image/png", true, vec!["image/png".to_owned()]),
            (PIXEL, "image/jpeg", true, vec!["image/png".to_owned()]),
            ("aGk=", "image/png", true, vec![unreadable.to_owned()]),
            ("", "image/png", false, vec![unreadable.to_owned()]),
            (&wide(), "image/bmp", true, vec!["image/png".to_owned(), format!("{converted}\n{smaller}")]),
            (&wide(), "image/bmp", false, vec!["image/png".to_owned(), converted.to_owned()]),
        ] {
            // Twice: the second answer comes from what is kept.
            for _ in 0..2 {
                let got = shown(EYES, &[&user(&[image(data, said)])], resize).await;
                assert_eq!(got, std::slice::from_ref(&want), "{said} {resize}");
            }
        }
        let blind = shown(r#"{"id":"m"}"#, &[&user(&[image("aGk=", "image/png")])], true).await;
        assert_eq!(blind, [["image/png"]], "whoever cannot see gets no images anyway");
    }

    #[tokio::test]
    async fn a_models_own_limits_hold() {
        let spec = r#"{"id":"m","input":["image"],"inputLimits":{"images":{"resize":{"maxWidth":30,"maxHeight":20}}}}"#;
        let limits = InputLimits::of(&proof::model(spec)).each(true);
        assert_eq!(limits, Limits { max_width: 30, max_height: 20, ..Limits::default() });
        for model in ["anthropic", "google"].iter().flat_map(|p| crate::Catalog::shipped().models(p).iter()) {
            if model.input.iter().any(|kind| kind == "image") {
                assert!(model.input_limits.is_some(), "{}", model.id);
                assert_eq!(InputLimits::of(model).each(true), Limits::default(), "{}", model.id);
            }
        }
    }

    #[test]
    fn the_newest_images_stay() {
        let texts = |limits: &str, messages: &[String]| {
            let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
            let mut request = proof::request(EYES, &messages);
            fit_all(&mut request.messages, &serde_json::from_str(limits).unwrap(), true);
            let images = |message: &Message| blocks(message).iter().filter(|block| is_image(block)).count();
            request.messages.iter().map(images).collect::<Vec<_>>()
        };
        let look = |count: usize| user(&vec![image(PIXEL, "image/png"); count]);
        let answer = r#"{"role":"assistant","content":[],"stopReason":"stop"}"#.to_owned();
        let talk = [look(2), look(2), answer, look(3)];
        assert_eq!(texts("{}", &talk), [2, 2, 0, 3]);
        assert_eq!(texts(r#"{"images":{"maxPerRequest":4}}"#, &talk), [0, 1, 0, 3]);
        assert_eq!(texts(r#"{"images":{"maxPerMessage":3}}"#, &talk), [1, 2, 0, 3]);
        let two = (2 * PIXEL.len()) / 7 * 8 + 16;
        assert_eq!(texts(&format!(r#"{{"maxRequestBytes":{two}}}"#), &talk), [0, 0, 0, 2]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        let big = |byte: u8| (vec![byte], Limits::default());
        for byte in 0..=255 {
            let data = "x".repeat(1 << 20).into();
            kept.put(big(byte), Verdict::Other { data, mime_type: "image/png", note: None });
        }
        assert_eq!((kept.bytes, kept.verdicts.len()), (32 << 20, 32));
        assert!(kept.get(&big(0)).is_none() && kept.get(&big(224)).is_some());
        kept.put(big(0), Verdict::Keep("image/png"));
        let data = "x".repeat(1 << 20).into();
        kept.put(big(1), Verdict::Other { data, mime_type: "image/png", note: None });
        assert!(kept.get(&big(224)).is_some() && kept.get(&big(225)).is_none(), "the one not used goes");
    }
}
