"""The web planner of `launch ui`: a job composed, checked, estimated and searched in a browser; nothing is started.

All answers are those of `launcher.pipeline`, `launcher.estimate`, `launcher.search` and `launcher.importing`, as on the
command line. `docs/ui.md` has the user's view and how it is kept from the server's files.

Why Dash, which alone was installed and measured: 157 MB with what it needs, imported in 1.5 s with 54 MiB (2026-11-28,
CPython 3.11, a busy machine). The others were judged by how their documentation says that they work:

- the server keeps nothing of a session: every answer is a function of the request, so that memory does not grow with
  sessions, a link holds the whole state, and a test sends the same JSON as a browser. NiceGUI, Panel, Streamlit and
  Gradio keep the page or its state on the server, and connect it by a connection that stays open (all but Gradio by a
  WebSocket), which needs its own check of Origin.
- no WebSocket, no `eval`, no inline script without a hash: `script-src 'self' 'sha256-…'` holds.
- all assets are in its wheel (offline), MIT; its charts are plotly's figures, which `launch report` draws.

`tools/bench/ui_load.py` measures processor and memory under load.

waitress serves it: pure Python, bounded threads, connections and bodies (Flask's own server is for development).
Pebble runs the work in processes: a call that takes too long, or is cancelled, ends its process and only that.
"""
