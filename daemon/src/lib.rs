//! atomicd: owns every session of a user; the only crate that knows all the others.
