//! What the model can do: read, bash, edit, write, grep, find, ls; and the shell runner.
