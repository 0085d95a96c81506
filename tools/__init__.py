"""Programs for working on this project; `make help` shows how they are called."""
