"""In-context learning"""
