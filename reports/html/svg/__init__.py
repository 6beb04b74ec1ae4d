"""Charts as SVG, drawn where the page is made: they need no JavaScript, and follow light and dark."""
