//! What `--help` prints. Its lines describe the flags also for completions and the manual page ([`super::describe`]), so
//! each flag stands on a line of its own: spelling, at least two spaces, what it does.

/// What `atomic --help` prints.
pub const HELP: &str = "\
Drive a coding agent from an editor or a script, over JSON Lines on stdin and stdout.

Usage: atomic --mode rpc [OPTIONS]                        commands on stdin, answers and events on stdout
       atomic --mode json [OPTIONS] [MESSAGE|@FILE]...    run the messages, events on stdout
       atomic -p [OPTIONS] [MESSAGE|@FILE]...             run the messages, the last answer's text on stdout
       atomic attach ID | sessions                        join a session that exists; list and manage them
       atomic auth login | logout | list | check          keys of providers
       atomic status | stop | restart | logs | trust | export | completions | man

A message may also come on stdin; @FILE puts a text or an image before the first message. The first client starts
atomicd, which owns all sessions of the user; in rpc mode a run goes on when its client leaves.

  --mode MODE                  text, json or rpc; text is what -p does
  -p, --print                  Print the text of the last answer and exit; without a terminal this is the default

Model
  --provider NAME              Use this provider
  --model PATTERN[:THINKING]   Use this model
  --models A,B                 The models that cycle_model goes through; the first is used unless another is named
  --thinking LEVEL             off, minimal, low, medium, high, xhigh or max
  --api-key KEY                Use this key for the provider; kept in memory only
  --max-turns N                Stop a run after so many turns
  --max-cost DOLLARS           Stop a run that has cost so much; one request may go over it
  --list-models [SEARCH]       List the models that can be used and exit

Session
  -c, --continue               Continue the newest session of this directory
  --session PATH|ID            Open this session, or join it if it is live
  --session-id ID              Open the session with this id, or create it
  --fork PATH|ID               Begin a new session with a copy of this one
  --session-dir DIR            Keep session files here
  -n, --name NAME              Name the session
  --no-session                 Keep the session in memory only
  --on-disconnect WHAT         When the last client leaves a running turn: finish it (default), abort it, or keep the
                               session in memory for good; with -p and json mode the default is abort
  --drain                      After the end of input stay until the session has settled
  --export FILE                Write a session file as a page (a second argument names it) and exit

Tools and prompts
  -t, --tools A,B              Offer only these tools
  -xt, --exclude-tools A,B     Offer all but these tools
  -nt, --no-tools              Offer no tools
  -nbt, --no-builtin-tools     Offer no built-in tools
  --system-prompt TEXT|FILE    Replace the system prompt
  --append-system-prompt TEXT|FILE  Add to it; may be repeated
  -nc, --no-context-files      Do not load AGENTS.md and its like
  --prompt-template PATH       Load this template or directory too; may be repeated
  -np, --no-prompt-templates   Load only templates that are named
  --skill PATH                 Load this skill or directory too; may be repeated
  -ns, --no-skills             Load only skills that are named
  -a, --approve                Trust this project's own settings and prompts, this time
  -na, --no-approve            Do not trust them, this time

Protocol
  --rpc-compat DIALECT         atomic (default), pi or legacy; also from the variable ATOMIC_RPC_COMPAT
  --ascii-separators           Write U+2028 and U+2029 as escapes, for clients that take them for line ends

Taken without effect
  -e, --extension PATH         Extensions are not built in this version; a warning says so
  -ne, --no-extensions         There are none
  -r, --resume                 Refused: there is no list to choose from here; see --continue and --session
  --theme PATH                 There is no user interface to colour; so with the next two
  --no-themes                  Load no themes
  --use-theme NAME             Use this theme
  --offline                    Nothing is fetched at the start anyway
  --verbose                    Nothing is left unsaid at the start anyway

  -h, --help                   Print this and exit
  -v, --version                Print the version and exit
  --                           End of options; what follows are messages

Examples
  atomic --mode rpc --provider demo
  git diff | atomic -p 'Review this' @NOTES.md
  atomic --mode json --no-session 'List the files' | jq -c 'select(.type==\"message_end\")'
  atomic --mode rpc --continue --model sonnet:high
";

/// What an `atomic` that is asked nothing answers on stderr.
pub const USAGE: &str = "\
Usage: atomic --mode rpc [OPTIONS]
       atomic -p [OPTIONS] [MESSAGE|@FILE]...
       atomic --mode json [OPTIONS] [MESSAGE|@FILE]...
       atomic attach ID
       atomic sessions | auth | status | stop | restart | logs | trust | export | completions | man

