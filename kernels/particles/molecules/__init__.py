"""Within molecules: bonds, the terms of angles and dihedrals, and bonds of fixed length."""
