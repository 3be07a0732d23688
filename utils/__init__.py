"""What several rooms use and none of them owns."""
