"""Mean field: from finitely many tokens to their law."""
