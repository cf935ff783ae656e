"""Pictures of a report: charts, maps and diagrams."""
