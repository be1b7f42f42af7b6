"""The Dash application: the page and its callbacks."""

from pathlib import Path

from dash import Dash

from launcher.ui import arguments_tab, backends_tab, export_tab, import_tab, live, page, search_tab
from launcher.ui.pool import Pool
from launcher.ui.searches import Searches


def build(pool: Pool, searches: Searches, uploads: str) -> Dash:
    """Return the application.

    Args:
        pool, searches: what computes answers and searches.
        uploads: folder of scripts that are being read.
    """
    app = Dash(
        "launcher.ui",
        assets_folder=str(Path(__file__).parent / "assets"),
        title="Launch planner",
        update_title="",
        index_string=page.INDEX,
        serve_locally=True,
        add_log_handler=False,
    )
    app.layout = page.layout
    live.register(app, pool)
    arguments_tab.register(app, pool)
    backends_tab.register(app, pool)
    search_tab.register(app, searches)
    import_tab.register(app, pool, uploads)
    export_tab.register(app, pool)
    return app
