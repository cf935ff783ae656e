"""Matrix products whose every output adds in the order of K: bits that do not depend on the number of rows."""
