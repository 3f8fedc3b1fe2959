"""What several chapters need and no chosen library gives: array intake, bucket sizes, matrix roots, Sinkhorn."""
