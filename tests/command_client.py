"""`launch WORDS`, run by a server that has imported the program: command_client.py SOCKET WORDS …"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    request = json.dumps({"words": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ), "timeout": 300}).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(request)
    answer = connection.recv(16)
sys.exit(int(answer or b"1") % 256)