Try 'atomic --help' for all options.
";

pub(super) const STATUS_HELP: &str = "\
Show the running daemon and its sessions; never starts one.

Usage: atomic status [--json]

  --json   Print one JSON object
  Exit code: 0 running, 3 not running

Example
  atomic status --json
";

pub(super) const STOP_HELP: &str = "\
Stop the running daemon; refused while a turn runs.

Usage: atomic stop [--force] [--wait]

  --force   Abort running turns
  --wait    Let running turns end first

Example
  atomic stop --wait
";

pub(super) const RESTART_HELP: &str = "\
Hand all sessions over to a new daemon: to use an upgraded program, or other settings.

Usage: atomic restart [--now]

  --now   Abort running turns, and end sessions that are in memory only

Running turns end first; meanwhile new prompts wait, and are run by the new daemon.
Windows stay open. A session in memory only (--no-session) cannot move: the restart
waits for its end. Ctrl-C calls the restart off.
  Exit code: 0 restarted or not running, 1 failed or refused

Example
  atomic restart --now
";

pub(super) const LOGS_HELP: &str = "\
Print the end of the daemon's newest log file.

Usage: atomic logs [-n N] [-f] [--level LEVEL] [--path]

  -n, --lines N   Print the last N lines (default 50)
  -f, --follow    Go on printing what is added
  --level LEVEL   Set the running daemon's log level: off, error, warn, info, debug or trace
  --path          Print the file's path only

Example
  atomic logs -n 200 -f
";

pub(super) const TRUST_HELP: &str = "\
Remember that a project is trusted: sessions there load its own settings, prompts,
skills, system prompt and context files. Holds for what lies below the directory.

Usage: atomic trust [DIR] [--revoke]

  DIR        The project (default: the current directory)
  --revoke   Forget it

Example
  atomic trust ~/src/mine
";

pub(super) const SESSIONS_HELP: &str = "\
List, search and manage stored sessions and those that are live in the daemon; never starts one.

Usage: atomic sessions [list] [WORD]...       those of this directory (in which all the words occur)
       atomic sessions show SESSION
       atomic sessions rename SESSION NAME
       atomic sessions export SESSION [OUT]   as one self-contained page
       atomic sessions delete SESSION         with the copies that were kept of it

SESSION is an id, the beginning of one, or a path. Words are looked for in names, ids, directories and in all that
was said. What is live is renamed by the daemon, and not deleted while it has clients or runs.

  -a, --all          List the sessions of all directories
  --json             Print JSON
  -y, --yes          Delete without asking; needed where there is no terminal
  --session-dir DIR  Look for session files here

Examples
  atomic sessions
  atomic sessions list --all beans
  atomic sessions delete 0198c2f1
";

pub(super) const AUTH_HELP: &str = "\
Keep keys of providers, say where each comes from, and check them. Sessions that are live use a new key at once.

Usage: atomic auth login PROVIDER       ask for a key, or read one from stdin; it is never an argument
       atomic auth logout PROVIDER      forget it
       atomic auth list                 providers with a key, and where it comes from; never the key
       atomic auth check [PROVIDER]     ask each provider with one request that costs nothing

Keys are kept in auth.json of the agent directory, for the user alone. 'login openrouter' on a terminal opens the page
where OpenRouter makes one.

  --json   Print JSON (list and check)
  Exit code: 0 done, all keys work; 1 otherwise

Examples
  atomic auth login anthropic
  echo \"$KEY\" | atomic auth login openai
  atomic auth check
";

pub(super) const ATTACH_HELP: &str = "\
Join a session that exists, live or stored: commands on stdin, answers and events on
stdout. The same as 'atomic --mode rpc --session SESSION', but never creates one.

Usage: atomic attach SESSION [OPTIONS]

SESSION is an id, the beginning of one, or a path; OPTIONS are those of 'atomic --mode rpc'.

Example
  atomic attach 0198c2f1
";

pub(super) const EXPORT_HELP: &str = "\
Write a session file as one self-contained page.

Usage: atomic export FILE [OUT]

Example
  atomic export ~/.atomic/agent/sessions/x/y.jsonl page.html
";

pub(super) const COMPLETIONS_HELP: &str = "\
Print a completion script for a shell.

Usage: atomic completions bash|zsh|fish|powershell|elvish

Example
  atomic completions bash > ~/.local/share/bash-completion/completions/atomic
";

pub(super) const MAN_HELP: &str = "\
Print the manual page, in roff.

Usage: atomic man

Example
  atomic man | man -l -
";
