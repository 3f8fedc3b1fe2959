"""Flows: infinitely deep transformers as flows of measures."""
