//! A kind of record knows all its names.

/// From one row per variant the method that names a value and the list of all names: a variant without a row does not
/// compile, so the list is complete.
macro_rules! named {
    ($($variant:pat => $name:literal,)*) => {
        /// The `type` of every one of them, in the order of the table.
        pub const NAMES: &[&str] = &[$($name),*];

        /// The wire's `type`.
        pub fn name(&self) -> &'static str {
            match self {
                $($variant => $name,)*
            }
        }
    };
}
