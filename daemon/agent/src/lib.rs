//! The agent loop as a state machine without I/O: input and time in, effects out.
