"""What several apps share: topography, validation, studies of scaling."""
