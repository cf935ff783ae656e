"""The verb `plan`: plans are proved, priced and drawn."""
