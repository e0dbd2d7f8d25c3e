"""A client in the manner of the protocol page's basic Python client: it starts `atomic` from the PATH, asks once,
prints the text as it comes and stops reading at agent_end."""

import json
import subprocess
import sys

with subprocess.Popen(
    ["atomic", "--mode", "rpc", "--no-session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
) as agent:
    agent.stdin.write(json.dumps({"type": "prompt", "message": "Hello!"}) + "\n")
    agent.stdin.flush()
    for line in agent.stdout:
        record = json.loads(line)
        if record.get("type") == "message_update":
            part = record["assistantMessageEvent"]
            if part["type"] == "text_delta":
                sys.stdout.write(part["delta"])
                sys.stdout.flush()
        elif record.get("type") == "agent_end":
            print()
            break
