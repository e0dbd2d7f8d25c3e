//! End to end: real binaries, real sockets, and a model server that releases each chunk on command.
