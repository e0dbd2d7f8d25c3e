#!/usr/bin/env python3
"""A client of atomicd that needs no shim: direct_client.py MESSAGE [OPTION OF ATOMIC]...

Asks where the socket is, says hello, sends one prompt, prints the answer as it comes. Unix; Python's own library only.
PROTOCOL.md, "A program that connects itself", says the same in words."""
import json, os, socket, subprocess, sys


def find_socket():
    """Where this user's daemon listens. If none runs, one is started the way the shim starts it: by the shim."""
    def status():
        return json.loads(subprocess.run(["atomic", "status", "--json"], stdout=subprocess.PIPE).stdout)
    if not status()["running"]:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        subprocess.run(["atomic", "--mode", "rpc", "--no-session"], check=True, **quiet)
    return status()["socket"]


def os_text(text):
    """A string of the system as the hello has it: text, or base64 of what is no UTF-8."""
    raw = os.fsencode(text)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        import base64
        return {"b64": base64.b64encode(raw).decode()}


def connect(options):
    path = find_socket()
    # The hello carries our environment: it is for nobody else's daemon.
    if os.stat(path).st_uid != os.getuid():
        sys.exit(f"{path} belongs to another user")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    lines = connection.makefile("rwb", buffering=0)
    hello = {"type": "hello", "link": 1, "mode": "rpc", "cwd": os_text(os.getcwd()),
             "argv": [os_text(option) for option in ["--mode", "rpc", *options]],
             "env": [[os_text(name), os_text(value)] for name, value in os.environ.items()]}
    lines.write(json.dumps(hello).encode() + b"\n")
    reply = json.loads(lines.readline())
    if reply["type"] != "welcome":
        sys.exit(reply["text"])
    print(f"session {reply['sessionId']}", file=sys.stderr)
    return lines


lines = connect(sys.argv[2:])
lines.write(json.dumps({"id": "1", "type": "prompt", "message": sys.argv[1]}).encode() + b"\n")
for line in lines:  # the daemon closes the connection when it leaves
    record = json.loads(line)
    if record["type"] == "response" and not record["success"]:
        sys.exit(record["error"])
    if record["type"] == "message_update" and record["assistantMessageEvent"]["type"] == "text_delta":
        print(record["assistantMessageEvent"]["delta"], end="", flush=True)
    if record["type"] == "agent_settled":
        print()
        sys.exit(0)
sys.exit("atomicd closed the connection")
