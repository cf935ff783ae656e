"""What proves a plan: its form, the execution of its steps on cells, and strands of many ranks that are alike."""
