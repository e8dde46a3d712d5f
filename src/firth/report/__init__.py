"""Numbers side by side: what models are compared by, and the page that shows it."""
