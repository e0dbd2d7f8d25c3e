//! A login through a provider's page: the page is shown, and the browser brings the code to a loopback address of ours. Where
//! the browser is on another machine, the address it ends at is pasted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use atomic_providers::openrouter::Login;
use atomic_providers::{Http, Registry};

use super::{Person, Refusal, wait_for};

/// How long the page is waited for.
const PAGE_DEADLINE: Duration = Duration::from_secs(600);

/// How long a connection may take to say what it wants; browsers open some that say nothing.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Most bytes of a request that are looked at: its first line says it all.
const MAX_REQUEST: u64 = 16 << 10;

/// Answers that may wait: one is taken, and a browser may come again.
const CODES: usize = 4;

/// What the browser shows afterwards. It loads nothing and tells nobody the address.
const PAGE_HEAD: &str = "content-type: text/html; charset=utf-8\r\ncontent-security-policy: default-src 'none'\r\n\
                         referrer-policy: no-referrer\r\ncache-control: no-store\r\nconnection: close\r\n";

/// The key that the user allows on the provider's page. With `can_paste` the code may also be typed.
pub(super) fn key(
    person: &'static dyn Person,
    registry: &Registry,
    can_paste: bool,
) -> Result<String, Refusal> {
    let refused = |text: String| Refusal::Auth(text);
    let login = Arc::new(Login::begin(registry).map_err(|error| refused(error.to_string()))?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.map_err(|error| refused(format!("cannot listen on 127.0.0.1: {error}")))?;
    let port = listener
        .local_addr()
        .map_err(|error| refused(format!("cannot listen on 127.0.0.1: {error}")))?
        .port();
    let page = login.page(&format!("http://127.0.0.1:{port}{}", login.callback_path()));
    person.tell(&format!(
        "Open this page and allow a key to be made (or pipe one in that you have):\n\n  {page}\n"
    ));
    let (codes, code) = mpsc::sync_channel(CODES);
    let path = login.callback_path();
    let from_browser = codes.clone();
    // Both threads end with the process, which ends with the answer.
    thread::spawn(move || listen(&listener, &path, &from_browser));
    if can_paste {
        person.tell("If the browser is on another machine, paste the address it ends at and press Enter.");
        let login = Arc::clone(&login);
        thread::spawn(move || {
            while let Ok(line) = person.line() {
                match login.pasted(&line) {
                    Some(code) => drop(codes.send(Ok(code))),
                    None => person.tell("There is no code in that. The address has \"code=\" in it."),
                }
            }
        });
    } else {
        drop(codes);
    }
    person.browse(&page);
    let code = code.recv_timeout(PAGE_DEADLINE).map_err(|_| {
        refused(format!(
            "the page did not come back within {} minutes; try again",
            PAGE_DEADLINE.as_secs() / 60
        ))
    })?;
    let code = code.map_err(|error| refused(format!("openrouter gave no key: its page said {error}")))?;
    let key = wait_for(login.key(&Http::new(), registry, &code))?;
    key.map_err(|error| refused(error.to_string()))
}

/// What the page sent: a code, or why there is none.
type Code = Result<String, String>;

fn listen(listener: &TcpListener, path: &str, codes: &SyncSender<Code>) {
    for stream in listener.incoming().flatten() {
        let (path, codes) = (path.to_owned(), codes.clone());
        thread::spawn(move || serve(&stream, &path, &codes));
    }
}

fn serve(mut stream: &TcpStream, path: &str, codes: &SyncSender<Code>) {
    if stream.set_read_timeout(Some(REQUEST_DEADLINE)).is_err() {
        return;
    }
    let mut reader = BufReader::new(stream.take(MAX_REQUEST));
    let mut first = String::new();
    if reader.read_line(&mut first).is_err() {
        return;
    }
    // The rest is read so that the answer is not lost to a connection reset.
    let mut line = String::new();
    while matches!(reader.read_line(&mut line), Ok(1..)) && !line.trim_end().is_empty() {
        line.clear();
    }
    let found = code(&first, path);
    let (status, text) = match &found {
        None => ("404 Not Found", "There is nothing here."),
        Some(Ok(_)) => ("200 OK", "atomic has what it needs. You can close this page."),
        Some(Err(_)) => ("200 OK", "No key was allowed. You can close this page."),
    };
    let body = format!("<!doctype html><title>atomic</title><p>{text}</p>");
    let head = format!("HTTP/1.1 {status}\r\n{PAGE_HEAD}content-length: {}\r\n\r\n", body.len());
    // The browser may be gone; the code counts.
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
    if let Some(code) = found {
        let _ = codes.try_send(code);
    }
}

/// What a request's first line brings, if it is for our path: another has not seen the page.
fn code(first: &str, path: &str) -> Option<Code> {
    let target = first.strip_prefix("GET ")?.split(' ').next()?;
    let (found, query) = target.split_once('?')?;
    if found != path {
        return None;
    }
    let value = |name: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        pair.map(decoded).filter(|value| !value.is_empty())
    };
    match (value("code"), value("error")) {
        (Some(code), _) => Some(Ok(code)),
        (None, Some(error)) => Some(Err(value("error_description").unwrap_or(error))),
        (None, None) => None,
    }
}

/// A value of a query, with its escapes undone.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_that_was_shown_can_bring_a_code() {
        let code = |first: &str| code(first, "/callback/s");
        for (first, want) in [
            ("GET /callback/s?code=a%2Bb&x=1 HTTP/1.1", Some(Ok("a+b"))),
            ("GET /callback/s?error=access_denied HTTP/1.1", Some(Err("access_denied"))),
            ("GET /callback/s?error=e&error_description=not+now HTTP/1.1", Some(Err("not now"))),
            ("GET /callback/other?code=a HTTP/1.1", None),
            ("GET /callback/s?code= HTTP/1.1", None),
            ("GET /callback/s HTTP/1.1", None),
            ("GET /favicon.ico HTTP/1.1", None),
            ("POST /callback/s?code=a HTTP/1.1", None),
            ("", None),
        ] {
            let want = want.map(|found: Result<&str, &str>| found.map(str::to_owned).map_err(str::to_owned));
            assert_eq!(code(first), want, "{first}");
        }
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }
}
