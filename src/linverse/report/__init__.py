"""What is shown: figures, tables and the console. Nothing is computed here that a notebook might want."""
