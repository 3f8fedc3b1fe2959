"""Attention: exact answers on arrays, streamed, sharded, and on a grid."""
