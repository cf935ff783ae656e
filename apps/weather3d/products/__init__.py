"""What modelers take along: statistics of columns, series at stations, maps of storms, wrfout files."""
