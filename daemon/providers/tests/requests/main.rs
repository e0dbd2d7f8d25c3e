//! The whole way over a real socket: registry, HTTP client, adapter, sink. The server does what it is told and nothing
//! waits on time.

mod anthropic;
mod openai_completions;
mod phases;
mod server;
