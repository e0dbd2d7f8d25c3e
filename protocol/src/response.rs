//! Responses.
