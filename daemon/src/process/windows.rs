//! Windows: the starter detaches the daemon already; only the console's signals are left.

use std::io;

/// Nothing to leave behind.
pub fn settle() {}

/// The signals that end the daemon.
#[derive(Debug)]
pub struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
    close: tokio::signal::windows::CtrlClose,
}

impl Signals {
    /// Watches for them.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn install() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: tokio::signal::windows::ctrl_c()?,
            close: tokio::signal::windows::ctrl_close()?,
        })
    }

    /// The next one's name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.close.recv() => "close",
        }
    }
}

/// Nothing to do: the allocator gives free memory back by itself.
pub fn give_back_memory() {}
