"""The page: what comes in, what is new and its name, classes, history and quality; HTML over the service."""

from shels.service.page import assets, changes, session, shown

PAGES = (shown.router, changes.router, session.router, assets.router)
"""What `create_app` includes."""
