//! Every record on the wire and entry in a session file as a type; pure, no I/O and no clock.
