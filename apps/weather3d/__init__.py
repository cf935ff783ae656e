"""The app of the box: weather in three dimensions."""
