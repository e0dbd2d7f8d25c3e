//! A client of atomicd that needs no shim: `direct_client MESSAGE [OPTION OF ATOMIC]...`
//!
//! Finds the daemon (and starts it if none runs: `atomicd` lies beside this program or is named by `ATOMIC_DAEMON`), says
//! hello, sends one prompt and prints the answer as it comes.

use std::error::Error;
use std::io::Write as _;

use atomic_link::client::Client;
use atomic_link::place::{self, Place};
use atomic_link::start::{connect_or_start, daemon_program};
use atomic_protocol::command::{Command, Request};
use atomic_protocol::json::Fields;
use atomic_protocol::link::{Hello, Mode, OsText, Reply};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let message = arguments.next().ok_or("which message?")?.into_string().map_err(|_| "it is not UTF-8")?;
    let cwd = std::env::current_dir()?;
    let place = Place::find(|name| std::env::var_os(name), place::home().as_deref(), &cwd)?;
    let argv = ["--mode", "rpc"].map(OsText::from).into_iter();
    let hello = Hello {
        mode: Mode::Rpc,
        cwd: OsText::from_os(cwd.as_os_str()),
        argv: argv.chain(arguments.map(|option| OsText::from_os(&option))).collect(),
        env: std::env::vars_os()
            .map(|(name, value)| (OsText::from_os(&name), OsText::from_os(&value)))
            .collect(),
        ..Hello::default()
    };
    let program = || {
        daemon_program(
            &std::env::current_exe().unwrap_or_default(),
            std::env::var_os("ATOMIC_DAEMON").as_deref(),
        )
    };
    let mut client = Client::new(connect_or_start(&place, &hello, program)?);
    match client.reply() {
        Reply::Welcome { session_id, .. } => eprintln!("session {session_id}"),
        Reply::Refused { text, .. } => return Err(text.clone().into()),
        Reply::Report(_) | Reply::Clash { .. } => {
            return Err("atomicd answered another question than the one asked".into());
        }
    }
    let command = Command::Prompt { message, images: Vec::new(), streaming_behavior: None };
    let line = Request { id: None, command }.to_line();
    client.send_line(line.strip_suffix(b"\n").unwrap_or(&line))?;
    let mut stdout = std::io::stdout();
    while let Some(record) = client.next_record()? {
        let text = String::from_utf8_lossy(&record);
        let fields = Fields::parse(&text).map_err(|_| format!("this is no record: {text}"))?;
        match fields.str("type").as_deref() {
            Some("response") if fields.get("success") == Some("false") => {
                return Err(fields.str("error").unwrap_or_default().into());
            }
            Some("message_update") => {
                let event = fields.get("assistantMessageEvent").map(Fields::parse);
                if let Some(Ok(event)) = event
                    && event.str("type").as_deref() == Some("text_delta")
                {
                    stdout.write_all(event.str("delta").unwrap_or_default().as_bytes())?;
                    stdout.flush()?;
                }
            }
            Some("agent_settled") => {
                stdout.write_all(b"\n")?;
                return Ok(());
            }
            _ => {}
        }
    }
    Err("atomicd closed the connection".into())
}
