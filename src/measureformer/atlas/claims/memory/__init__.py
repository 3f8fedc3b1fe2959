"""Memories: Hopfield networks from 1982 to attention"""
