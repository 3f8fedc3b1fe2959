"""Universality: every continuous in-context map, compiled"""
