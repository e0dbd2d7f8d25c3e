//! The least a daemon could be: one thread for each client, a Unix socket, every line comes back. Behind the same shim it
//! is what a round trip costs when nobody does anything.

use std::io::{Read as _, Write as _};

use atomic_link::Stream;
use atomic_link::listen::{self, DaemonLock, LOCK_PATIENCE};
use atomic_link::place::Place;
use atomic_protocol::link::{FromDaemon, LINK_VERSION, MARK, PROGRAM_VERSION, Reply};

use crate::Failure;
use crate::home::Home;

/// Serves the place of this HOME until the process ends. No daemon may run there.
pub(crate) fn start(home: &Home) -> Result<(), Failure> {
    let place = Place::of(&home.agent_dir())?;
    let lock = DaemonLock::acquire(&place, LOCK_PATIENCE)?;
    let listener = listen::bind(&place, &lock)?;
    std::thread::spawn(move || {
        // Held as long as it serves.
        let _lock = lock;
        while let Ok(stream) = listener.accept() {
            // A client that goes away is served.
            std::thread::spawn(move || drop(serve(stream)));
        }
    });
    Ok(())
}

fn serve(mut stream: Stream) -> Result<(), Failure> {
    let mut buffer = Vec::with_capacity(64 * 1024);
    take_line(&mut stream, &mut buffer)?;
    let welcome = Reply::Welcome {
        link: LINK_VERSION,
        version: PROGRAM_VERSION.to_owned(),
        build: String::new(),
        pid: std::process::id(),
        session_id: "echo".to_owned(),
        session_file: None,
    };
    stream.write_all(format!("{}\n", serde_json::to_string(&welcome)?).as_bytes())?;
    loop {
        let line = take_line(&mut stream, &mut buffer)?;
        if line.first() == Some(&MARK) {
            // Its stdin ended.
            let mut goodbye = Vec::new();
            FromDaemon::Exit { code: 0, text: None }.write_line(&mut goodbye);
            return Ok(stream.write_all(&goodbye)?);
        }
        stream.write_all(&line)?;
    }
}

/// The next line with its LF; what follows it stays in `buffer`.
fn take_line(stream: &mut Stream, buffer: &mut Vec<u8>) -> Result<Vec<u8>, Failure> {
    let mut scanned = 0;
    loop {
        if let Some(length) = buffer[scanned..].iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(scanned + length + 1);
            return Ok(std::mem::replace(buffer, rest));
        }
        scanned = buffer.len();
        buffer.resize(scanned + 16 * 1024, 0);
        let read = stream.read(&mut buffer[scanned..])?;
        buffer.truncate(scanned + read);
        if read == 0 {
            return Err("the client has gone".into());
        }
    }
}
