"""What a person or a CI server reads."""
