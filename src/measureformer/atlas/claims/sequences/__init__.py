"""Functions of sequences, compiled to transformers"""
