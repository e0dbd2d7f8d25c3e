//! Session files, version 3: tolerant read, append, tree, list; synchronous.
