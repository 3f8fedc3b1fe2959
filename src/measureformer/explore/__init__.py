"""The explorer: marimo apps in the browser, on this machine only. `measureformer explore` opens them.

An app in `apps/` is a thin layer: what it computes is in the module of the same name here, which needs no browser.
"""
