"""A child that says where it imports from, or waits."""

from __future__ import annotations

import json
import os
import sys
import time


def child():
    request = json.loads(sys.stdin.read())
    if "write" in request:
        with open(request["write"], "w") as file:
            file.write(str(os.getpid()))
        time.sleep(60)
    import token

    print(json.dumps({"token": token.__file__, "path": sys.path}))
