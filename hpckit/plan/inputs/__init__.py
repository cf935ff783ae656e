"""What users give, checked before it is used: numbers of arguments, and text files."""
