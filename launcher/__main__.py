"""`python -m launcher` is `launch`."""

import os

try:
    from launch_llm import main
except KeyboardInterrupt:
    os._exit(130)

raise SystemExit(main())
