//! Where the daemon is, how to reach it, and how both ends know each other; blocking, no async stack.
