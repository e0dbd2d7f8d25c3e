//! Model catalog, credentials, and one file per vendor API.
