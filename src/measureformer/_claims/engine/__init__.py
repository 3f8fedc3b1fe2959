"""The engine: exact attention on arrays, streamed and sharded."""
