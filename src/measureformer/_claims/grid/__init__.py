"""Low dimension: attention on a grid, in linear time and with a certificate."""
